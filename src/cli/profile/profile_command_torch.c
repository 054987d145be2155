/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one GPU wait for another with PyTorch. Each GPU has one Python process. The first process
 * receives data that the second process sends only on request. Harpe itself does not compute on
 * GPUs, and users who train with pipelines usually have PyTorch. */
#include "cli/profile/profile_command_torch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup_process.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/terminal_progress.h"
#include "base/wait.h"
#include "cli/command.h"

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

static harpe_status start_both(harpe_torch_pair *pair, const char *python, const int gpus[2],
                               harpe_error *error) {
    int go[2] = {-1, -1}, lines[2] = {-1, -1};
    if (pipe2(go, O_CLOEXEC) != 0) return harpe_fail_errno(error, errno, "making a pipe");
    if (pipe2(lines, O_CLOEXEC) != 0) {
        harpe_status status = harpe_fail_errno(error, errno, "making a pipe");
        close(go[0]);
        close(go[1]);
        return status;
    }
    pair->go = go[1];
    pair->lines = lines[0];
    int failed = 0;
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
static harpe_status read_lines(harpe_torch_pair *pair, bool *is_waiting, harpe_error *error) {
    char text[1024];
    ssize_t length = read(pair->lines, text, sizeof text - 1);
    if (length <= 0) {
        return harpe_fail(
            error, HARPE_UNAVAILABLE,
            "the Python processes ended without a message; their output may show the reason");
    }
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

static harpe_status listen_once(harpe_torch_pair *pair, int milliseconds, bool *is_waiting,
                                harpe_error *error) {
    struct pollfd poller = {.fd = pair->lines, .events = POLLIN};
    if (harpe_poll(&poller, 1, milliseconds * INT64_C(1000000)) > 0)
        return read_lines(pair, is_waiting, error);
    return harpe_command_check_signal(error);
}

harpe_status harpe_torch_pair_check(harpe_torch_pair *pair, int milliseconds, harpe_error *error) {
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

harpe_status harpe_torch_pair_start(harpe_torch_pair *pair, const char *python, int gpu, int peer,
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
        if (status == HARPE_OK && !is_waiting && harpe_clock_ns() > end_ns) {
            status = harpe_fail(error, HARPE_UNAVAILABLE,
                                "no transfer between GPU %d and GPU %d after %d s; NCCL_DEBUG=INFO "
                                "shows what NCCL is doing",
                                gpu, peer, (int)(start_limit_ns / 1000000000));
        }
    }
    return after_a_signal(status, error);
}

static bool has_ended(int *pid) {
    if (*pid > 0 && waitpid(*pid, NULL, WNOHANG) != 0) *pid = 0;
    return *pid == 0;
}

void harpe_torch_pair_stop(harpe_torch_pair *pair) {
    if (pair->go >= 0) {
        close(pair->go);
        pair->go = -1;
    }
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
        pair->pids[i] = 0;
    }
    if (pair->lines >= 0) {
        close(pair->lines);
        pair->lines = -1;
    }
    if (pair->path[0]) {
        *strrchr(pair->path, '/') = '\0';
        harpe_remove_flat_directory(pair->path);
        pair->path[0] = '\0';
    }
    if (pair->cleanup_pipe >= 0) {
        close(pair->cleanup_pipe);
        pair->cleanup_pipe = -1;
    }
}
