/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator's library in a simulated world: nothing waits for real time, work ends when it is
 * computed to end, and a run has the same numbers again. */
#include "test.h"

#include <math.h>
#include <unistd.h>

#include <harpe/gpu.h>

#include "gpu/nvml_abi.h"
#include "harpe_emulator.h"
#include "world.h"

#define MS INT64_C(1000000)

extern nvmlReturn_t nvmlInit_v2(void);
extern nvmlReturn_t nvmlShutdown(void);
extern nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count);
extern nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
extern nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int minimum_mhz,
                                                 unsigned int maximum_mhz);
extern nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates);

/* ---- A world of one thread ------------------------------------------------------------------- */

static struct {
    int64_t now_ns;
    pid_t self, dead;
    int waits;
    int64_t event_ns; /* while the thread waits, `event` happens then; 0: nothing happens */
    void (*event)(void);
    const volatile void *waits_for;
    bool is_woken;
    jmp_buf killed;
} world;

static char profile_path[] = "/tmp/harpe-world-XXXXXX";

static int64_t now_ns(void) { return world.now_ns; }
static int64_t wall_ns(void) { return world.now_ns + 1700000000000 * MS; }

static bool park(const volatile void *address, int64_t until_ns) {
    world.waits++;
    world.waits_for = address;
    world.is_woken = false;
    if (world.event_ns > 0 && world.event_ns < until_ns) {
        world.now_ns = world.event_ns;
        world.event_ns = 0;
        world.event();
        if (world.is_woken) return true;
    }
    world.now_ns = until_ns;
    return false;
}

static void unpark(const volatile void *address, bool all) {
    (void)all;
    if (address == world.waits_for) world.is_woken = true;
}

static void step(void) { fail_msg("the emulator locks nothing in a world"); }
static pid_t self(void) { return world.self; }
static uint64_t started(pid_t process) {
    return process == world.dead ? 0 : 1000 + (uint64_t)process;
}

static const harpe_platform platform = {.now_ns = now_ns,
                                        .wall_ns = wall_ns,
                                        .park = park,
                                        .unpark = unpark,
                                        .step = step,
                                        .self = self,
                                        .started = started};

static void begin(const char *gpus, const char *physics) {
    memset(&world, 0, sizeof world);
    world.now_ns = 1000000 * MS;
    world.self = 7;
    setenv("HARPE_EMULATOR_GPUS", gpus, 1);
    setenv("HARPE_EMULATOR_PHYSICS", physics, 1);
    harpe_emulator_use_platform(&platform);
    assert_int_equal(nvmlInit_v2(), NVML_SUCCESS);
}

static int end(void **state) {
    (void)state;
    harpe_emulator_use_platform(NULL);
    return 0;
}

/* 10 ms at 200 W, or 20 ms at 80 W. */
static int write_profile(void **state) {
    static const char text[] = "stage,instruction,frequency,time,energy\n"
                               "0,forward,705,0.020,1.6\n"
                               "0,forward,1410,0.010,2.0\n";
    (void)state;
    int file = mkstemp(profile_path);
    bool is_written = file >= 0 && write(file, text, sizeof text - 1) == sizeof text - 1;
    if (file >= 0) close(file);
    setenv("HARPE_EMULATOR_PROFILE", profile_path, 1);
    return is_written ? 0 : -1;
}

static int remove_profile(void **state) {
    (void)state;
    return unlink(profile_path);
}

static nvmlDevice_t device_of(unsigned int gpu) {
    nvmlDevice_t device;
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(gpu, &device), NVML_SUCCESS);
    return device;
}

static void lock(unsigned int gpu, unsigned int mhz) {
    assert_int_equal(nvmlDeviceSetGpuLockedClocks(device_of(gpu), mhz, mhz), NVML_SUCCESS);
}

static double energy_j(unsigned int gpu) {
    double energy;
    assert_int_equal(harpe_emulator_energy(gpu, world.now_ns, &energy), NVML_SUCCESS);
    return energy;
}

static void assert_drawn(double before_j, double expected_j) {
    assert_true(fabs(energy_j(0) - before_j - expected_j) < 1e-9);
}

/* Runs an instruction, and returns how long it took. */
static int64_t run(unsigned int gpu) {
    int64_t from_ns = world.now_ns, finished_ns = 0;
    assert_int_equal(
        harpe_emulator_instruction_at(gpu, 0, "forward", 1, world.now_ns, &finished_ns),
        NVML_SUCCESS);
    assert_int_equal(finished_ns, world.now_ns);
    return world.now_ns - from_ns;
}

/* ---- Exact times ----------------------------------------------------------------------------- */

#define FIXTURE_TEST(name) TEST_WITH(name, NULL, end)

FIXTURE_TEST(instruction_ends_after_one_wait) {
    begin("1xA100", "ideal");
    double before_j = energy_j(0);
    assert_int_equal(run(0), 10 * MS);
    assert_int_equal(world.waits, 1);
    assert_drawn(before_j, 2.0);
    lock(0, 705);
    before_j = energy_j(0);
    assert_int_equal(run(0), 20 * MS);
    assert_int_equal(world.waits, 2);
    assert_drawn(before_j, 1.6);
}

static void lower_clock(void) { lock(0, 705); }

/* The half that is left takes twice as long. */
FIXTURE_TEST(clock_holds_from_its_change_on) {
    begin("1xA100", "ideal");
    double before_j = energy_j(0);
    world.event_ns = world.now_ns + 5 * MS;
    world.event = lower_clock;
    assert_int_equal(run(0), 15 * MS);
    assert_int_equal(world.waits, 2);
    assert_drawn(before_j, 1.0 + 0.8);
}

FIXTURE_TEST(clock_set_at_the_start_holds_for_all) {
    begin("1xA100", "ideal");
    world.event_ns = world.now_ns;
    world.event = lower_clock;
    assert_int_equal(run(0), 20 * MS);
}

/* The floor of this workload is 7.881 ms; see emulator/workloads.c. */
FIXTURE_TEST(iterations_of_a_workload_are_exact) {
    begin("1xA100-PCIe", "ideal");
    int64_t from_ns = world.now_ns, end_ns = from_ns;
    for (int i = 0; i < 10; i++)
        assert_int_equal(harpe_emulator_workload_step(0, "gpt2-bf16-b8-s128", 1, end_ns, &end_ns),
                         NVML_SUCCESS);
    assert_int_equal(end_ns, world.now_ns);
    assert_int_equal(end_ns - from_ns, 78810000);
    double before_j = energy_j(0);
    lock(0, 705);
    assert_int_equal(harpe_emulator_workload_step(0, "gpt2-bf16-b8-s128", 2, 0, &end_ns),
                     NVML_SUCCESS);
    assert_int_equal(end_ns - from_ns, 12 * 7881000);
    assert_true(energy_j(0) - before_j < 2 * 0.8);
}

static int is_held(void *user) {
    (void)user;
    return 1;
}

FIXTURE_TEST(no_work_is_held) {
    begin("1xA100", "ideal");
    int64_t finished_ns, from_ns = world.now_ns;
    assert_int_equal(
        harpe_emulator_instruction_held(0, 0, "forward", 1, from_ns, is_held, NULL, &finished_ns),
        NVML_SUCCESS);
    assert_int_equal(finished_ns, from_ns + 10 * MS);
    assert_int_equal(world.now_ns, finished_ns);
    assert_int_equal(world.waits, 1);
}

/* ---- Processes ------------------------------------------------------------------------------- */

static void kill_worker(void) {
    world.dead = world.self;
    longjmp(world.killed, 1);
}

FIXTURE_TEST(work_ends_with_its_process) {
    nvmlUtilization_t rates;
    begin("1xA100", "ideal");
    world.event_ns = world.now_ns + 4 * MS;
    world.event = kill_worker;
    if (setjmp(world.killed) == 0) (void)run(0);
    world.self = 8;
    double before_j = energy_j(0);
    world.now_ns += 1000 * MS;
    assert_drawn(before_j, 62); /* the idle power of an A100 */
    assert_int_equal(nvmlDeviceGetUtilizationRates(device_of(0), &rates), NVML_SUCCESS);
    assert_int_equal(rates.gpu, 0);
    assert_int_equal(run(0), 10 * MS);
}

FIXTURE_TEST(settings_stay_without_processes) {
    begin("1xA100", "ideal");
    lock(0, 705);
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
    world.now_ns += MS;
    assert_int_equal(nvmlInit_v2(), NVML_SUCCESS);
    assert_int_equal(run(0), 20 * MS);
    begin("1xA100", "ideal");
    assert_int_equal(run(0), 10 * MS);
}

FIXTURE_TEST(faults_change_at_any_time) {
    begin("1xA100", "ideal");
    assert_true(harpe_emulator_use_faults("no_permission"));
    assert_int_equal(nvmlDeviceSetGpuLockedClocks(device_of(0), 705, 705),
                     NVML_ERROR_NO_PERMISSION);
    assert_false(harpe_emulator_use_faults("nonsense"));
    assert_true(harpe_emulator_use_faults(""));
    lock(0, 705);
}

/* ---- The same again -------------------------------------------------------------------------- */

enum { GPUS = 4, ROUNDS = 50 };

typedef struct numbers {
    int64_t finished_ns[ROUNDS][GPUS];
    double energy_j[ROUNDS][GPUS];
    char uuid[GPUS][96], identity[160];
} numbers;

/* A job on GPUs that differ, with jitter, heat and late clocks. */
static void simulate(const char *cluster, pid_t process, numbers *out) {
    memset(out, 0, sizeof *out);
    setenv("HARPE_EMULATOR_CLUSTER", cluster, 1);
    begin("4xA100", "real");
    world.self = process;
    for (unsigned int gpu = 0; gpu < GPUS; gpu++)
        assert_int_equal(harpe_emulator_uuid(gpu, out->uuid[gpu], sizeof out->uuid[gpu]), 0);
    assert_int_equal(harpe_emulator_identity(out->identity, sizeof out->identity), 0);
    for (unsigned int i = 0; i < ROUNDS; i++) {
        for (unsigned int gpu = 0; gpu < GPUS; gpu++) {
            lock(gpu, 705 + 15 * ((7 * i + gpu) % 40));
            (void)run(gpu);
            out->finished_ns[i][gpu] = world.now_ns;
            out->energy_j[i][gpu] = energy_j(gpu);
        }
    }
    unsetenv("HARPE_EMULATOR_CLUSTER");
}

FIXTURE_TEST(runs_have_the_same_numbers) {
    static numbers first, second;
    (void)state;
    simulate("one", 7, &first);
    simulate("another", 1234567, &second);
    assert_memory_equal(&first, &second, sizeof first);
    assert_string_not_equal(first.uuid[0], first.uuid[1]);
}

/* ---- Many GPUs ------------------------------------------------------------------------------- */

FIXTURE_TEST(thousands_of_gpus_work) {
    begin("4000xA100,96xV100", "ideal");
    unsigned int count = 0;
    assert_int_equal(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
    assert_int_equal(count, 4096);
    for (unsigned int gpu = 0; gpu < 1024; gpu++)
        assert_int_equal(run(gpu), 10 * MS);
    assert_int_equal(world.waits, 1024);
}

FIXTURE_TEST(names_open_only_their_gpus) {
    char text[128], first[48], last[48];
    harpe_gpus *gpus;
    (void)state;
    begin("1024xA100", "ideal");
    setenv("HARPE_NVML_LIBRARY", EMULATOR, 1);
    assert_int_equal(harpe_emulator_uuid(1023, last, sizeof last), 0);
    assert_int_equal(harpe_emulator_uuid(40, first, sizeof first), 0);
    (void)snprintf(text, sizeof text, "%s,%s", last, first);
    assert_true(harpe_emulator_use_faults("slow_get=1")); /* each call waits twice */
    harpe_gpus_options options = {.visible_devices = text};
    assert_works(harpe_gpus_open(&options, &gpus, &failure));
    assert_int_equal(harpe_gpus_count(gpus), 2);
    assert_int_equal(harpe_gpu_info_at(gpus, 0)->driver_index, 1023);
    assert_int_equal(harpe_gpu_info_at(gpus, 1)->driver_index, 40);
    assert_string_equal(harpe_gpu_info_at(gpus, 1)->pci_bus_id, "00000001:47:00.0");
    harpe_gpus_close(gpus);
    assert_in_range(world.waits, 1, 100);
    options.visible_devices = "all";
    assert_works(harpe_gpus_open(&options, &gpus, &failure));
    assert_int_equal(harpe_gpus_count(gpus), 1024);
    for (int gpu = 0; gpu < 1024; gpu++)
        assert_int_equal(harpe_gpu_info_at(gpus, gpu)->driver_index, gpu);
    harpe_gpus_close(gpus);
}

int main(void) { return run_listed_tests_within(write_profile, remove_profile); }
