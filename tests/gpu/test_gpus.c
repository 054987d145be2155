/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU layer with the emulated driver, with a driver library that lacks nearly everything, and
 * without a driver. */
#include "test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <harpe/gpu.h>

#include "gpu/gpus.h"

#define EMULATOR HARPE_BINARY_DIR "/emulator/libnvidia-ml.so.1"
#define MINIMAL HARPE_BINARY_DIR "/tests/minimal_nvml.so"

static const harpe_gpus_options all_gpus = {.visible_devices = "all"};
static const harpe_gpus_options minimal = {.library_path = MINIMAL};

static void unset_everything(void) {
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    unsetenv("HARPE_NVML_LIBRARY");
    unsetenv("HARPE_EMULATOR_GPUS");
    unsetenv("HARPE_EMULATOR_TIME_SCALE");
    unsetenv("HARPE_EMULATOR_FAULTS");
    unsetenv("HARPE_EMULATOR_FAULTS_FILE");
}

static void remove_cluster(void) {
    char path[160];
    snprintf(path, sizeof path, "/harpe-emulator-%u-test-gpus-%d", (unsigned)getuid(),
             (int)getpid());
    shm_unlink(path);
}

/* Creates a new machine for each test. */
static int start_machine(void **state) {
    (void)state;
    char name[64];
    unset_everything();
    remove_cluster();
    snprintf(name, sizeof name, "test-gpus-%d", (int)getpid());
    setenv("HARPE_EMULATOR_CLUSTER", name, 1);
    setenv("HARPE_EMULATOR_GPUS", "4xA100", 1);
    setenv("HARPE_NVML_LIBRARY", EMULATOR, 1);
    return 0;
}

static int stop_machine(void **state) {
    (void)state;
    remove_cluster();
    unset_everything();
    return 0;
}

static harpe_gpus *open_gpus(const harpe_gpus_options *options) {
    harpe_gpus *gpus = NULL;
    harpe_error error = {0};
    if (harpe_gpus_open(options, &gpus, &error) != HARPE_OK) fail_msg("%s", error.message);
    return gpus;
}

static void assert_writes(const harpe_gpus *gpus, int gpu, unsigned written, unsigned skipped,
                          unsigned failed) {
    harpe_gpu_writes writes = harpe_gpu_write_count(gpus, gpu);
    assert_int_equal(writes.written, written);
    assert_int_equal(writes.skipped, skipped);
    assert_int_equal(writes.failed, failed);
}

/* ---- Finding --------------------------------------------------------------------------------- */

#define ON_MACHINE(name) TEST_WITH(name, start_machine, stop_machine)
#define GPUS_TEST(name, options) \
    static void name##_of(harpe_gpus *gpus); \
    ON_MACHINE(name) { \
        harpe_gpus *gpus = open_gpus(options); \
        name##_of(gpus); \
        harpe_gpus_close(gpus); \
    } \
    static void name##_of(harpe_gpus *gpus)

GPUS_TEST(every_gpu_is_found_with_its_names, NULL) {
    assert_int_equal(harpe_gpus_count(gpus), 4);
    assert_string_equal(harpe_gpus_backend_name(gpus), "nvml");
    assert_true(harpe_gpus_are_emulated(gpus));
    assert_true(strlen(harpe_gpus_driver_version(gpus)) > 0);
    for (int i = 0; i < 4; i++) {
        const harpe_gpu_info *info = harpe_gpu_info_at(gpus, i);
        assert_int_equal(info->index, i);
        assert_int_equal(info->driver_index, i);
        assert_non_null(strstr(info->name, "A100"));
        assert_memory_equal(info->uuid, "GPU-", 4);
        assert_int_equal(strlen(info->pci_bus_id), strlen("00000000:3B:00.0"));
    }
    assert_null(harpe_gpu_info_at(gpus, 4));
    assert_null(harpe_gpu_info_at(gpus, -1));
    assert_int_equal(harpe_gpus_check_same_model(gpus, NULL), HARPE_OK);
    int64_t before = harpe_gpus_clock_ns(gpus);
    assert_true(harpe_gpus_clock_ns(gpus) >= before);
}

ON_MACHINE(indices_are_those_of_the_training_process) {
    harpe_gpus *gpus = open_gpus(&all_gpus);
    char uuid[96];
    snprintf(uuid, sizeof uuid, "%s", harpe_gpu_info_at(gpus, 2)->uuid);
    harpe_gpus_close(gpus);

    setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
    gpus = open_gpus(NULL);
    assert_int_equal(harpe_gpus_count(gpus), 2);
    assert_int_equal(harpe_gpus_driver_count(gpus), 4);
    assert_int_equal(harpe_gpu_info_at(gpus, 0)->driver_index, 3);
    assert_int_equal(harpe_gpu_info_at(gpus, 0)->index, 0);
    assert_int_equal(harpe_gpu_info_at(gpus, 1)->driver_index, 1);
    /* A setting reaches the mapped GPU and no other. */
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 0, 300000, NULL), HARPE_OK);
    harpe_gpus_close(gpus);

    setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
    gpus = open_gpus(NULL);
    assert_int_equal(harpe_gpus_count(gpus), 1);
    assert_int_equal(harpe_gpu_info_at(gpus, 0)->driver_index, 2);
    harpe_gpus_close(gpus);

    const harpe_gpus_options options = {.visible_devices = "1"};
    gpus = open_gpus(&options);
    assert_int_equal(harpe_gpu_info_at(gpus, 0)->driver_index, 1);
    harpe_gpus_close(gpus);
}

static void assert_open_fails(const harpe_gpus_options *options, harpe_status expected,
                              const char *part) {
    harpe_gpus *gpus = NULL;
    harpe_error error = {0};
    harpe_status status = harpe_gpus_open(options, &gpus, &error);
    assert_int_equal(status, expected);
    assert_int_equal(error.status, expected);
    assert_null(gpus);
    if (!strstr(error.message, part)) fail_msg("'%s' lacks '%s'", error.message, part);
}

ON_MACHINE(what_cannot_be_opened_says_why) {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    assert_open_fails(NULL, HARPE_UNAVAILABLE, "hides all");
    setenv("CUDA_VISIBLE_DEVICES", "0,0", 1);
    assert_open_fails(NULL, HARPE_UNAVAILABLE, "hides all");
    setenv("CUDA_VISIBLE_DEVICES", "MIG-1", 1);
    assert_open_fails(NULL, HARPE_UNAVAILABLE, "MIG");
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("CUDA_DEVICE_ORDER", "SLOWEST_FIRST", 1);
    assert_open_fails(NULL, HARPE_INVALID_INPUT, "PCI_BUS_ID");
    unsetenv("CUDA_DEVICE_ORDER");
    setenv("HARPE_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1", 1);
    assert_open_fails(NULL, HARPE_UNAVAILABLE, "/nowhere/libnvidia-ml.so.1");
    setenv("HARPE_NVML_LIBRARY", "libm.so.6", 1);
    assert_open_fails(NULL, HARPE_UNAVAILABLE, "nvmlInit_v2");
    const harpe_gpus_options options = {.library_path = "/nowhere/other.so"};
    assert_open_fails(&options, HARPE_UNAVAILABLE, "/nowhere/other.so");
    harpe_gpus_close(NULL);
}

ON_MACHINE(mixed_models_are_named) {
    setenv("HARPE_EMULATOR_GPUS", "1xA100,1xV100", 1);
    harpe_gpus *gpus = open_gpus(NULL);
    harpe_error error = {0};
    assert_int_equal(harpe_gpus_check_same_model(gpus, &error), HARPE_INVALID_INPUT);
    assert_non_null(strstr(error.message, "A100"));
    assert_non_null(strstr(error.message, "V100"));
    harpe_gpus_close(gpus);
}

/* ---- Reading --------------------------------------------------------------------------------- */

GPUS_TEST(readings_make_sense, NULL) {
    uint32_t minimum = 0;
    uint32_t maximum = 0;
    uint32_t limit = 0;
    uint32_t value = 0;
    uint32_t memory_mhz = 0;
    uint64_t wide = 0;
    assert_int_equal(harpe_gpu_power_limit_range(gpus, 1, &minimum, &maximum, NULL), HARPE_OK);
    assert_true(minimum > 0 && minimum < maximum);
    assert_int_equal(harpe_gpu_power_limit(gpus, 1, &limit, NULL), HARPE_OK);
    assert_true(limit >= minimum && limit <= maximum);
    assert_int_equal(harpe_gpu_default_power_limit(gpus, 1, &value, NULL), HARPE_OK);
    assert_true(value >= minimum && value <= maximum);
    assert_int_equal(harpe_gpu_instant_power(gpus, 1, &value, NULL), HARPE_OK);
    assert_true(value > 0 && value <= maximum);
    assert_int_equal(harpe_gpu_total_energy(gpus, 1, &wide, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_temperature(gpus, 1, &value, NULL), HARPE_OK);
    assert_in_range(value, 1, 120);
    assert_int_equal(harpe_gpu_throttle_reasons(gpus, 1, &wide, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_current_clocks(gpus, 1, &value, &memory_mhz, NULL), HARPE_OK);
    assert_true(value > 0 && memory_mhz > 0);
    assert_int_equal(harpe_gpu_current_clocks(gpus, 1, NULL, NULL, NULL), HARPE_OK);
}

GPUS_TEST(clocks_are_listed_highest_first, NULL) {
    uint32_t *memory = NULL;
    uint32_t *graphics = NULL;
    size_t count = 0;
    assert_int_equal(harpe_gpu_memory_clocks(gpus, 0, &memory, &count, NULL), HARPE_OK);
    assert_true(count > 0);
    assert_int_equal(harpe_gpu_graphics_clocks(gpus, 0, memory[0], &graphics, &count, NULL),
                     HARPE_OK);
    assert_int_equal(graphics[0], 1410);
    assert_true(count > 10);
    for (size_t i = 1; i < count; i++)
        assert_true(graphics[i] < graphics[i - 1]);
    free(graphics);
    graphics = NULL;
    count = 77;
    harpe_error error = {0};
    assert_int_not_equal(harpe_gpu_graphics_clocks(gpus, 0, 1, &graphics, &count, &error),
                         HARPE_OK);
    assert_null(graphics);
    assert_int_equal(count, 77);
    assert_non_null(strstr(error.message, "GPU 0"));
    free(memory);
}

GPUS_TEST(an_index_out_of_range_is_refused, NULL) {
    uint32_t value = 77;
    harpe_error error = {0};
    assert_int_equal(harpe_gpu_power_limit(gpus, 4, &value, &error), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_gpu_power_limit(gpus, -1, &value, &error), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 4, 1, &error), HARPE_INVALID_ARGUMENT);
    assert_int_equal(value, 77);
    assert_writes(gpus, 4, 0, 0, 0);
}

/* ---- Setting --------------------------------------------------------------------------------- */

GPUS_TEST(a_set_that_changes_nothing_is_skipped, NULL) {
    uint32_t found = 0;
    uint32_t value = 0;
    assert_int_equal(harpe_gpu_power_limit(gpus, 0, &found, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 0, found, NULL), HARPE_OK);
    assert_writes(gpus, 0, 0, 1, 0);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 0, 250000, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 0, 250000, NULL), HARPE_OK);
    assert_writes(gpus, 0, 1, 2, 0);
    assert_int_equal(harpe_gpu_power_limit(gpus, 0, &value, NULL), HARPE_OK);
    assert_int_equal(value, 250000);

    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 1200, 1200, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 1200, 1200, NULL), HARPE_OK);
    assert_writes(gpus, 0, 2, 3, 0);
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 210, 1200, NULL), HARPE_OK);
    assert_writes(gpus, 0, 3, 3, 0);
    assert_int_equal(harpe_gpu_reset_graphics_clocks(gpus, 0, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_reset_graphics_clocks(gpus, 0, NULL), HARPE_OK);
    assert_writes(gpus, 0, 4, 4, 0);
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 210, 1200, NULL), HARPE_OK);
    assert_writes(gpus, 0, 5, 4, 0);
    assert_writes(gpus, 1, 0, 0, 0);
}

ON_MACHINE(the_first_reset_is_written) {
    (void)state; /* another program may have locked the clocks */
    harpe_gpus *gpus = open_gpus(NULL);
    assert_int_equal(harpe_gpu_reset_graphics_clocks(gpus, 2, NULL), HARPE_OK);
    assert_writes(gpus, 2, 1, 0, 0);
    harpe_gpus_close(gpus);
}

ON_MACHINE(restore_puts_back_what_was_found) {
    harpe_gpus *other = open_gpus(NULL);
    assert_int_equal(harpe_gpu_set_power_limit(other, 1, 275000, NULL), HARPE_OK);
    bool persistence = false;
    assert_int_equal(harpe_gpu_persistence_mode(other, 1, &persistence, NULL), HARPE_OK);

    harpe_gpus *gpus = open_gpus(NULL);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 1, 200000, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 1, 150000, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_set_persistence_mode(gpus, 1, !persistence, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 1, 600, 900, NULL), HARPE_OK);
    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_OK);
    uint32_t limit = 0;
    bool restored = !persistence;
    assert_int_equal(harpe_gpu_power_limit(other, 1, &limit, NULL), HARPE_OK);
    assert_int_equal(limit, 275000);
    assert_int_equal(harpe_gpu_persistence_mode(other, 1, &restored, NULL), HARPE_OK);
    assert_int_equal(restored, persistence);
    assert_writes(gpus, 1, 7, 0, 0);

    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_OK);
    assert_writes(gpus, 1, 7, 0, 0);
    assert_writes(gpus, 0, 0, 0, 0);
    harpe_gpus_close(gpus);
    harpe_gpus_close(other);
}

GPUS_TEST(a_value_out_of_range_names_the_range, NULL) {
    harpe_error error = {0};
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 0, 1000, &error), HARPE_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "its range is"));
    assert_non_null(strstr(error.message, "GPU 0 ("));
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 900, 600, &error),
                     HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_gpu_lock_memory_clocks(gpus, 0, 0, 600, &error), HARPE_INVALID_ARGUMENT);
    assert_writes(gpus, 0, 0, 0, 1);
    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_OK);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

ON_MACHINE(no_permission_says_what_to_do) {
    setenv("HARPE_EMULATOR_FAULTS", "no_permission", 1);
    harpe_gpus *gpus = open_gpus(NULL);
    harpe_error error = {0};
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 3, 200000, &error), HARPE_PERMISSION_DENIED);
    assert_int_equal(error.vendor_code, 4);
    assert_non_null(strstr(error.message, "CAP_SYS_ADMIN"));
    assert_non_null(strstr(error.message, "GPU 3 ("));
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 3, 600, 900, &error),
                     HARPE_PERMISSION_DENIED);
    assert_writes(gpus, 3, 0, 0, 2);
    /* Nothing was changed, so nothing has to be restored. */
    assert_int_equal(harpe_gpus_restore(gpus, &error), HARPE_OK);
    uint32_t value = 0;
    assert_int_equal(harpe_gpu_instant_power(gpus, 3, &value, NULL), HARPE_OK);
    harpe_gpus_close(gpus);
}

ON_MACHINE(a_limit_without_effect_is_an_error) {
    setenv("HARPE_EMULATOR_FAULTS", "limit_floor=300", 1);
    harpe_gpus *gpus = open_gpus(NULL);
    harpe_error error = {0};
    uint32_t limit = 0;
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 1, 300000, &error), HARPE_OK);
    for (int i = 0; i < 2; i++) { /* the second call is not skipped either */
        assert_int_equal(harpe_gpu_set_power_limit(gpus, 1, 275000, &error), HARPE_DRIVER_ERROR);
        assert_non_null(strstr(error.message, "GPU 1 ("));
        assert_non_null(strstr(error.message, "275 W"));
        assert_non_null(strstr(error.message, "300 W"));
        assert_writes(gpus, 1, 2 + (unsigned)i, 0, 0);
    }
    assert_int_equal(harpe_gpus_restore(gpus, &error), HARPE_OK);
    assert_int_equal(harpe_gpu_power_limit(gpus, 1, &limit, NULL), HARPE_OK);
    assert_int_equal(limit, 400000);
    harpe_gpus_close(gpus);
}

/* A call without effect may still take effect later, so the limit is restored even if it looks as
 * if it had never changed. */
ON_MACHINE(a_limit_without_effect_is_restored) {
    setenv("HARPE_EMULATOR_FAULTS", "limit_floor=400", 1);
    harpe_gpus *gpus = open_gpus(NULL);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 1, 275000, NULL), HARPE_DRIVER_ERROR);
    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_OK);
    assert_writes(gpus, 1, 2, 0, 0);
    harpe_gpus_close(gpus);
}

/* The limit is set. It is another limit that is in force. */
ON_MACHINE(a_lower_limit_from_elsewhere_is_no_error_of_the_driver) {
    setenv("HARPE_EMULATOR_FAULTS", "enforced_limit=250", 1);
    harpe_gpus *gpus = open_gpus(NULL);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 1, 300000, NULL), HARPE_OK);
    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_OK);
    harpe_gpus_close(gpus);
}

ON_MACHINE(what_a_gpu_cannot_do_is_not_supported) {
    setenv("HARPE_EMULATOR_FAULTS", "no_energy_counter,not_supported=memory_locks", 1);
    harpe_gpus *gpus = open_gpus(NULL);
    harpe_error error = {0};
    uint64_t energy = 77;
    assert_int_equal(harpe_gpu_total_energy(gpus, 0, &energy, &error), HARPE_NOT_SUPPORTED);
    assert_int_equal(error.vendor_code, 3);
    assert_int_equal(energy, 77);
    assert_int_equal(harpe_gpu_lock_memory_clocks(gpus, 0, 1215, 1215, &error),
                     HARPE_NOT_SUPPORTED);
    assert_int_equal(harpe_gpus_restore(gpus, &error), HARPE_OK);
    harpe_gpus_close(gpus);
}

ON_MACHINE(instant_power_falls_back_to_the_older_call) {
    setenv("HARPE_EMULATOR_FAULTS", "not_supported=instant_power", 1);
    harpe_gpus *gpus = open_gpus(NULL);
    uint32_t power = 0;
    assert_int_equal(harpe_gpu_instant_power(gpus, 0, &power, NULL), HARPE_OK);
    assert_true(power > 0);
    harpe_gpus_close(gpus);
}

ON_MACHINE(a_lost_gpu_is_told_from_other_failures) {
    setenv("HARPE_EMULATOR_FAULTS", "lost_after=40@1", 1);
    harpe_gpus *gpus = open_gpus(NULL);
    harpe_error error = {0};
    uint32_t value = 77;
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 0, 250000, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 1, 250000, NULL), HARPE_OK);
    harpe_status status = HARPE_OK;
    for (int i = 0; i < 100 && status == HARPE_OK; i++)
        status = harpe_gpu_instant_power(gpus, 1, &value, &error);
    assert_int_equal(status, HARPE_GPU_LOST);
    assert_int_equal(error.vendor_code, 15);
    assert_non_null(strstr(error.message, "GPU 1 ("));
    assert_int_equal(harpe_gpu_instant_power(gpus, 0, &value, NULL), HARPE_OK);
    /* The other GPUs are restored all the same, and the failure is reported. */
    assert_int_equal(harpe_gpus_restore(gpus, &error), HARPE_GPU_LOST);
    uint32_t restored = 0;
    uint32_t usual = 0;
    assert_int_equal(harpe_gpu_power_limit(gpus, 0, &restored, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_default_power_limit(gpus, 0, &usual, NULL), HARPE_OK);
    assert_int_equal(restored, usual);
    harpe_gpus_close(gpus);
}

/* ---- Threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 50 };

static void *set_and_read(void *user) {
    harpe_gpus *gpus = user;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t value = 0;
        (void)harpe_gpu_set_power_limit(gpus, 0, i % 2 ? 200000 : 300000, NULL);
        (void)harpe_gpu_lock_graphics_clocks(gpus, 0, 600, i % 2 ? 900 : 1200, NULL);
        (void)harpe_gpu_instant_power(gpus, 0, &value, NULL);
        (void)harpe_gpu_write_count(gpus, 0);
    }
    return NULL;
}

GPUS_TEST(several_threads_may_set_the_same_gpu, NULL) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, set_and_read, gpus), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    harpe_gpu_writes writes = harpe_gpu_write_count(gpus, 0);
    assert_int_equal(writes.written + writes.skipped, 2 * THREADS * ROUNDS);
    assert_int_equal(writes.failed, 0);
    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_OK);
    uint32_t limit = 0;
    assert_int_equal(harpe_gpu_power_limit(gpus, 0, &limit, NULL), HARPE_OK);
    assert_int_equal(limit, 400000);
}

/* ---- A driver library that lacks nearly everything ------------------------------------------- */

static void count_warning(void *user, harpe_log_level level, const char *line) {
    (void)line;
    *(int *)user += level == HARPE_LOG_WARNING;
}

ON_MACHINE(gpus_are_in_pci_order_without_the_unreachable) {
    int warnings = 0;
    const harpe_gpus_options options = {.library_path = MINIMAL, .log = {count_warning, &warnings}};
    harpe_gpus *gpus = open_gpus(&options);
    assert_int_equal(harpe_gpus_count(gpus), 3);
    assert_string_equal(harpe_gpu_info_at(gpus, 0)->pci_bus_id, "00000000:1A:00.0");
    assert_int_equal(harpe_gpu_info_at(gpus, 0)->driver_index, 2);
    assert_string_equal(harpe_gpu_info_at(gpus, 1)->uuid, "GPU-3b");
    assert_int_equal(harpe_gpu_info_at(gpus, 2)->driver_index, 0);
    assert_false(harpe_gpus_are_emulated(gpus));
    assert_string_equal(harpe_gpus_driver_version(gpus), "");
    /* One line for the lost GPU, and one for the order of a mixture. */
    assert_int_equal(warnings, 2);
    harpe_gpus_close(gpus);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    warnings = 0;
    gpus = open_gpus(&options);
    assert_int_equal(warnings, 1);
    harpe_gpus_close(gpus);
}

GPUS_TEST(a_missing_function_is_not_supported, &minimal) {
    harpe_error error = {0};
    uint64_t wide = 77;
    uint32_t value = 77;
    bool persistence = true;
    assert_int_equal(harpe_gpu_total_energy(gpus, 0, &wide, &error), HARPE_NOT_SUPPORTED);
    assert_non_null(strstr(error.message, "update the driver"));
    assert_int_equal(harpe_gpu_average_power(gpus, 0, &value, NULL), HARPE_NOT_SUPPORTED);
    assert_int_equal(harpe_gpu_persistence_mode(gpus, 0, &persistence, NULL), HARPE_NOT_SUPPORTED);
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 5, 6, NULL), HARPE_NOT_SUPPORTED);
    assert_int_equal(harpe_gpu_reset_graphics_clocks(gpus, 0, NULL), HARPE_NOT_SUPPORTED);
    assert_int_equal(value, 77);
    assert_int_equal(wide, 77);
    assert_int_equal(harpe_gpu_instant_power(gpus, 0, &value, NULL), HARPE_OK);
    assert_int_equal(value, 123456);
}

GPUS_TEST(the_newer_call_tells_the_temperature_or_else_the_older, &minimal) {
    uint32_t celsius = 0;
    assert_int_equal(harpe_gpu_temperature(gpus, 2, &celsius, NULL), HARPE_OK);
    assert_int_equal(celsius, 57);
    assert_int_equal(harpe_gpu_temperature(gpus, 0, &celsius, NULL), HARPE_OK);
    assert_int_equal(celsius, 41); /* refuses the newer struct */
    assert_int_equal(harpe_gpu_temperature(gpus, 1, &celsius, NULL), HARPE_OK);
    assert_int_equal(celsius, 0); /* below zero */
}

GPUS_TEST(without_the_calls_a_limit_is_enforced_and_energy_is_the_gpus, &minimal) {
    harpe_error error = {0};
    uint32_t value = 7;
    assert_int_equal(harpe_gpu_enforced_power_limit(gpus, 0, &value, NULL), HARPE_OK);
    assert_int_equal(value, 300000);
    assert_int_equal(harpe_gpu_energy_scope(gpus, 0), HARPE_ENERGY_OF_GPU);
    assert_int_equal(harpe_gpu_energy_scope(gpus, 99), HARPE_ENERGY_OF_GPU);
    assert_int_equal(harpe_gpu_module_power(gpus, 0, &value, &error), HARPE_NOT_SUPPORTED);
    assert_non_null(strstr(error.message, "not part of a module"));
    assert_int_equal(harpe_gpu_module_power(gpus, 99, &value, NULL), HARPE_INVALID_ARGUMENT);
    assert_int_equal(value, 300000);
}

GPUS_TEST(a_growing_list_is_read_again_sorted_and_once, &minimal) {
    uint32_t *clocks = NULL;
    size_t count = 0;
    assert_int_equal(harpe_gpu_memory_clocks(gpus, 0, &clocks, &count, NULL), HARPE_OK);
    assert_int_equal(count, 3);
    assert_int_equal(clocks[0], 1593);
    assert_int_equal(clocks[1], 810);
    assert_int_equal(clocks[2], 405);
    free(clocks);
}

GPUS_TEST(a_limit_that_the_driver_rounds_is_written_once, &minimal) {
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 0, 250500, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_set_power_limit(gpus, 0, 250500, NULL), HARPE_OK);
    assert_writes(gpus, 0, 1, 1, 0);
    assert_int_equal(harpe_gpus_restore(gpus, NULL), HARPE_OK);
    uint32_t limit = 0;
    assert_int_equal(harpe_gpu_power_limit(gpus, 0, &limit, NULL), HARPE_OK);
    assert_int_equal(limit, 300000);
}
