/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers, names, ticks and colours of pictures. */
#include "test.h"

#include <math.h>

#include "base/error.h"
#include "base/format.h"
#include "base/number.h"
#include "base/text.h"
#include "draw/draw_internal.h"

TEST(fixed_numbers_round_and_keep_their_zeros) {
    char text[HARPE_NUMBER_SIZE];
    assert_string_equal(harpe_format_fixed(text, 1.005, 1), "1.0");
    assert_string_equal(harpe_format_fixed(text, 2.96, 1), "3.0");
    assert_string_equal(harpe_format_fixed(text, -0.04, 1), "0.0");
    assert_string_equal(harpe_format_fixed(text, -12.5, 2), "-12.50");
    assert_string_equal(harpe_format_fixed(text, 12345678.0, 0), "12345678");
    assert_string_equal(harpe_format_fixed(text, 1e30, 2), "1.000e+30");
}

TEST(compact_numbers_have_no_trailing_zeros) {
    char text[HARPE_NUMBER_SIZE];
    assert_string_equal(harpe_format_compact(text, 10.0, 2), "10");
    assert_string_equal(harpe_format_compact(text, 1.5, 2), "1.5");
    assert_string_equal(harpe_format_compact(text, 0.001, 2), "0");
    assert_string_equal(harpe_format_compact(text, 100.0, 0), "100");
}

TEST(quantities_get_a_fitting_unit) {
    char text[HARPE_NUMBER_SIZE];
    assert_string_equal(harpe_format_time(text, 4.3312), "4.331 s");
    assert_string_equal(harpe_format_time(text, 0.05123), "51.23 ms");
    assert_string_equal(harpe_format_energy(text, 8103.4), "8103 J");
    assert_string_equal(harpe_format_energy(text, 45234.0), "45.23 kJ");
    assert_string_equal(harpe_format_energy(text, 2.5e7), "25.00 MJ");
    assert_string_equal(harpe_format_energy(text, 1.646e4), "16.46 kJ");
    assert_string_equal(harpe_format_energy(text, 3e13), "30000000 MJ");
    assert_string_equal(harpe_format_time(text, 86400 * 30.0), "2592000 s");
    assert_string_equal(harpe_format_power(text, 83.64), "83.64 W");
    assert_string_equal(harpe_format_power(text, 16460), "16.46 kW");
    assert_string_equal(harpe_format_percent(text, -13.84), "13.8 %");
    assert_string_equal(harpe_format_percent(text, 0.204), "0.20 %");
    assert_string_equal(harpe_format_percent(text, 0.0), "0.0 %");
}

TEST(digits_are_never_scientific) {
    char text[HARPE_NUMBER_SIZE];
    assert_string_equal(harpe_format_digits(text, 16460, 4), "16460");
    assert_string_equal(harpe_format_digits(text, 1e6, 3), "1000000");
    assert_string_equal(harpe_format_digits(text, 1.5, 4), "1.5");
    assert_string_equal(harpe_format_digits(text, 812.345, 4), "812.3");
    assert_string_equal(harpe_format_digits(text, 0.00005, 4), "0.00005");
    assert_string_equal(harpe_format_digits(text, 1e-9, 9), "0.000000001");
    assert_string_equal(harpe_format_digits(text, 0, 4), "0");
    assert_string_equal(harpe_format_digits(text, -3.25, 2), "-3.3");
    assert_string_equal(harpe_format_fixed(text, 1e12, 9), "1000000000000.00000");
    for (double value = 1e-9; value < 1e17; value *= 1.7) {
        for (int digits = 1; digits <= 9; digits++)
            assert_null(strpbrk(harpe_format_digits(text, value, digits), "eE"));
        assert_null(strpbrk(harpe_format_time(text, value), "eE"));
        assert_null(strpbrk(harpe_format_energy(text, value), "eE"));
        assert_null(strpbrk(harpe_format_power(text, value), "eE"));
    }
}

TEST(foreign_bytes_become_harmless) {
    char text[64];
    assert_string_equal(harpe_clean_text(text, sizeof text, NULL), "");
    assert_string_equal(harpe_clean_text(text, sizeof text,
                                         "a\tb\x01"
                                         "c"),
                        "a b c");
    assert_string_equal(harpe_clean_text(text, sizeof text, "\xff\xc3&\xc3\xa9"), "??&\xc3\xa9");
    /* overlong, surrogate, beyond Unicode, truncated */
    assert_string_equal(harpe_clean_text(text, sizeof text, "\xc0\x80"), "??");
    assert_string_equal(harpe_clean_text(text, sizeof text, "\xed\xa0\x80"), "???");
    assert_string_equal(harpe_clean_text(text, sizeof text, "\xf4\x90\x80\x80"), "????");
    assert_string_equal(harpe_clean_text(text, sizeof text, "x\xe2\x82"), "x??");
}

/* An independent implementation of UTF-8: encodes every code point and compares the bytes. */
static size_t encode(uint32_t code, char *to) {
    if (code < 0x80) return to[0] = (char)code, 1;
    if (code < 0x800)
        return to[0] = (char)(0xc0 | code >> 6), to[1] = (char)(0x80 | (code & 0x3f)), 2;
    if (code < 0x10000)
        return to[0] = (char)(0xe0 | code >> 12), to[1] = (char)(0x80 | (code >> 6 & 0x3f)),
               to[2] = (char)(0x80 | (code & 0x3f)), 3;
    return to[0] = (char)(0xf0 | code >> 18), to[1] = (char)(0x80 | (code >> 12 & 0x3f)),
           to[2] = (char)(0x80 | (code >> 6 & 0x3f)), to[3] = (char)(0x80 | (code & 0x3f)), 4;
}

/* Characters that control a terminal or change the order of a line. */
static bool is_harmful(uint32_t code) {
    static const uint32_t ranges[][2] = {{0, 0x1f},        {0x7f, 0x9f},      {0x61c, 0x61c},
                                         {0x200e, 0x200f}, {0x2028, 0x202e},  {0x2066, 0x2069},
                                         {0xd800, 0xdfff}, {0xfeff, 0xfeff},  {0xfff9, 0xfffb},
                                         {0xfffe, 0xffff}, {0xe0000, 0xe007f}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (code >= ranges[i][0] && code <= ranges[i][1]) return true;
    return (code & 0xfffe) == 0xfffe;
}

TEST(no_harmful_character_passes_and_no_other_is_lost) {
    for (uint32_t code = 1; code <= 0x10ffff; code++) {
        char in[8] = "a", out[16], same[8];
        size_t length = encode(code, in + 1);
        strcpy(in + 1 + length, "b");
        strcpy(same, in);
        harpe_clean_in_place(same);
        harpe_clean_text(out, sizeof out, in);
        if (is_harmful(code)) {
            assert_int_equal(same[0], 'a');
            assert_non_null(strpbrk(same + 1, "?"));
            assert_int_equal(strspn(same + 1, "?") + 2, strlen(same));
            assert_int_equal(strspn(out + 1, "? ") + 2, strlen(out));
        } else {
            assert_string_equal(same, in);
            assert_string_equal(out, in);
        }
    }
}

TEST(no_bytes_make_a_harmful_character) {
    static const char *const overlong[] = {
        "\xc0\x9b", "\xe0\x82\x9b",         "\xf0\x80\x82\x9b", "\xe0\x80\x9b",
        "\xc1\x9b", "\xf8\x80\x80\x80\x9b", "\xf0\x82\x80\xae"};
    char text[64], out[64];
    for (size_t i = 0; i < sizeof overlong / sizeof overlong[0]; i++) {
        strcpy(text, overlong[i]);
        harpe_clean_in_place(text);
        assert_int_equal(strspn(text, "?"), strlen(overlong[i]));
    }
    uint32_t seed = 12345;
    for (int round = 0; round < 200000; round++) {
        /* Makes bytes with a special meaning frequent. */
        static const char bytes[] = "\xc2\x9b\x9d\x80\xe2\xae\x1b]\xf0\xc0\x90\xef\xbb\xbfx";
        size_t length = 0;
        for (; length < 12; length++) {
            seed = seed * 1664525 + 1013904223;
            text[length] = bytes[seed >> 16 & 7 ? (seed >> 20) % (sizeof bytes - 1) : 0];
        }
        text[length] = '\0';
        harpe_clean_text(out, sizeof out, text);
        harpe_clean_in_place(text);
        for (int which = 0; which < 2; which++) {
            const char *cleaned = which ? out : text;
            size_t step;
            for (; *cleaned; cleaned += step) {
                int32_t code = harpe_character(cleaned, &step);
                assert_true(code >= 0);
                assert_false(is_harmful((uint32_t)code));
            }
        }
    }
}

TEST(an_error_message_is_safe_to_print) {
    harpe_fail(&failure, HARPE_INVALID_INPUT, "a %s b",
               "\x1b[2J\xc2\x9b"
               "2J\xc2\x9d"
               "0;x\x07\x9b\xe2\x80\xae\xc3\xa9");
    assert_string_equal(failure.message, "a ?[2J?2J?0;x???\xc3\xa9 b");
}

TEST(long_text_is_cut_between_characters) {
    char text[8];
    assert_string_equal(harpe_clean_text(text, sizeof text, "1234567"), "1234567");
    assert_string_equal(harpe_clean_text(text, sizeof text, "12345678"), "1234\xe2\x80\xa6");
    assert_string_equal(harpe_clean_text(text, sizeof text, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"),
                        "\xc3\xa9\xc3\xa9\xe2\x80\xa6");
}

TEST(ticks_are_round_and_inside) {
    static const double ranges[][2] = {{2.8, 3.5},   {0, 1},       {-7, 3},       {8000, 9100},
                                       {1e-6, 3e-6}, {1e12, 3e12}, {4.33, 4.3301}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        double low = ranges[i][0];
        double high = ranges[i][1];
        harpe_ticks ticks = harpe_ticks_make(low, high, 6);
        assert_in_range(ticks.count, 2, 13);
        double lead = ticks.step / pow(10.0, floor(log10(ticks.step) + 1e-9));
        assert_true(fabs(lead - 1) < 1e-6 || fabs(lead - 2) < 1e-6 || fabs(lead - 5) < 1e-6);
        double slack = (high - low) * 1e-6;
        assert_true(harpe_tick_at(&ticks, 0) >= low - slack);
        assert_true(harpe_tick_at(&ticks, ticks.count - 1) <= high + slack);
    }
}

TEST(ticks_of_an_empty_range_are_none) {
    assert_int_equal(harpe_ticks_make(1.0, 1.0, 5).count, 0);
    assert_int_equal(harpe_ticks_make(2.0, 1.0, 5).count, 0);
    assert_int_equal(harpe_ticks_make(0.0, INFINITY, 5).count, 0);
    assert_in_range(harpe_ticks_make(0.0, 1.0, 0).count, 1, 50);
}

TEST(padding_opens_an_empty_range) {
    harpe_range range = {0};
    harpe_range_add(&range, 5.0);
    harpe_range_pad(&range, 0.1);
    assert_true(range.low < 5.0 && range.high > 5.0);
    harpe_range zero = {0};
    harpe_range_add(&zero, 0.0);
    harpe_range_pad(&zero, 0.1);
    assert_true(zero.low < 0.0 && zero.high > 0.0);
}

TEST(labels_do_not_overlap) {
    harpe_label_field field = {.bounds = {0, 0, 600, 400}};
    AT_END(harpe_text_free) harpe_text out = {0};
    harpe_svg svg = harpe_svg_begin(&out, true, 600.0, 400.0, "labels");
    harpe_text_style style = {.size = 10.0};
    size_t drawn[2];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < (round == 0 ? 6 : 100); i++)
            harpe_draw_label(&svg, &field, (harpe_xy){300.0, 200.0}, &style, "a label", NULL,
                             false);
        drawn[round] = field.taken_count;
    }
    assert_int_equal(drawn[0], 6);
    assert_in_range(drawn[1], 7, 60); /* and then there is no room */
    for (size_t i = 0; i < field.taken_count; i++)
        for (size_t k = 0; k < i; k++) {
            const harpe_area *a = &field.taken[i], *b = &field.taken[k];
            assert_true(a->right <= b->left || b->right <= a->left || a->bottom <= b->top ||
                        b->bottom <= a->top);
        }
    harpe_draw_label(&svg, &field, (harpe_xy){300.0, 200.0}, &style, "needed", NULL, true);
    assert_int_equal(field.taken_count, drawn[1] + 1);
    assert_works(harpe_svg_end(&svg, &failure));
    assert_non_null(strstr(out.data, ">needed</text>"));
    free(field.taken);
}

TEST(widths_grow_with_the_text) {
    harpe_text_style plain = {.size = 10.0}, bold = {.size = 10.0, .bold = true};
    assert_true(harpe_text_width(&plain, "") == 0.0);
    assert_true(fabs(harpe_text_width(&plain, "i") - 2.8) < 0.01);
    assert_true(fabs(harpe_text_width(&plain, "Wait ~") - 34.3) < 0.01);
    assert_true(harpe_text_width(&bold, "Wait") > harpe_text_width(&plain, "Wait"));
    assert_true(harpe_text_width(&plain, "\xe2\x88\x92") == harpe_text_width(&plain, "\xc3\x97"));
}

static double luma(uint32_t rgb) {
    return 0.2126 * (double)(rgb >> 16 & 255) + 0.7152 * (double)(rgb >> 8 & 255) +
           0.0722 * (double)(rgb & 255);
}

TEST(heat_darkens_steadily) {
    for (int i = 0; i < 100; i++)
        assert_true(luma(harpe_heat_rgb(i / 100.0)) > luma(harpe_heat_rgb((i + 1) / 100.0)) - 0.3);
    assert_true(luma(harpe_heat_rgb(0.0)) > luma(harpe_heat_rgb(1.0)) + 120.0);
    assert_int_equal(harpe_heat_rgb(-3.0), harpe_heat_rgb(0.0));
    assert_int_equal(harpe_heat_rgb(7.0), harpe_heat_rgb(1.0));
    assert_int_equal(harpe_heat_rgb((double)NAN), harpe_heat_rgb(0.0));
}

static double contrast(uint32_t a, uint32_t b) {
    double channels[2] = {0, 0};
    uint32_t colors[2] = {a, b};
    static const double weights[3] = {0.2126, 0.7152, 0.0722};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++) {
            double value = (double)(colors[i] >> (16 - 8 * k) & 255) / 255.0;
            channels[i] +=
                weights[k] * (value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4));
        }
    }
    return (fmax(channels[0], channels[1]) + 0.05) / (fmin(channels[0], channels[1]) + 0.05);
}

TEST(text_is_readable_on_everything) {
    for (int i = 0; i <= 100; i++) {
        uint32_t heat = harpe_heat_rgb(i / 100.0);
        assert_true(contrast(heat, harpe_contrast_rgb(heat)) >= 4.5);
    }
    for (int dark = 0; dark < 2; dark++) {
        uint32_t paper = harpe_ink_rgb(HARPE_INK_PAPER, dark);
        assert_true(contrast(paper, harpe_ink_rgb(HARPE_INK_TEXT, dark)) >= 7.0);
        assert_true(contrast(paper, harpe_ink_rgb(HARPE_INK_MUTED, dark)) >= 4.5);
        assert_true(contrast(paper, harpe_ink_rgb(HARPE_INK_BLUE, dark)) >= 4.5);
    }
}
