/* SPDX-License-Identifier: Apache-2.0 */
/* Files of effects: what is read, what is refused and with which message, and that the manual page
 * lists the same keys as the reader. */
#include "one_gpu.h"

#include <math.h>

#include "base/file.h"
#include "effects.h"

static bool parse(const char *text, emulator_effects *out, char *problem, size_t size) {
    return emulator_effects_parse(text, strlen(text), "f.json", model_of("A100"), out, problem,
                                  size);
}

static emulator_effects must_parse(const char *text) {
    emulator_effects out;
    char problem[512] = "";
    bool is_read = parse(text, &out, problem, sizeof problem);
    if (!is_read) print_error("%s\n", problem);
    assert_true(is_read);
    return out;
}

TEST(a_file_replaces_single_effects) {
    emulator_effects ideal = ideal_effects(), real;
    emulator_effects_real(model_of("A100"), &real);
    emulator_effects read = must_parse("{}");
    assert_memory_equal(&read, &ideal, sizeof read);
    read = must_parse("{\"base\": \"ideal\"}");
    assert_memory_equal(&read, &ideal, sizeof read);
    read = must_parse("{\"base\": \"real\"}");
    assert_memory_equal(&read, &real, sizeof read);
    read = must_parse("{\"switch_latency_s\": 0.1, \"base\": \"real\", \"jitter\": 0}");
    assert_int_equal(read.latency_count, 1);
    assert_true(read.latency[0].latency_s == 0.1);
    assert_true(read.jitter == 0);
    assert_true(read.variability == real.variability);
    assert_true(must_parse("{\"counter_scope\": \"gpu\"}").counts_gpu);
    assert_false(must_parse("{\"counter_scope\": \"model\"}").counts_gpu);
    read = must_parse("{\"base\": \"real\", \"switch_latency_s\": 0}");
    assert_int_equal(read.latency_count, 0);
}

TEST(a_table_is_sorted_by_clock) {
    emulator_effects read =
        must_parse("{\"switch_latency_s\": {\"1410\": 0.005, \"210\": 2e-2, \"900\": 0}}");
    assert_int_equal(read.latency_count, 3);
    assert_true(read.latency[0].clock_mhz == 210 && read.latency[0].latency_s == 0.02);
    assert_true(read.latency[1].clock_mhz == 900 && read.latency[1].latency_s == 0);
    assert_true(read.latency[2].clock_mhz == 1410 && read.latency[2].latency_s == 0.005);
}

TEST(a_tail_has_a_share_and_a_factor) {
    emulator_effects read =
        must_parse("{\"switch_tail\": {\"factor\": 5, \"share\": 0.25}, \"outliers\": "
                   "{\"share\": 1, \"factor\": 1}}");
    assert_true(read.switch_tail.share == 0.25 && read.switch_tail.factor == 5);
    assert_true(read.outliers.share == 1);
}

TEST(mistakes_are_refused_in_one_line) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "not JSON"},
        {"{", "not JSON"},
        {"{\"jitter\": 0.1,}", "not JSON"},
        {"[]", "expected a JSON object"},
        {"3", "expected a JSON object"},
        {"{\"jiter\": 0.1}", "'jiter' is not an effect"},
        {"{\"\": 0.1}", "'' is not an effect"},
        {"{\"ji\\ntter\": 0.1}", "'ji?tter' is not an effect"},
        {"{\"seed\": 1}", "'seed' is not an effect"},
        {"{\"power_factor\": 1}", "'power_factor' is not an effect"},
        {"{\"jitter\": 0.1, \"jitter\": 0.2}", "jitter: expected the key only once"},
        {"{\"base\": \"real\", \"base\": \"real\"}", "base: expected the key only once"},
        {"{\"base\": \"REAL\"}", "base: expected \"ideal\" or \"real\""},
        {"{\"base\": 1}", "base: expected \"ideal\" or \"real\""},
        {"{\"jitter\": \"0.1\"}", "jitter: expected a number from 0 to 0.5"},
        {"{\"jitter\": null}", "jitter: expected a number"},
        {"{\"jitter\": true}", "jitter: expected a number"},
        {"{\"jitter\": -0.1}", "jitter: expected a number"},
        {"{\"jitter\": 0.51}", "jitter: expected a number"},
        {"{\"jitter\": NaN}", "jitter: expected a number"},
        {"{\"drift_per_k\": -0.02}", "drift_per_k: expected a number from -0.01 to 0.01"},
        {"{\"switch_call_s\": 1e999}", "switch_call_s: expected a number from 0 to 10"},
        {"{\"throttle_period_s\": 0}", "throttle_period_s: expected a number from 0.001 to 10"},
        {"{\"counter_scope\": \"module\"}", "counter_scope: expected \"model\" or \"gpu\""},
        {"{\"counter_scope\": true}", "counter_scope: expected"},
        {"{\"switch_latency_s\": -1}", "switch_latency_s: expected"},
        {"{\"switch_latency_s\": []}", "switch_latency_s: expected"},
        {"{\"switch_latency_s\": {}}", "switch_latency_s: expected"},
        {"{\"switch_latency_s\": {\"x\": 1}}", "switch_latency_s: expected"},
        {"{\"switch_latency_s\": {\"0\": 1}}", "switch_latency_s: expected"},
        {"{\"switch_latency_s\": {\"210\": 11}}", "switch_latency_s: expected"},
        {"{\"switch_latency_s\": {\"210\": 1, \"210\": 1}}", "switch_latency_s: expected"},
        {"{\"switch_tail\": 0.1}", "switch_tail: expected an object"},
        {"{\"switch_tail\": {\"share\": 0.1}}", "switch_tail: expected an object"},
        {"{\"switch_tail\": {\"share\": 2, \"factor\": 2}}", "switch_tail: expected an object"},
        {"{\"switch_tail\": {\"share\": 0, \"factor\": 0.5}}", "switch_tail: expected an object"},
        {"{\"switch_tail\": {\"share\": 0, \"factor\": 2, \"x\": 1}}", "switch_tail: expected"},
        {"{\"switch_tail\": {\"share\": 0, \"share\": 0}}", "switch_tail: expected an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        emulator_effects out, before;
        char problem[512] = "";
        memset(&out, 0x5a, sizeof out);
        before = out;
        bool is_read = parse(cases[i].text, &out, problem, sizeof problem);
        if (is_read || !strstr(problem, cases[i].says))
            print_error("%s: '%s'\n", cases[i].text, problem);
        assert_false(is_read);
        assert_non_null(strstr(problem, cases[i].says));
        assert_memory_equal(problem, "f.json: ", 8);
        assert_null(strchr(problem, '\n'));
        assert_memory_equal(&out, &before, sizeof out);
    }
}

TEST(too_many_clocks_are_refused) {
    for (int count = EMULATOR_LATENCY_MAX; count <= EMULATOR_LATENCY_MAX + 1; count++) {
        char text[4096] = "{\"switch_latency_s\": {", problem[512];
        for (int i = 0; i < count; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s\"%d\": 0.1", i ? "," : "",
                     300 + i);
        strcat(text, "}}");
        emulator_effects out;
        assert_int_equal(parse(text, &out, problem, sizeof problem), count == EMULATOR_LATENCY_MAX);
    }
}

TEST(names_and_files_have_identities) {
    emulator_effects out;
    uint64_t ideal, real, missing;
    char problem[512];
    assert_true(
        emulator_effects_read("ideal", model_of("A100"), &out, &ideal, problem, sizeof problem));
    assert_int_equal(out.latency_count, 0);
    assert_true(
        emulator_effects_read("real", model_of("A100"), &out, &real, problem, sizeof problem));
    assert_true(out.latency_count > 0);
    assert_true(ideal != real);
    assert_false(emulator_effects_read("/no/such/file", model_of("A100"), &out, &missing, problem,
                                       sizeof problem));
    assert_non_null(strstr(problem, "ideal, real, or a file of effects: /no/such/file"));
}

/* ---- Every model ----------------------------------------------------------------------------- */

TEST(real_has_every_kind_of_effect_for_every_model) {
    const emulator_model *model;
    for (unsigned int i = 0; (model = emulator_model_at(i)); i++) {
        emulator_effects real;
        emulator_effects_real(model, &real);
        assert_true(real.switch_call_s > 0 && real.latency_count > 1 && real.switch_tail.share > 0);
        assert_true(real.latency[0].clock_mhz <= model->base_half_mhz / 2.0);
        for (uint32_t k = 0; k < real.latency_count; k++)
            assert_true(real.latency[k].latency_s > 0.001 && real.latency[k].latency_s < 0.5);
        for (uint32_t k = 1; k < real.latency_count; k++)
            assert_true(real.latency[k - 1].clock_mhz < real.latency[k].clock_mhz);
        assert_true(real.variability > 0 && real.jitter > 0 && real.leakage_per_k > 0);
        assert_true(real.drift_per_k > 0 && real.thermal_limit_c > 0);
        assert_true(real.lock_ignored == 0 && real.power_cap_w == 0);
    }
}

/* ---- The document ---------------------------------------------------------------------------- */

static char *read_section(void) {
    owned_array char *text;
    size_t length;
    assert_int_equal(harpe_file_read(HARPE_SOURCE_DIR "/docs/man/harpe-emulate.1.scd", 1U << 20,
                                     &text, &length, NULL),
                     0);
    char *from = strstr(text, "\n# EFFECTS OF REAL GPUS\n");
    assert_non_null(from);
    char *to = strstr(from + 1, "\n# ");
    assert_non_null(to);
    *to = '\0';
    char *section = strdup(from);
    return section;
}

static bool is_key(const char *name, size_t length) {
    const char *key;
    for (size_t i = 0; (key = emulator_effect_key(i)); i++)
        if (strlen(key) == length && memcmp(key, name, length) == 0) return true;
    return false;
}

/* Each key has an entry in the manual page, and each entry there has a key. */
TEST(the_document_lists_every_key_once) {
    owned_array char *section = read_section();
    const char *key;
    for (size_t i = 0; (key = emulator_effect_key(i)); i++) {
        char entry[64];
        int entries = 0;
        snprintf(entry, sizeof entry, "\n*%s*\n", key);
        for (const char *at = section; (at = strstr(at, entry)); at++)
            entries++;
        if (entries != 1) print_error("%s: %d entries in the manual page\n", key, entries);
        assert_int_equal(entries, 1);
    }
    for (const char *at = section; (at = strstr(at, "\n*")); at++) {
        size_t length = strcspn(at + 2, "*");
        if (!is_key(at + 2, length))
            print_error("manual page: %.*s is not a key\n", (int)length, at + 2);
        assert_true(is_key(at + 2, length));
    }
}
