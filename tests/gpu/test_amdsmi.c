/* SPDX-License-Identifier: Apache-2.0 */
/* AMD GPUs in the GPU layer, tested with a scripted AMD SMI library: units, order, the order of set
 * calls, and the choice of the vendor if there are two or none. */
#include "test.h"

#include <dlfcn.h>
#include <pthread.h>

#include <harpe/gpu.h>

#include "gpu/scripted_amdsmi.h"

#define SCRIPTED HARPE_BINARY_DIR "/tests/scripted_amdsmi.so"
#define EMULATOR HARPE_BINARY_DIR "/emulator/libnvidia-ml.so.1"

static const harpe_gpus_options amd = {.library_path = SCRIPTED};
static void *library;
static scripted_amdsmi *script;

static const char *const variables[] = {
    "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",    "CUDA_VISIBLE_DEVICES", "HARPE_NVML_LIBRARY",
    "HARPE_AMDSMI_LIBRARY", "HARPE_EMULATOR_CLUSTER", "SCRIPTED_AMDSMI_LOG",  "CUDA_DEVICE_ORDER"};

/* Resets the library to the state after loading: its GPUs are those of a new process too. */
static int load(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    library = dlopen(SCRIPTED, RTLD_NOW | RTLD_LOCAL);
    if (!library) return -1;
    script = dlsym(library, "scripted");
    return script ? 0 : -1;
}

static int unload(void **state) {
    (void)state;
    int starts = script->starts;
    uint32_t overlaps = script->overlaps;
    dlclose(library);
    return starts == 0 && overlaps == 0 ? 0 : -1;
}

static harpe_gpus *open_gpus(const harpe_gpus_options *options) {
    harpe_gpus *gpus = NULL;
    harpe_error error = {0};
    if (harpe_gpus_open(options, &gpus, &error) != HARPE_OK) fail_msg("%s", error.message);
    return gpus;
}

static void assert_sets(const char *expected) {
    assert_string_equal(script->sets, expected);
    memset(script->sets, 0, sizeof script->sets);
}

static void assert_open_fails(const harpe_gpus_options *options, const char *part) {
    harpe_gpus *gpus = NULL;
    harpe_error error = {0};
    assert_int_equal(harpe_gpus_open(options, &gpus, &error), HARPE_UNAVAILABLE);
    assert_int_equal(error.status, HARPE_UNAVAILABLE);
    assert_null(gpus);
    if (!strstr(error.message, part)) fail_msg("'%s' lacks '%s'", error.message, part);
}

/* ---- Finding --------------------------------------------------------------------------------- */

#define SCRIPTED_TEST(name) TEST_WITH(name, load, unload)
#define AMD_TEST(name) \
    static void name##_of(harpe_gpus *gpus); \
    SCRIPTED_TEST(name) { \
        harpe_gpus *gpus = open_gpus(&amd); \
        name##_of(gpus); \
        harpe_gpus_close(gpus); \
    } \
    static void name##_of(harpe_gpus *gpus)

AMD_TEST(gpus_are_in_the_order_of_hip) {
    assert_string_equal(harpe_gpus_backend_name(gpus), "amdsmi");
    assert_false(harpe_gpus_are_emulated(gpus));
    assert_int_equal(harpe_gpus_count(gpus), 3);
    static const char *const addresses[] = {"00000000:05:00.0", "00000000:C1:00.0",
                                            "00000000:D2:00.0"};
    static const int driver_indices[] = {1, 0, 2};
    for (int i = 0; i < 3; i++) {
        assert_string_equal(harpe_gpu_info_at(gpus, i)->pci_bus_id, addresses[i]);
        assert_int_equal(harpe_gpu_info_at(gpus, i)->driver_index, driver_indices[i]);
    }
    assert_string_equal(harpe_gpu_info_at(gpus, 1)->uuid, "GPU-c100000000000000");
    harpe_error error = {0};
    assert_int_equal(harpe_gpus_check_same_model(gpus, &error), HARPE_INVALID_INPUT);
    assert_non_null(strstr(error.message, "MI250X"));
    assert_non_null(strstr(error.message, "ROCR_VISIBLE_DEVICES"));
}

static void assert_visible(int count, int first_driver_index) {
    harpe_gpus *gpus = open_gpus(&amd);
    assert_int_equal(harpe_gpus_count(gpus), count);
    assert_int_equal(harpe_gpu_info_at(gpus, 0)->driver_index, first_driver_index);
    harpe_gpus_close(gpus);
}

SCRIPTED_TEST(hip_counts_among_those_that_the_runtime_shows) {
    setenv("ROCR_VISIBLE_DEVICES", "2,1", 1);
    assert_visible(2, 2);
    setenv("HIP_VISIBLE_DEVICES", "1", 1);
    assert_visible(1, 0);
    setenv("ROCR_VISIBLE_DEVICES", "GPU-c1", 1);
    setenv("HIP_VISIBLE_DEVICES", "0", 1);
    assert_visible(1, 0);
    setenv("HIP_VISIBLE_DEVICES", "1", 1);
    assert_open_fails(&amd, "HIP_VISIBLE_DEVICES='1' hides all of the machine's 1 GPUs");
}

SCRIPTED_TEST(hip_reads_cudas_variable_when_its_own_is_not_set) {
    setenv("CUDA_VISIBLE_DEVICES", "2", 1);
    assert_visible(1, 2);
    setenv("HIP_VISIBLE_DEVICES", "1,0", 1);
    assert_visible(2, 0);
}

/* ---- Reading --------------------------------------------------------------------------------- */

AMD_TEST(units_are_those_of_the_layer) {
    uint32_t one = 0;
    uint32_t other = 0;
    uint64_t energy_mj = 0;
    assert_int_equal(harpe_gpu_power_limit_range(gpus, 0, &one, &other, NULL), HARPE_OK);
    assert_int_equal(one, 0);
    assert_int_equal(other, 750000);
    assert_int_equal(harpe_gpu_power_limit(gpus, 0, &one, NULL), HARPE_OK);
    assert_int_equal(one, 750000);
    assert_int_equal(harpe_gpu_default_power_limit(gpus, 0, &one, NULL), HARPE_OK);
    assert_int_equal(one, 750000);
    assert_int_equal(harpe_gpu_instant_power(gpus, 0, &one, NULL), HARPE_OK);
    assert_int_equal(one, 433000);
    assert_int_equal(harpe_gpu_total_energy(gpus, 0, &energy_mj, NULL), HARPE_OK);
    assert_int_equal(energy_mj, 31000); /* 2e6 counts of 15.5 uJ */
    assert_int_equal(harpe_gpu_temperature(gpus, 0, &one, NULL), HARPE_OK);
    assert_int_equal(one, 63);
    assert_int_equal(harpe_gpu_current_clocks(gpus, 0, &one, &other, NULL), HARPE_OK);
    assert_int_equal(one, 1410);
    assert_int_equal(other, 1300);
    assert_sets("");
}

/* Twice the highest limit of 750 W is 1500 W; a GPU without a limit draws at most 3000 W. The
 * library itself says 0 or 65535 W for an unknown power. */
SCRIPTED_TEST(power_that_cannot_be_is_an_error) {
    const struct {
        uint32_t power_w;
        harpe_status with_limit, without_limit;
    } cases[] = {{0, HARPE_NOT_SUPPORTED, HARPE_OK}, /* the third GPU then has its average */
                 {1, HARPE_OK, HARPE_OK},
                 {1500, HARPE_OK, HARPE_OK},
                 {1501, HARPE_DRIVER_ERROR, HARPE_OK},
                 {3000, HARPE_DRIVER_ERROR, HARPE_OK},
                 {3001, HARPE_DRIVER_ERROR, HARPE_DRIVER_ERROR},
                 {65000, HARPE_DRIVER_ERROR, HARPE_DRIVER_ERROR}};
    harpe_gpus *gpus = open_gpus(&amd);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        harpe_error error = {0};
        uint32_t value = 77;
        script->power_w = cases[i].power_w + 1;
        harpe_status status = harpe_gpu_instant_power(gpus, 0, &value, &error);
        assert_int_equal(status, cases[i].with_limit);
        assert_int_equal(value, status == HARPE_OK ? cases[i].power_w * 1000 : 77);
        if (status == HARPE_DRIVER_ERROR) assert_non_null(strstr(error.message, "cannot draw"));
        assert_int_equal(harpe_gpu_instant_power(gpus, 2, &value, &error), cases[i].without_limit);
    }
    script->power_w = 0;
    harpe_gpus_close(gpus);
}

AMD_TEST(what_a_gpu_lacks_is_not_supported) {
    harpe_error error = {0};
    uint32_t value = 77;
    uint64_t wide = 77;
    bool is_enabled = true;
    assert_int_equal(harpe_gpu_power_limit(gpus, 2, &value, &error), HARPE_NOT_SUPPORTED);
    assert_non_null(strstr(error.message, "AMDSMI_STATUS_NOT_SUPPORTED (2)"));
    assert_int_equal(harpe_gpu_total_energy(gpus, 2, &wide, NULL), HARPE_NOT_SUPPORTED);
    assert_int_equal(harpe_gpu_average_power(gpus, 0, &value, NULL), HARPE_NOT_SUPPORTED);
    assert_int_equal(harpe_gpu_throttle_reasons(gpus, 0, &wide, NULL), HARPE_NOT_SUPPORTED);
    assert_int_equal(harpe_gpu_persistence_mode(gpus, 0, &is_enabled, NULL), HARPE_NOT_SUPPORTED);
    assert_int_equal(value, 77);
    assert_int_equal(wide, 77);
    assert_int_equal(harpe_gpu_instant_power(gpus, 2, &value, NULL), HARPE_OK);
    assert_int_equal(value, 90000); /* it has only the average */
    assert_int_equal(harpe_gpu_temperature(gpus, 2, &value, NULL), HARPE_OK);
    assert_int_equal(value, 41);
}

AMD_TEST(a_range_of_clocks_is_listed_in_steps) {
    uint32_t *clocks = NULL;
    size_t count = 0;
    assert_int_equal(harpe_gpu_memory_clocks(gpus, 0, &clocks, &count, NULL), HARPE_OK);
    assert_int_equal(count, 3); /* without deep sleep */
    assert_int_equal(clocks[0], 1300);
    assert_int_equal(clocks[2], 900);
    free(clocks);
    assert_int_equal(harpe_gpu_graphics_clocks(gpus, 0, 1300, &clocks, &count, NULL), HARPE_OK);
    assert_int_equal(count, 80);
    assert_int_equal(clocks[0], 2100);
    assert_int_equal(clocks[1], 2075);
    assert_int_equal(clocks[78], 150);
    assert_int_equal(clocks[79], 132);
    free(clocks);
    script->has_levels = true;
    assert_int_equal(harpe_gpu_graphics_clocks(gpus, 0, 1300, &clocks, &count, NULL), HARPE_OK);
    assert_int_equal(count, 5);
    assert_int_equal(clocks[0], 1700);
    assert_int_equal(clocks[4], 300);
    free(clocks);
}

/* ---- Setting --------------------------------------------------------------------------------- */

AMD_TEST(a_power_limit_is_written_in_microwatts_and_put_back) {
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 1, 600000, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 1, 600000, NULL), HARPE_OK);
    assert_sets("0 cap 0 600000000\n");
    harpe_error error = {0};
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 1, 900000, &error), HARPE_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "its range is 0 to 750 W"));
    assert_sets("0 cap 0 900000000\n");
    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_OK);
    assert_sets("0 cap 0 750000000\n");
}

AMD_TEST(a_power_limit_that_is_ignored_is_an_error) {
    harpe_error error = {0};
    script->ignores_caps = true;
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 1, 600000, &error), HARPE_DRIVER_ERROR);
    assert_non_null(strstr(error.message, "600 W, but the limit is 750 W"));
    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_OK);
    assert_sets("0 cap 0 600000000\n0 cap 0 750000000\n");
}

AMD_TEST(the_minimum_never_exceeds_the_maximum) {
    /* The earlier setting is not known, so it is reset first. */
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 1000, 1000, NULL), HARPE_OK);
    assert_sets("1 level 0\n1 graphics min 1000\n1 graphics max 1000\n");
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 1500, 1600, NULL), HARPE_OK);
    assert_sets("1 graphics max 1600\n1 graphics min 1500\n");
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 1550, 1900, NULL), HARPE_OK);
    assert_sets("1 graphics min 1550\n1 graphics max 1900\n");
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 600, 600, NULL), HARPE_OK);
    assert_sets("1 graphics min 600\n1 graphics max 600\n");
    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_OK);
    assert_sets("1 level 0\n");
}

AMD_TEST(resetting_one_clock_keeps_the_others_lock) {
    assert_int_equal(harpe_gpu_lock_memory_clocks(gpus, 0, 900, 1100, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 800, 1000, NULL), HARPE_OK);
    assert_sets("1 level 0\n1 memory min 900\n1 memory max 1100\n"
                "1 graphics min 800\n1 graphics max 1000\n");
    assert_int_equal(harpe_gpu_reset_graphics_clocks(gpus, 0, NULL), HARPE_OK);
    assert_sets("1 level 0\n1 memory min 900\n1 memory max 1100\n");
    assert_int_equal(harpe_gpu_reset_memory_clocks(gpus, 0, NULL), HARPE_OK);
    assert_sets("1 level 0\n");
}

AMD_TEST(half_a_lock_is_taken_back) {
    assert_int_equal(harpe_gpu_lock_memory_clocks(gpus, 0, 900, 1100, NULL), HARPE_OK);
    assert_sets("1 level 0\n1 memory min 900\n1 memory max 1100\n");
    script->refused_set = script->set_count + 2;
    script->refusal = 2; /* not supported */
    harpe_error error = {0};
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 800, 1000, &error),
                     HARPE_NOT_SUPPORTED);
    assert_sets("1 graphics min 800\n1 graphics max 1000\n"
                "1 level 0\n1 memory min 900\n1 memory max 1100\n");
}

SCRIPTED_TEST(no_permission_says_what_to_do_and_leaves_nothing_to_restore) {
    script->refuses_all_sets = true;
    script->refusal = 10;
    harpe_gpus *gpus = open_gpus(&amd);
    harpe_error error = {0};
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 800, 1000, &error),
                     HARPE_PERMISSION_DENIED);
    assert_int_equal(error.vendor_code, 10);
    assert_non_null(strstr(error.message, "GPU 0 ("));
    assert_non_null(strstr(error.message, "as root"));
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 0, 600000, &error), HARPE_PERMISSION_DENIED);
    assert_sets("1 level 0\n1 cap 0 600000000\n");
    assert_int_equal(harpe_gpus_restore(gpus, &error), HARPE_OK);
    assert_sets("");
    harpe_gpus_close(gpus);
}

static void *read_and_set(void *user) {
    harpe_gpus *gpus = user;
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t value = 0;
        int gpu = (int)(i % 2);
        (void)harpe_gpu_instant_power(gpus, gpu, &value, NULL);
        (void)harpe_gpu_set_power_limit(gpus, gpu, 500000 + i * 1000, NULL);
    }
    return NULL;
}

/* unload() checks that no two calls overlapped. */
SCRIPTED_TEST(calls_of_several_threads_do_not_overlap) {
    harpe_gpus *gpus = open_gpus(&amd);
    harpe_gpus *others = open_gpus(&amd);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_and_set, i % 2 ? others : gpus), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(script->overlaps, 0);
    harpe_gpus_close(others);
    harpe_gpus_close(gpus);
}

/* ---- Vendors --------------------------------------------------------------------------------- */

SCRIPTED_TEST(a_version_with_other_layouts_is_refused) {
    script->version = 24;
    setenv("HARPE_NVML_LIBRARY", "", 1);
    harpe_gpus *gpus = NULL;
    assert_int_equal(harpe_gpus_open(&amd, &gpus, NULL), HARPE_UNAVAILABLE);
    script->version = 25;
    gpus = open_gpus(&amd);
    harpe_gpus_close(gpus);
}

static bool has_nvidia_driver(void) {
    void *found = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (found) dlclose(found);
    return found != NULL;
}

SCRIPTED_TEST(nvidia_is_asked_first_where_both_are) {
    setenv("HARPE_AMDSMI_LIBRARY", SCRIPTED, 1);
    setenv("HARPE_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1", 1);
    /* explicitly requested: no other vendor is used */
    assert_open_fails(NULL, "/nowhere/libnvidia-ml.so.1");
    unsetenv("HARPE_NVML_LIBRARY");
    if (has_nvidia_driver()) skip_because("hardware: a machine without an NVIDIA driver");
    harpe_gpus *gpus = open_gpus(NULL);
    assert_string_equal(harpe_gpus_backend_name(gpus), "amdsmi");
    harpe_gpus_close(gpus);
    script->version = 24;
    assert_open_fails(NULL, "AMD SMI 24 is not known");
}

SCRIPTED_TEST(a_machine_with_neither_is_told_of_both) {
    if (has_nvidia_driver()) skip_because("hardware: a machine without an NVIDIA driver");
    assert_open_fails(NULL, "no NVIDIA driver library (libnvidia-ml.so");
    assert_open_fails(NULL, "harpe emulate");
    assert_open_fails(NULL, "no AMD SMI library (libamd_smi.so)");
    setenv("HARPE_AMDSMI_LIBRARY", "/nowhere/libamd_smi.so", 1);
    assert_open_fails(NULL, "/nowhere/libamd_smi.so");
}
