/* SPDX-License-Identifier: Apache-2.0 */
/* The colours of the roles, and the heat scale. The heat scale is a linear interpolation between
 * chosen colours in OKLCH (B. Ottosson, "A perceptual color space for image processing", 2020).
 * Equal steps in OKLCH look equal. */
#include "draw/palette.h"

#include <math.h>
#include <stddef.h>

static const struct {
    const char *name;
    uint32_t light;
    uint32_t dark;
} inks[HARPE_INK_COUNT] = {
    [HARPE_INK_TEXT] = {"text", 0x1b2026, 0xe9ecef},
    [HARPE_INK_MUTED] = {"muted", 0x59636e, 0xa4adb7},
    [HARPE_INK_AXIS] = {"axis", 0x98a1ab, 0x6c7680},
    [HARPE_INK_GRID] = {"grid", 0xe7e9ec, 0x2b3138},
    [HARPE_INK_PAPER] = {"paper", 0xffffff, 0x171a1f},
    [HARPE_INK_IDLE] = {"idle", 0xebedf0, 0x2a3037},
    [HARPE_INK_BLUE] = {"blue", 0x1464a8, 0x66b4f0},
    [HARPE_INK_ORANGE] = {"orange", 0xc8500a, 0xf5955a},
    [HARPE_INK_GREEN] = {"green", 0x0b8463, 0x43caa2},
    [HARPE_INK_PURPLE] = {"purple", 0x7a4da0, 0xbb94df},
    [HARPE_INK_SKY] = {"sky", 0x4aa3d8, 0x8fd0f5},
    [HARPE_INK_ROSE] = {"rose", 0xc2608c, 0xe79ac0},
    [HARPE_INK_CRITICAL] = {"critical", 0x12161b, 0xffffff},
};

uint32_t harpe_ink_rgb(harpe_ink ink, bool dark) { return dark ? inks[ink].dark : inks[ink].light; }

const char *harpe_ink_name(harpe_ink ink) { return inks[ink].name; }

static uint32_t channel(double linear) {
    if (linear <= 0.0) return 0;
    if (linear >= 1.0) return 255;
    double encoded = linear <= 0.0031308 ? 12.92 * linear : 1.055 * pow(linear, 1.0 / 2.4) - 0.055;
    return (uint32_t)lround(encoded * 255.0);
}

static uint32_t oklch_to_rgb(double lightness, double chroma, double hue_degrees) {
    double hue = hue_degrees * 3.14159265358979323846 / 180.0;
    double a = chroma * cos(hue);
    double b = chroma * sin(hue);
    double l = lightness + 0.3963377774 * a + 0.2158037573 * b;
    double m = lightness - 0.1055613458 * a - 0.0638541728 * b;
    double s = lightness - 0.0894841775 * a - 1.2914855480 * b;
    l = l * l * l;
    m = m * m * m;
    s = s * s * s;
    uint32_t red = channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s);
    uint32_t green = channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s);
    uint32_t blue = channel(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s);
    return red << 16 | green << 8 | blue;
}

uint32_t harpe_heat_rgb(double fraction) {
    /* lightness falls in equal steps; hue runs from yellow through orange to crimson */
    static const double anchors[][3] = {
        {0.945, 0.085, 100}, {0.840, 0.135, 82}, {0.735, 0.165, 60},
        {0.630, 0.185, 38},  {0.525, 0.190, 20}, {0.420, 0.165, 4},
    };
    const size_t last = sizeof anchors / sizeof anchors[0] - 1;
    if (!(fraction > 0.0)) fraction = 0.0;
    if (fraction > 1.0) fraction = 1.0;
    double place = fraction * (double)last;
    size_t index = (size_t)place;
    if (index >= last) index = last - 1;
    double t = place - (double)index;
    double mixed[3];
    for (size_t i = 0; i < 3; i++)
        mixed[i] = anchors[index][i] * (1.0 - t) + anchors[index + 1][i] * t;
    return oklch_to_rgb(mixed[0], mixed[1], mixed[2]);
}

static double linear(uint32_t encoded) {
    double value = (double)encoded / 255.0;
    return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

uint32_t harpe_contrast_rgb(uint32_t rgb) {
    double luminance = 0.2126 * linear(rgb >> 16 & 255) + 0.7152 * linear(rgb >> 8 & 255) +
                       0.0722 * linear(rgb & 255);
    /* at this luminance black and white text have the same contrast ratio as defined by WCAG 2 */
    return luminance > 0.179 ? 0x000000 : 0xffffff;
}
