/* SPDX-License-Identifier: Apache-2.0 */
/* The laws of measured workloads: how time and power depend on the clock, the floor of the time,
 * the power limit, and the errors against the measurements where these are at hand. */
#include "one_gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "workloads.h"

#define START_NS INT64_C(1000000000)
#define SLOWER_HOST 1.27 /* bench/workload_laws.py */
enum { WORKLOADS = 20 };

/* A GPU that begins an iteration. */
static void start(gpu *g, const char *key, unsigned int workload) {
    make_gpu(g, model_of(key));
    emulator_state_start(&g->state, &g->chip, START_NS);
    g->state.work[0] =
        (emulator_work){.id = 1, .workload = workload + 1, .stretch = 1, .remaining = 1};
}

/* ---- The laws -------------------------------------------------------------------------------- */

TEST(names_are_found) {
    for (unsigned int i = 0; i < WORKLOADS; i++)
        assert_int_equal(emulator_workload_find(emulator_workload_at(i)->name), (int)i);
    assert_null(emulator_workload_at(WORKLOADS));
    assert_int_equal(emulator_workload_find("gpt2"), -1);
    assert_int_equal(emulator_workload_find(""), -1);
}

static void assert_laws(const emulator_workload *workload, const emulator_model *model) {
    double floor_s = 1e-3 * workload->floor_ms / model->host_speed;
    emulator_iteration above = {.time_s = 0};
    for (unsigned int i = 0; i < emulator_clock_count(model); i++) {
        double mhz = emulator_clock_mhz(model, i);
        emulator_iteration at = emulator_workload_iterate(workload, model, mhz, 1);
        assert_true(at.time_s >= floor_s && at.time_s >= above.time_s);
        assert_true(at.activity > 0 && at.activity <= 1);
        assert_true(at.activity == 1 || at.time_s == floor_s);
        double busy_w = model->workload_power *
                        (workload->static_w + workload->dynamic_w * emulator_switching(model, mhz));
        double idle_w = emulator_model_idle_w(model, mhz);
        assert_true(at.power_w <= fmax(busy_w, idle_w) + 1e-9);
        assert_true(at.power_w >= fmin(busy_w, idle_w) - 1e-9);
        if (i > 0 && floor_s <= 0) assert_true(at.power_w < above.power_w);
        above = at;
    }
}

TEST(lower_clocks_are_slower_down_to_the_floor) {
    for (unsigned int m = 0; emulator_model_at(m); m++)
        for (unsigned int i = 0; i < WORKLOADS; i++)
            assert_laws(emulator_workload_at(i), emulator_model_at(m));
}

TEST(a_slow_host_leaves_the_gpu_cool) {
    const emulator_model *model = model_of("A100-PCIe");
    const emulator_workload *small =
        emulator_workload_at((unsigned int)emulator_workload_find("gpt2-bf16-b8-s128"));
    const emulator_workload *large =
        emulator_workload_at((unsigned int)emulator_workload_find("gpt2-bf16-b32-s512"));
    emulator_iteration high = emulator_workload_iterate(small, model, 1410, 1);
    emulator_iteration low = emulator_workload_iterate(small, model, 810, 1);
    assert_true(high.time_s == low.time_s);
    assert_true(low.power_w < 0.7 * high.power_w);
    assert_true(high.power_w < 0.5 * emulator_workload_iterate(large, model, 1410, 1).power_w);
}

/* At the same share of the highest clock. The factors are those of bench/workload_laws.py. */
TEST(an_h100_is_faster_with_a_faster_host) {
    const emulator_model *a100 = model_of("A100-PCIe"), *h100 = model_of("H100");
    for (unsigned int i = 0; i < WORKLOADS; i++) {
        const emulator_workload *workload = emulator_workload_at(i);
        double a100_s = emulator_workload_iterate(workload, a100, 0.5 * 1410, 1).time_s;
        double h100_s = emulator_workload_iterate(workload, h100, 0.5 * 1980, 1).time_s;
        if (workload->floor_ms <= 0)
            assert_true(fabs(a100_s / h100_s / 2.27 - 1) < 1e-9);
        else
            assert_true(a100_s / h100_s >= 1.87 - 1e-9 && a100_s / h100_s <= 2.27 + 1e-9);
        double slow_memory_s = emulator_workload_iterate(workload, h100, 0.2 * 1980, 0.5).time_s;
        double memory_s =
            slow_memory_s - emulator_workload_iterate(workload, h100, 0.2 * 1980, 1).time_s;
        if (workload->floor_ms <= 0)
            assert_true(fabs(memory_s * 2.27e3 / workload->rest_ms - 1) < 1e-9);
    }
}

/* ---- In the emulator ------------------------------------------------------------------------- */

/* At the lowest clock nothing can lower the power further. */
TEST(power_stays_below_the_limit) {
    static const char *const keys[] = {"A100-PCIe", "A100", "H100", "V100"};
    gpu g;
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        for (unsigned int i = 0; i < WORKLOADS; i++) {
            start(&g, keys[k], i);
            const emulator_model *model = g.chip.model;
            for (uint32_t mw = model->limit_minimum_mw; mw <= model->limit_maximum_mw;
                 mw += 25000) {
                g.state.power_limit_mw = mw;
                emulator_operation operation = operate(&g);
                bool is_lowest = operation.work_mhz == model->base_half_mhz / 2;
                assert_true(is_lowest || operation.power_w <= model->limit_share * mw / 1000);
                if (!operation.is_power_capped) continue;
                uint32_t above_mhz = operation.work_mhz + model->step_half_mhz / 2;
                assert_true(emulator_workload_iterate(emulator_workload_at(i), model, above_mhz, 1)
                                .power_w > model->limit_share * mw / 1000 - 1);
            }
        }
    }
}

/* Measured: 134.7 ms and 241 W at 1134 MHz, because of the limit of 250 W. */
TEST(a_large_workload_is_at_the_limit) {
    gpu g;
    start(&g, "A100-PCIe", (unsigned int)emulator_workload_find("bert-large-bf16-b32-s512"));
    emulator_operation operation = operate(&g);
    assert_true(operation.is_power_capped);
    assert_true(operation.work_mhz >= 1110 && operation.work_mhz <= 1140);
    emulator_advance(&g.state, &g.chip, START_NS + 1000000000);
    double time_s = 1e-9 * (double)(g.state.work[0].finished_ns - START_NS);
    assert_true(fabs(time_s / 0.1347 - 1) < 0.01);
    assert_true(fabs(operation.power_w / 241 - 1) < 0.02);
}

TEST(an_iteration_takes_its_time_and_energy) {
    gpu g;
    for (unsigned int i = 0; i < WORKLOADS; i++) {
        start(&g, "A100-PCIe", i);
        g.state.graphics_lock = (emulator_clock_range){.maximum_mhz = 690};
        g.state.work[0].stretch = 1.5;
        emulator_iteration expected =
            emulator_workload_iterate(emulator_workload_at(i), g.chip.model, 690, 1);
        double time_s = 1.5 * expected.time_s;
        emulator_advance(&g.state, &g.chip, START_NS + (int64_t)(time_s * 0.5e9));
        emulator_advance(&g.state, &g.chip, START_NS + llround(time_s * 1e9));
        assert_true(g.state.work[0].is_done);
        assert_true(fabs(g.state.energy_mj * 1e-3 / (time_s * expected.power_w) - 1) < 1e-6);
        assert_true(fabs(g.state.busy_s / (time_s * expected.activity) - 1) < 1e-6);
    }
}

/* ---- The measurements ------------------------------------------------------------------------ */

/* Returns the workload of a file name of the artifact. */
static const emulator_workload *workload_of(const char *file) {
    static const struct {
        const char *theirs, *ours;
    } models[] = {{"gpt2model_gpt2_", "gpt2"},
                  {"bertmodel_large_", "bert-large"},
                  {"optmodel_opt-1p3b_", "opt-1.3b"},
                  {"qwen2model_qwen2-1p5b_", "qwen2-1.5b"}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        size_t length = strlen(models[i].theirs);
        if (strncmp(file, models[i].theirs, length) != 0) continue;
        char precision[8], name[64];
        int batch, sequence;
        if (sscanf(file + length, "p%7[^_]_b%d_s%d_", precision, &batch, &sequence) != 3) break;
        snprintf(name, sizeof name, "%s-%s-b%d-s%d", models[i].ours, precision, batch, sequence);
        int index = emulator_workload_find(name);
        return index < 0 ? NULL : emulator_workload_at((unsigned int)index);
    }
    return NULL;
}

/* Returns the iteration on the host that is nearer to the measured time. */
static emulator_iteration nearer(const emulator_workload *workload, const emulator_model *model,
                                 double mhz, double measured_s) {
    emulator_iteration at = emulator_workload_iterate(workload, model, mhz, 1), other = at;
    other.time_s = fmax(SLOWER_HOST * 1e-3 * workload->floor_ms, at.activity * at.time_s);
    other.power_w =
        (at.power_w * at.time_s + (other.time_s - at.time_s) * emulator_model_idle_w(model, mhz)) /
        other.time_s;
    bool is_other = fabs(log(other.time_s / measured_s)) < fabs(log(at.time_s / measured_s));
    return is_other ? other : at;
}

typedef struct sum {
    double total, worst;
    int count;
} sum;

static void add(sum *to, double error) {
    to->total += error;
    to->worst = fmax(to->worst, error);
    to->count++;
}

/* Opens a file of the measurements. Skips the test if it does not exist. */
static FILE *open_data(const char *name) {
    const char *folder = getenv("HARPE_DATA");
    char path[1024];
    snprintf(path, sizeof path, "%s/workloads/%s",
             folder ? folder : HARPE_SOURCE_DIR "/../shared/data", name);
    FILE *data = fopen(path, "re");
    if (!data) skip_because("data: no measured workloads: %s", path);
    return data;
}

/* The measurements of this workload contradict the others; see docs/emulator.md. */
static bool is_odd(const emulator_workload *workload) {
    return strcmp(workload->name, "qwen2-1.5b-bf16-b8-s4096") == 0;
}

/* Errors of docs/emulator.md. */
TEST(laws_fit_the_measurements) {
    char line[512], file[256];
    FILE *data = open_data("energaizer_dvfs.csv");
    sum time = {0}, power = {0}, odd_time = {0}, odd_power = {0};
    while (fgets(line, sizeof line, data)) {
        double energy_j, time_ms, mhz;
        if (sscanf(line, "%255[^,],%lf,%lf,%lf,", file, &energy_j, &time_ms, &mhz) != 4) continue;
        const emulator_workload *workload = workload_of(file);
        assert_non_null(workload);
        bool odd = is_odd(workload);
        emulator_iteration at = nearer(workload, model_of("A100-PCIe"), mhz, time_ms * 1e-3);
        add(odd ? &odd_time : &time, fabs(at.time_s / (time_ms * 1e-3) - 1));
        add(odd ? &odd_power : &power, fabs(at.power_w / (energy_j / time_ms * 1e3) - 1));
    }
    fclose(data);
    assert_int_equal(time.count + odd_time.count, 217);
    assert_true(time.total / time.count < 0.006 && time.worst < 0.05);
    assert_true(power.total / power.count < 0.011 && power.worst < 0.08);
    assert_true(odd_time.worst < 0.06 && odd_power.worst < 0.15);
}

/* The H100 was measured at 1830 MHz. */
TEST(laws_fit_the_measurements_of_an_h100) {
    char line[512], file[256];
    FILE *data = open_data("energaizer_h100.csv");
    sum time = {0}, power = {0};
    while (fgets(line, sizeof line, data)) {
        double energy_j, time_ms, mhz;
        if (sscanf(line, "%255[^,],%lf,%lf,%lf,", file, &energy_j, &time_ms, &mhz) != 4) continue;
        const emulator_workload *workload = workload_of(file);
        if (!workload || is_odd(workload)) continue;
        emulator_iteration at = emulator_workload_iterate(workload, model_of("H100"), mhz, 1);
        add(&time, fabs(log(at.time_s / (time_ms * 1e-3))));
        add(&power, fabs(log(at.power_w / (energy_j / time_ms * 1e3))));
    }
    fclose(data);
    assert_int_equal(time.count, 13);
    assert_true(time.total / time.count < 0.065 && time.worst < 0.19);
    assert_true(power.total / power.count < 0.044 && power.worst < 0.1);
}
