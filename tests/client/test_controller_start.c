/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a frequency controller, and thus of any helper process, while the starter receives
 * signals all the time, or on a kernel that lacks a required call. */
#include "test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <harpe/frequency_controller.h>

static harpe_gpus *gpus;

static void remove_cluster(void) {
    char path[160];
    snprintf(path, sizeof path, "/harpe-emulator-%u-test-start-%d", (unsigned)getuid(),
             (int)getpid());
    shm_unlink(path);
}

static int start_machine(void **state) {
    (void)state;
    char name[64];
    remove_cluster();
    snprintf(name, sizeof name, "test-start-%d", (int)getpid());
    setenv("HARPE_EMULATOR_CLUSTER", name, 1);
    setenv("HARPE_EMULATOR_GPUS", "1xA40", 1);
    setenv("HARPE_NVML_LIBRARY", HARPE_BINARY_DIR "/emulator/libnvidia-ml.so.1", 1);
    setenv("HARPE_PROGRAM", HARPE_BINARY_DIR "/harpe", 1);
    unsetenv("HARPE_EMULATOR_FAULTS");
    unsetenv("HARPE_EMULATOR_FAULTS_FILE");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("ZEUSD_SOCK_PATH");
    return harpe_gpus_open(NULL, &gpus, NULL) == HARPE_OK ? 0 : -1;
}

static int stop_machine(void **state) {
    (void)state;
    harpe_gpus_close(gpus);
    remove_cluster();
    return 0;
}

/* ---- Children -------------------------------------------------------------------------------- */

/* Runs in a child of the test, so that changes to its process end with it. */
static int in_a_child(int (*function)(void *argument), void *argument) {
    int ended = -1;
    pid_t child = fork();
    if (child == 0) _exit(function(argument));
    assert_int_equal(waitpid(child, &ended, 0), child);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

/* ---- Signals --------------------------------------------------------------------------------- */

static _Atomic int *wrong_handlers; /* shared memory */
static pid_t starter;

static void note_process(int number) {
    (void)number;
    if (getpid() != starter) atomic_fetch_add(wrong_handlers, 1);
}

static void *signal_the_group(void *argument) {
    const atomic_bool *is_over = argument;
    while (!atomic_load(is_over)) {
        kill(0, SIGTERM);
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return NULL;
}

static int start_amid_signals(void *unused) {
    (void)unused;
    struct sigaction action = {.sa_handler = note_process, .sa_flags = SA_RESTART};
    pthread_t thread;
    atomic_bool is_over = false;
    int failed = 0;
    starter = getpid();
    setpgid(0, 0);
    sigaction(SIGTERM, &action, NULL);
    if (pthread_create(&thread, NULL, signal_the_group, &is_over) != 0) return 100;
    for (int i = 0; i < 5; i++) {
        harpe_frequency_controller_options options = {.gpus = gpus};
        harpe_frequency_controller *one = NULL;
        failed += harpe_frequency_controller_start(&options, &one, NULL) != HARPE_OK;
        harpe_frequency_controller_stop(one);
    }
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    return failed;
}

TEST(the_starters_signal_handlers_run_in_no_other_process) {
    wrong_handlers = mmap(NULL, sizeof *wrong_handlers, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(wrong_handlers, MAP_FAILED);
    assert_int_equal(in_a_child(start_amid_signals, NULL), 0);
    assert_int_equal(atomic_load(wrong_handlers), 0);
    munmap((void *)wrong_handlers, sizeof *wrong_handlers);
}

/* ---- Kernels --------------------------------------------------------------------------------- */

typedef struct missing_call {
    unsigned number;
    unsigned code;
    const char *name;
} missing_call;

/* The exit code gives the reason. */
static int start_without(void *argument) {
    const missing_call *missing = argument;
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, missing->number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | missing->code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof rules / sizeof rules[0], .filter = rules};
    harpe_frequency_controller_options options = {.gpus = gpus};
    harpe_frequency_controller *one = NULL;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) return 2;
    if (harpe_frequency_controller_start(&options, &one, &failure) != HARPE_NOT_SUPPORTED) return 3;
    return strstr(failure.message, missing->name) && strstr(failure.message, "Linux 5.9") ? 0 : 4;
}

TEST(a_kernel_that_is_too_old_is_told) {
    missing_call calls[] = {{SYS_pidfd_open, ENOSYS, "pidfd_open"},
                            {SYS_close_range, ENOSYS, "close_range"},
                            {SYS_close_range, EPERM, "close_range"}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        assert_int_equal(in_a_child(start_without, &calls[i]), 0);
}

TEST(without_the_program_nothing_starts) {
    harpe_frequency_controller *one = NULL;
    harpe_frequency_controller_options options = {.gpus = gpus};
    setenv("HARPE_PROGRAM", "/nowhere/harpe", 1);
    assert_int_equal(harpe_frequency_controller_start(&options, &one, &failure), HARPE_NOT_FOUND);
    assert_null(one);
    setenv("HARPE_PROGRAM", HARPE_BINARY_DIR "/harpe", 1);
}

int main(void) { return run_listed_tests_within(start_machine, stop_machine); }
