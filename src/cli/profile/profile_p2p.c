/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe profile p2p`: makes a GPU wait for a peer, and measures its power during the wait. The
 * emulator has a function that makes a GPU wait. On real GPUs, PyTorch makes one wait as a training
 * job does: each GPU has one Python process, and the first process receives data that the second
 * process sends only on request. Harpe itself does not compute on GPUs, and users who train with
 * pipelines usually have PyTorch. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>

#include <harpe/monitor.h>

#include "base/cleanup_process.h"
#include "base/clock.h"
#include "base/wait.h"
#include "cli/cli.h"
#include "gpu/gpus.h"

typedef struct p2p_request {
    int gpu;
    int peer; /* -1: the next GPU */
    double duration_s;
    bool with_torch;    /* use PyTorch on emulated GPUs too */
    const char *python; /* a Python interpreter with PyTorch */
    bool json;
} p2p_request;

/* Two Python processes. The first process waits on its GPU for the second. */
typedef struct torch_pair {
    int pids[2];      /* 0: none */
    int go;           /* pipe; closing it ends the wait; -1: closed */
    int lines;        /* pipe with the output of both processes */
    char path[64];    /* file of the rendezvous */
    int cleanup_pipe; /* pipe to the cleanup process of the path's directory; -1: none */
} torch_pair;

static const int64_t start_limit_ns = 180000000000, end_limit_ns = 10000000000;

/* Arguments: rank, GPU, a file for the rendezvous. Prints "waiting", or "error" and the reason. The
 * receive operation of NCCL is a kernel that spins on the GPU. The first transfers set up the
 * connection. */
static const char script[] =
    "import datetime, os, sys\n"
    "def fail(reason):\n"
    "    print('error ' + ' '.join(str(reason).split())[:600], flush=True)\n"
    "    os._exit(1)\n"
    "try:\n"
    "    import torch\n"
    "    import torch.distributed as dist\n"
    "except Exception as error:\n"
    "    fail('%s has no PyTorch (%s); install torch, or name another --python'\n"
    "         % (sys.executable, error))\n"
    "rank, gpu, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]\n"
    "try:\n"
    "    if not torch.cuda.is_available() or torch.cuda.device_count() <= gpu:\n"
    "        fail('PyTorch sees %d GPUs, and GPU %d is needed; is this PyTorch built for GPUs?'\n"
    "             % (torch.cuda.device_count(), gpu))\n"
    "    torch.cuda.set_device(gpu)\n"
    "    dist.init_process_group('nccl', init_method='file://' + path, rank=rank, world_size=2,\n"
    "                            timeout=datetime.timedelta(days=2))\n"
    "    data = torch.ones(1 << 20, device='cuda')\n"
    "    for _ in range(3):\n"
    "        dist.recv(data, src=1) if rank == 0 else dist.send(data, dst=0)\n"
    "        torch.cuda.synchronize()\n"
    "    if rank == 0:\n"
    "        dist.recv(data, src=1)\n"
    "        print('waiting', flush=True)\n"
    "    else:\n"
    "        sys.stdin.read()\n"
    "        dist.send(data, dst=0)\n"
    "    torch.cuda.synchronize()\n"
    "except Exception as error:\n"
    "    fail(error)\n"
    "os._exit(0)\n";

/* ---- Processes ------------------------------------------------------------------------------- */

static int spawn(const char *python, int rank, int gpu, const char *path, int input, int output,
                 pid_t *pid) {
    char rank_text[16], gpu_text[16];
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    snprintf(gpu_text, sizeof gpu_text, "%d", gpu);
    char *arguments[] = {(char *)python, "-c", (char *)script, rank_text, gpu_text,
                         (char *)path,   NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    int result = posix_spawnp(pid, python, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return result;
}

static harpe_status start_both(torch_pair *pair, const char *python, const int gpus[2],
                               harpe_error *error) {
    int go[2] = {-1, -1}, lines[2] = {-1, -1};
    bool has_pipes = pipe2(go, O_CLOEXEC) == 0 && pipe2(lines, O_CLOEXEC) == 0;
    int failed = has_pipes ? 0 : errno;
    pair->go = go[1];
    pair->lines = lines[0];
    if (!has_pipes && go[0] >= 0) close(go[0]);
    if (!has_pipes) return harpe_fail_errno(error, failed, "making a pipe");
    for (int rank = 0; rank < 2 && failed == 0; rank++) {
        failed = spawn(python, rank, gpus[rank], pair->path, go[0], lines[1], &pair->pids[rank]);
        if (failed != 0) pair->pids[rank] = 0;
    }
    close(go[0]);
    close(lines[1]);
    if (failed == 0) return HARPE_OK;
    return harpe_fail_errno(error, failed, "starting %.200s (see --python)", python);
}

/* ---- Their output ---------------------------------------------------------------------------- */

/* Reads the available output: "waiting", or the reason for a failure. */
static harpe_status read_lines(torch_pair *pair, bool *is_waiting, harpe_error *error) {
    char text[1024];
    ssize_t length = read(pair->lines, text, sizeof text - 1);
    if (length <= 0)
        return harpe_fail(
            error, HARPE_UNAVAILABLE,
            "the Python processes ended without a message; their output may show the reason");
    text[length] = '\0';
    char *failure = strstr(text, "error ");
    if (failure) {
        failure[strcspn(failure, "\n")] = '\0';
        return harpe_fail(error, HARPE_UNAVAILABLE, "%s", failure + strlen("error "));
    }
    *is_waiting = *is_waiting || strstr(text, "waiting");
    return HARPE_OK;
}

/* Handles Ctrl-C, which reaches the processes in any order. This process may notice the end of the
 * Python processes before it receives its own signal. */
static harpe_status after_a_signal(harpe_status status, harpe_error *error) {
    if (status == HARPE_OK || status == HARPE_INTERRUPTED) return status;
    if (harpe_terminal_progress_signal() == 0) harpe_sleep_ns(50000000);
    return harpe_terminal_progress_signal() == 0 ? status : harpe_command_check_signal(error);
}

static harpe_status listen_once(torch_pair *pair, int milliseconds, bool *is_waiting,
                                harpe_error *error) {
    struct pollfd poller = {.fd = pair->lines, .events = POLLIN};
    if (harpe_poll(&poller, 1, milliseconds * INT64_C(1000000)) > 0)
        return read_lines(pair, is_waiting, error);
    return harpe_command_check_signal(error);
}

/* Sleeps for at most `milliseconds`, or until a signal arrives. Returns HARPE_OK if both processes
 * still run. */
static harpe_status check_pair(torch_pair *pair, int milliseconds, harpe_error *error) {
    bool is_waiting = true;
    harpe_status status = listen_once(pair, milliseconds, &is_waiting, error);
    for (int i = 0; i < 2 && status == HARPE_OK; i++) {
        if (waitpid(pair->pids[i], NULL, WNOHANG) == pair->pids[i]) {
            pair->pids[i] = 0;
            status =
                harpe_fail(error, HARPE_UNAVAILABLE,
                           "the Python process of rank %d ended while it should have waited", i);
        }
    }
    return after_a_signal(status, error);
}

/* Starts the pair, and returns when the first process waits. `pair` must be initialised with zeros.
 * Call stop_pair also after a failure. */
static harpe_status start_pair(torch_pair *pair, const char *python, int gpu, int peer,
                               harpe_error *error) {
    char directory[] = "/tmp/harpe-p2p-XXXXXX";
    if (!mkdtemp(directory)) return harpe_fail_errno(error, errno, "making a directory in /tmp");
    snprintf(pair->path, sizeof pair->path, "%s/meeting", directory);
    int gpus[2] = {gpu, peer};
    harpe_status status = harpe_cleanup_process_start(directory, &pair->cleanup_pipe, error);
    if (status == HARPE_OK) status = start_both(pair, python, gpus, error);
    bool is_waiting = false;
    int64_t end_ns = harpe_clock_ns() + start_limit_ns;
    while (status == HARPE_OK && !is_waiting) {
        status = listen_once(pair, 100, &is_waiting, error);
        if (status == HARPE_OK && !is_waiting && harpe_clock_ns() > end_ns)
            status = harpe_fail(error, HARPE_UNAVAILABLE,
                                "no transfer between GPU %d and GPU %d after %d s; NCCL_DEBUG=INFO "
                                "shows what NCCL is doing",
                                gpu, peer, (int)(start_limit_ns / 1000000000));
    }
    return after_a_signal(status, error);
}

static bool has_ended(int *pid) {
    if (*pid > 0 && waitpid(*pid, NULL, WNOHANG) != 0) *pid = 0;
    return *pid == 0;
}

/* Tells the processes to end, and kills them if they do not end. The pair is then of no use. */
static void stop_pair(torch_pair *pair) {
    if (pair->go >= 0) close(pair->go);
    /* If one process has ended, the other process waits forever. */
    bool is_alone = has_ended(&pair->pids[0]) || has_ended(&pair->pids[1]);
    int64_t end_ns = harpe_clock_ns() + (is_alone ? 0 : end_limit_ns);
    while ((!has_ended(&pair->pids[0]) || !has_ended(&pair->pids[1])) &&
           harpe_clock_ns() < end_ns && harpe_terminal_progress_signal() == 0)
        harpe_sleep_ns(10000000);
    for (int i = 0; i < 2; i++) {
        if (has_ended(&pair->pids[i])) continue;
        kill(pair->pids[i], SIGKILL);
        (void)waitpid(pair->pids[i], NULL, 0);
    }
    if (pair->lines >= 0) close(pair->lines);
    if (pair->path[0]) {
        *strrchr(pair->path, '/') = '\0';
        harpe_remove_flat_directory(pair->path);
    }
    if (pair->cleanup_pipe >= 0) close(pair->cleanup_pipe);
}

static const double settling_s = 2; /* time after which clocks and power of the GPU are steady */

typedef int (*emulator_wait)(unsigned int gpu, int waiting);

typedef struct wait_trial {
    const p2p_request *request;
    harpe_gpus *gpus;
    bool is_built_in; /* use the emulator's own function for waiting */
    torch_pair pair;
    double time_s, energy_j;
} wait_trial;

/* ---- Waiting --------------------------------------------------------------------------------- */

static harpe_status wait_on_emulator(harpe_gpus *gpus, int gpu, int waiting, harpe_error *error) {
    const harpe_gpu_info *info = harpe_gpu_info_at(gpus, gpu);
    const char *path = harpe_gpus_library_path(gpus);
    void *library = *path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *address = library ? dlsym(library, "harpe_emulator_wait") : NULL;
    emulator_wait wait = NULL;
    memcpy(&wait, &address, sizeof wait); /* ISO C does not convert between object and function
                                           * pointers */
    int code = wait ? wait((unsigned int)info->driver_index, waiting) : -1;
    if (library) dlclose(library);
    if (code == 0) return HARPE_OK;
    return harpe_fail(
        error, HARPE_DRIVER_ERROR,
        "GPU %d: the emulator could not make it wait (%d); is %s the emulator of this version?",
        gpu, code, *path ? path : "the driver library");
}

/* Waits for `time_s` seconds of GPU time. A signal or the end of a process ends the wait early. */
static harpe_status pass(wait_trial *trial, double time_s, harpe_error *error) {
    int64_t end_ns = harpe_gpus_clock_ns(trial->gpus) + (int64_t)(time_s * 1e9);
    harpe_status status = HARPE_OK;
    while (status == HARPE_OK && harpe_gpus_clock_ns(trial->gpus) < end_ns) {
        if (trial->is_built_in) {
            harpe_sleep_ns(5000000);
            status = harpe_command_check_signal(error);
        } else {
            status = check_pair(&trial->pair, 50, error);
        }
    }
    return status;
}

/* ---- Measuring ------------------------------------------------------------------------------- */

static harpe_status measure(wait_trial *trial, harpe_error *error) {
    const p2p_request *request = trial->request;
    harpe_monitor_options options = {
        .gpus = trial->gpus, .gpu_indices = &request->gpu, .gpu_count = 1};
    harpe_window_measurement measurement = {0};
    harpe_monitor *monitor = NULL;
    harpe_status status = harpe_monitor_new(&options, &monitor, error);
    if (status == HARPE_OK) status = pass(trial, settling_s, error);
    if (status == HARPE_OK) status = harpe_monitor_begin(monitor, "waiting", false, error);
    if (status == HARPE_OK) status = pass(trial, request->duration_s, error);
    if (status == HARPE_OK)
        status = harpe_monitor_end(monitor, "waiting", false, &measurement, error);
    if (status == HARPE_OK) {
        trial->time_s = measurement.time_s;
        trial->energy_j = measurement.gpu_energy_j[0];
    }
    harpe_window_measurement_clear(&measurement);
    harpe_monitor_free(monitor);
    return status;
}

static harpe_status check_gpus(const wait_trial *trial, int peer, harpe_error *error) {
    int gpu = trial->request->gpu, count = harpe_gpus_count(trial->gpus);
    if (gpu >= count)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "--gpu %d: there are %d GPUs visible here",
                          gpu, count);
    if (trial->is_built_in) return HARPE_OK;
    if (count < 2)
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "a GPU can only wait for another GPU, and only one is visible here; use "
                          "a machine with two GPUs of this kind, or 'harpe emulate'");
    if (peer >= count || peer == gpu)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--peer %d: expected another GPU than %d, below %d", peer, gpu, count);
    return HARPE_OK;
}

static harpe_status try_waiting(wait_trial *trial, harpe_error *error) {
    const p2p_request *request = trial->request;
    int count = harpe_gpus_count(trial->gpus);
    int peer = request->peer >= 0 ? request->peer : (request->gpu + 1) % count;
    trial->is_built_in = harpe_gpus_are_emulated(trial->gpus) && !request->with_torch;
    harpe_status status = check_gpus(trial, peer, error);
    if (status != HARPE_OK) return status;
    if (!trial->is_built_in) {
        status = start_pair(&trial->pair, request->python, request->gpu, peer, error);
        if (status == HARPE_OK) status = measure(trial, error);
        stop_pair(&trial->pair);
        return status;
    }
    status = wait_on_emulator(trial->gpus, request->gpu, 1, error);
    if (status != HARPE_OK) return status;
    status = measure(trial, error);
    (void)wait_on_emulator(trial->gpus, request->gpu, 0, NULL);
    return status;
}

/* ---- The result ------------------------------------------------------------------------------ */

static harpe_status print_answer(const wait_trial *trial, harpe_error *error) {
    const p2p_request *request = trial->request;
    const harpe_gpu_info *info = harpe_gpu_info_at(trial->gpus, request->gpu);
    bool is_emulated = harpe_gpus_are_emulated(trial->gpus);
    double power_w = trial->energy_j / trial->time_s;
    char option[64];
    snprintf(option, sizeof option, "--p2p-power %.4g", power_w);
    if (request->json) {
        json_t *object =
            json_pack("{s:i, s:o, s:b, s:s, s:f, s:f, s:f, s:s}", "gpu", request->gpu, "name",
                      harpe_command_json_text(info->name), "emulated", is_emulated, "method",
                      trial->is_built_in ? "emulator" : "torch", "time_s", trial->time_s,
                      "energy_j", trial->energy_j, "power_w", power_w, "option", option);
        return harpe_command_print_json(object, error);
    }
    printf("GPU %d (%s)%s drew %.2f W while it waited %.1f s for a peer.\n", request->gpu,
           info->name, is_emulated ? ", emulated," : "", power_w, trial->time_s);
    printf("Plan with: %sharpe plan %s%s ...\n", harpe_bold_start(), option, harpe_bold_end());
    return HARPE_OK;
}

static harpe_status run(const p2p_request *request, harpe_error *error) {
    wait_trial trial = {.request = request, .pair = {.go = -1, .lines = -1, .cleanup_pipe = -1}};
    harpe_status status = harpe_gpus_open(NULL, &trial.gpus, error);
    if (status != HARPE_OK) return status;
    status = try_waiting(&trial, error);
    if (status == HARPE_OK) status = print_answer(&trial, error);
    harpe_gpus_close(trial.gpus);
    return status;
}

/* ---- The command ----------------------------------------------------------------------------- */

static const harpe_flag flags[] = {
    {"gpu", 'g', "N", "The GPU that waits (default 0)", 1, HARPE_INTO(p2p_request, gpu), 0, 4095},
    {"peer", 0, "N", "The GPU for which it waits (default: the next GPU)", 1,
     HARPE_INTO(p2p_request, peer), 0, 4095},
    {"duration", 'd', "S", "How long to measure (default 60)", 1,
     HARPE_INTO(p2p_request, duration_s), 0.1, 86400},
    {"torch", 0, NULL, "Use PyTorch on emulated GPUs too", 1, HARPE_INTO(p2p_request, with_torch)},
    {"python", 0, "PROGRAM", "A Python interpreter with PyTorch (default python3)", 1,
     HARPE_INTO(p2p_request, python)},
    {.help = "Output:", .group = 2},
    {"json", 'j', NULL, "Print JSON", 2, HARPE_INTO(p2p_request, json)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .refusal = "is not a flag",
    .about = "Measure the power of a GPU that is blocked on a peer: --p2p-power of harpe plan."
             "\vOn real GPUs two processes of PyTorch (torch.distributed, NCCL) take part; "
             "emulated GPUs need none.\n\nExamples:\n"
             "  harpe profile p2p\n"
             "  harpe emulate --gpus 2xA100 -- harpe profile p2p --duration 5\n\n"
             "See also: man harpe-profile",
};

int harpe_profile_p2p_command(int argc, char **argv) {
    p2p_request request = {.peer = -1, .duration_s = 60, .python = "python3"};
    (void)harpe_command_line_read(&command_line, argc, argv, &request);
    harpe_error error;
    harpe_status status = run(&request, &error);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("profile", &error);
}
