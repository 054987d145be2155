/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe power-limit run -- CMD`: finds and holds the best power limit for a command that signals
 * its steps, as a member of a fleet if the user wants. There are two kinds of step signals: counts
 * in shared memory (harpe_power_limit_mark_step), and lines in a pipe (for any other language).
 * This file passes them to the optimizer, which sets the limits and measures. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process.h"
#include "base/token.h"
#include "base/wait.h"
#include "cli/command.h"
#include "cli/power_limit/power_limit_internal.h"
#include "http/client/connection.h"
#include "powerlimit/step_signal.h"

/* ---- The fleet ------------------------------------------------------------------------------- */

typedef struct member_flags {
    harpe_power_limit_fleet fleet;
    const char *token_file;
    char *token;     /* owned */
    const char *own; /* name of a flag that needs a server; NULL: none was given */
} member_flags;

enum {
    FLAG_SERVER = 0x700,
    FLAG_MEMBER,
    FLAG_GROUP,
    FLAG_WEIGHT,
    FLAG_MAX_SLOWDOWN,
    FLAG_HOLD,
    FLAG_TOKEN_FILE,
    FLAG_CA_FILE,
};

static const struct argp_option fleet_table[] = {
    {NULL, 0, NULL, 0, "Fleet:", 4},
    {"server", FLAG_SERVER, "URL", 0,
     "Be a member of the fleet of this server ($HARPE_SERVER; an empty URL: of none)", 4},
    {"member", FLAG_MEMBER, "NAME", 0, "Name of the member (default: made from host and job)", 4},
    {"group", FLAG_GROUP, "NAME", 0, "Group of the member (default: none)", 4},
    {"weight", FLAG_WEIGHT, "N", 0, "Value of the job's time (default 1)", 4},
    {"max-slowdown", FLAG_MAX_SLOWDOWN, "X", 0,
     "Accept at most X times the time of the fastest plan (default: any)", 4},
    {"hold", FLAG_HOLD, "SECONDS", 0,
     "Keep the fleet's limit so long if the server gives none (default 3600; inf: for ever)", 4},
    {"token-file", FLAG_TOKEN_FILE, "FILE", 0,
     "File whose first line is the server's bearer token (HARPE_TOKEN)", 4},
    {"ca-file", FLAG_CA_FILE, "FILE", 0, "Trust these certificate authorities (PEM)", 4},
    {0},
};

static void initialise(member_flags *flags) {
    *flags = (member_flags){.fleet = {.server_url = getenv("HARPE_SERVER")}};
}

static void check_complete(const struct argp_state *state, const member_flags *flags) {
    const char *url = flags->fleet.server_url;
    harpe_error error;
    if (flags->own && (!url || !*url))
        harpe_flag_fail(state, "--%s needs --server URL, or HARPE_SERVER", flags->own);
    if (url && *url && harpe_server_url_check("--server", url, &error) != HARPE_OK)
        harpe_flag_fail(state, "%s", error.message);
}

static double read_hold(const struct argp_state *state, const char *argument) {
    if (strcmp(argument, "inf") == 0) return INFINITY;
    return harpe_flag_double_above(state, "--hold", argument, 0, 1e9);
}

static error_t parse_fleet_flag(int key, char *argument, struct argp_state *state) {
    member_flags *flags = state->input;
    harpe_power_limit_fleet *fleet = &flags->fleet;
    const char *own = key > FLAG_SERVER ? harpe_flag_name(fleet_table, key) : NULL;
    if (own) flags->own = own;
    switch (key) {
    case ARGP_KEY_INIT: initialise(flags); return 0;
    case ARGP_KEY_SUCCESS: check_complete(state, flags); return 0;
    case FLAG_SERVER: fleet->server_url = argument; return 0;
    case FLAG_MEMBER: fleet->member = argument; return 0;
    case FLAG_GROUP: fleet->group = argument; return 0;
    case FLAG_WEIGHT:
        fleet->weight = harpe_flag_double_above(state, "--weight", argument, 0, 1e12);
        return 0;
    case FLAG_MAX_SLOWDOWN:
        fleet->max_slowdown = harpe_flag_double(state, "--max-slowdown", argument, 1, 1e9);
        return 0;
    case FLAG_HOLD: fleet->hold_s = read_hold(state, argument); return 0;
    case FLAG_TOKEN_FILE: flags->token_file = argument; return 0;
    case FLAG_CA_FILE: fleet->ca_file = argument; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp fleet_argp = {.options = fleet_table, .parser = parse_fleet_flag};

/* Reads the file of the token. Returns the fleet of the job in `*out`; NULL: none. */
static harpe_status finish_fleet(member_flags *flags, const harpe_power_limit_fleet **out,
                                 harpe_error *error) {
    harpe_power_limit_fleet *fleet = &flags->fleet;
    *out = NULL;
    if (!fleet->server_url || !*fleet->server_url) return HARPE_OK;
    if (flags->token_file) {
        harpe_status status =
            harpe_token_read(flags->token_file, "--token-file", &flags->token, error);
        if (status != HARPE_OK) return status;
        fleet->token = flags->token;
    }
    *out = fleet;
    return HARPE_OK;
}

static void free_fleet(member_flags *flags) {
    if (flags->token) explicit_bzero(flags->token, strlen(flags->token));
    free(flags->token);
    flags->token = NULL;
    flags->fleet.token = NULL;
}

/* ---- The channel of step signals ------------------------------------------------------------- */

/* The objects that the command gets, and what is read from them. */
typedef struct step_channel {
    harpe_step_memory *shared;
    int memory;    /* descriptor of `shared` */
    int lines;     /* read end of the pipe; does not block */
    int lines_end; /* the command's end of the pipe; -1 after it was passed on */
    int bell;      /* descriptor that becomes readable after a signal in the memory */
    uint64_t taken_steps, taken_epochs; /* steps and epochs already taken out of `shared` */
    pthread_t listener;
    atomic_bool is_over;
    bool has_listener;
} step_channel;

enum { PIPE_SIZE = 1 << 20 };

/* Opens the command's end of the pipe for reading and writing. A write then never raises SIGPIPE,
 * even after this process has died. The end does not block, so the command continues if this
 * process is stopped. */
static int open_lines_end(int write_end) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", write_end);
    int both_ends = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (both_ends < 0) { /* /proc is not available */
        (void)fcntl(write_end, F_SETFL, O_NONBLOCK);
        return write_end;
    }
    (void)close(write_end);
    return both_ends;
}

static harpe_status open_lines(step_channel *signals, harpe_error *error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return harpe_fail_errno(error, errno, "a pipe for step signals");
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE); /* it may stay smaller */
    signals->lines = ends[0];
    signals->lines_end = open_lines_end(ends[1]);
    return HARPE_OK;
}

static harpe_status open_memory(step_channel *signals, harpe_error *error) {
    size_t size = sizeof *signals->shared;
    signals->memory = memfd_create(HARPE_STEP_MEMORY_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (signals->memory < 0 || ftruncate(signals->memory, (off_t)size) != 0 ||
        fcntl(signals->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return harpe_fail_errno(error, errno, "memory for step signals");
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, signals->memory, 0);
    if (memory == MAP_FAILED) return harpe_fail_errno(error, errno, "memory for step signals");
    signals->shared = memory;
    signals->shared->magic = HARPE_STEP_MEMORY_MAGIC;
    return HARPE_OK;
}

static harpe_status set_environment(const step_channel *signals, harpe_error *error) {
    struct stat lines, memory;
    char number[16], pipe_name[48], memory_name[80];
    if (fstat(signals->lines_end, &lines) != 0 || fstat(signals->memory, &memory) != 0)
        return harpe_fail_errno(error, errno, "step signals");
    snprintf(number, sizeof number, "%d", signals->lines_end);
    snprintf(pipe_name, sizeof pipe_name, "%" PRIu64 ":%" PRIu64, (uint64_t)lines.st_dev,
             (uint64_t)lines.st_ino);
    snprintf(memory_name, sizeof memory_name, "%d:%" PRIu64 ":%" PRIu64 ":%ld", signals->memory,
             (uint64_t)memory.st_dev, (uint64_t)memory.st_ino, (long)harpe_process_self());
    bool is_set = setenv(HARPE_STEP_LINES_VARIABLE, number, 1) == 0 &&
                  setenv(HARPE_STEP_PIPE_VARIABLE, pipe_name, 1) == 0 &&
                  setenv(HARPE_STEP_MEMORY_VARIABLE, memory_name, 1) == 0;
    return is_set ? HARPE_OK : harpe_fail_memory(error);
}

/* See step_signal.c for the order of stores and loads. */
static void *listen_to_memory(void *argument) {
    step_channel *signals = argument;
    harpe_step_memory *shared = signals->shared;
    uint32_t told = 0;
    while (!atomic_load(&signals->is_over)) {
        uint32_t heard = atomic_load(&shared->bell);
        if (heard != told) {
            uint64_t one = 1;
            ssize_t ignored = write(signals->bell, &one, sizeof one);
            (void)ignored;
            told = heard;
        }
        atomic_store(&shared->is_parked, 1);
        if (atomic_load(&shared->bell) == told && !atomic_load(&signals->is_over))
            (void)harpe_wait_while(&shared->is_parked, 1, -1);
        atomic_store(&shared->is_parked, 0);
    }
    return NULL;
}

static harpe_status start_listener(step_channel *signals, harpe_error *error) {
    signals->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signals->bell < 0) return harpe_fail_errno(error, errno, "step signals");
    int failure = harpe_thread_start(&signals->listener, "harpe-steps", listen_to_memory, signals);
    if (failure) return harpe_fail_errno(error, failure, "a thread for step signals");
    signals->has_listener = true;
    return HARPE_OK;
}

static void stop_listener(step_channel *signals) {
    if (!signals->has_listener) return;
    atomic_store(&signals->is_over, true);
    atomic_store(&signals->shared->is_parked, 0);
    harpe_wake(&signals->shared->is_parked);
    harpe_thread_join(signals->listener);
}

static void close_one(int *descriptor) {
    if (*descriptor >= 0) (void)close(*descriptor);
    *descriptor = -1;
}

static void close_channel(step_channel *signals) {
    stop_listener(signals);
    if (signals->shared) (void)munmap(signals->shared, sizeof *signals->shared);
    close_one(&signals->memory);
    close_one(&signals->lines);
    close_one(&signals->lines_end);
    close_one(&signals->bell);
    signals->shared = NULL;
    signals->has_listener = false;
}

/* Makes the pipe and the memory, and sets the environment variables that name them. */
static harpe_status open_channel(step_channel *signals, harpe_error *error) {
    *signals = (step_channel){.memory = -1, .lines = -1, .lines_end = -1, .bell = -1};
    harpe_status status = open_lines(signals, error);
    if (status == HARPE_OK) status = open_memory(signals, error);
    if (status == HARPE_OK) status = set_environment(signals, error);
    if (status == HARPE_OK) status = start_listener(signals, error);
    if (status != HARPE_OK) close_channel(signals);
    return status;
}

/* Closes the command's end of the pipe in this process. Call it after the command has started.
 * Otherwise this process could not detect the end of the pipe. */
static void close_lines_end(step_channel *signals) {
    (void)close(signals->lines_end);
    signals->lines_end = -1;
}

/* Returns the next signal in the memory: 's' for a step, 'e' for an epoch, '\0' for none. */
static char next_signal(step_channel *signals) {
    const harpe_step_memory *shared = signals->shared;
    /* Epochs come first, because the steps before them have already been counted. */
    uint64_t epochs = atomic_load(&shared->epochs);
    uint64_t steps = atomic_load(&shared->steps);
    if (signals->taken_epochs < epochs) {
        bool is_known = epochs - signals->taken_epochs <= HARPE_STEP_EPOCHS;
        uint64_t at = signals->taken_epochs % HARPE_STEP_EPOCHS;
        if (!is_known || signals->taken_steps >= steps ||
            signals->taken_steps >= atomic_load(&shared->steps_at_epoch[at])) {
            signals->taken_epochs++;
            return 'e';
        }
    }
    if (signals->taken_steps >= steps) return '\0';
    signals->taken_steps++;
    return 's';
}

/* Takes all signals out of the memory at once, and counts them. */
static void take_all(step_channel *signals, uint64_t *steps, uint64_t *epochs) {
    uint64_t all_epochs = atomic_load(&signals->shared->epochs);
    uint64_t all_steps = atomic_load(&signals->shared->steps);
    *steps = all_steps - signals->taken_steps;
    *epochs = all_epochs - signals->taken_epochs;
    signals->taken_steps = all_steps;
    signals->taken_epochs = all_epochs;
}

/* ---- Flags ----------------------------------------------------------------------------------- */

typedef struct run_arguments {
    harpe_power_limit_flags flags;
    member_flags fleet_flags;
    const char *profile_path;
    char **command;
    bool json;
    bool without_guard;
} run_arguments;

/* The running command. */
typedef struct run_child {
    pid_t id;
    step_channel step_signals;
    int signals;   /* signalfd */
    int wait_code; /* valid after the command has ended */
    bool has_ended;
    char line[32]; /* the incomplete last line from the pipe */
    size_t line_length;
    bool is_catching_up; /* true from a change of limit until no step signal waits */
    int64_t step_count, epoch_count, unknown_count;
} run_child;

enum { FLAG_PROFILE_PATH = 0x600, FLAG_NO_GUARD };

static const struct argp_option flags_table[] = {
    {"profile", FLAG_PROFILE_PATH, "FILE", 0,
     "Use the measurements of an earlier run in this file, or write them for the next run", 1},
    {"no-guard", FLAG_NO_GUARD, NULL, 0,
     "Start no process that restores limits if this one is killed", 1},
    {"json", 'j', NULL, 0, "At the end print one JSON object on standard output", 5},
    {0},
};

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    run_arguments *arguments = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->flags;
        state->child_inputs[1] = &arguments->fleet_flags;
        return 0;
    case FLAG_PROFILE_PATH: arguments->profile_path = argument; return 0;
    case FLAG_NO_GUARD: arguments->without_guard = true; return 0;
    case 'j': arguments->json = true; return 0;
    case ARGP_KEY_ARG:
        arguments->command = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        if (!arguments->command)
            harpe_flag_fail(state, "the command is missing: harpe power-limit run -- CMD");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {
    {&harpe_power_limit_argp, 0, NULL, 0}, {&fleet_argp, 0, NULL, 0}, {0}};

static const struct argp argument_parser = {
    .options = flags_table,
    .parser = parse_flag,
    .args_doc = "-- CMD [ARG...]",
    .doc =
        "Find and hold the best power limit for a command. The command marks its steps: it writes "
        "a line 'step' when each step begins, and a line 'epoch' when each epoch ends, to the file "
        "descriptor in HARPE_STEP_FD, or it calls harpe_power_limit_mark_step.\vExample:\n  harpe "
        "power-limit run --profile resnet18.json -- ./train\n\nSee also: man harpe-power-limit",
    .children = children,
};

/* ---- The command ----------------------------------------------------------------------------- */

static int spawn_with(char *const *command, const step_channel *step_signals, const sigset_t *mask,
                      pid_t *id) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    /* These two descriptors stay open after exec. */
    posix_spawn_file_actions_adddup2(&actions, step_signals->lines_end, step_signals->lines_end);
    posix_spawn_file_actions_adddup2(&actions, step_signals->memory, step_signals->memory);
    int failure = harpe_command_spawn(command, &actions, mask, id);
    posix_spawn_file_actions_destroy(&actions);
    return failure;
}

static harpe_status start_command(char *const *command, run_child *child, harpe_error *error) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGCONT, 0};
    sigset_t mask, before;
    harpe_command_block(numbers, &mask, &before);
    child->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (child->signals < 0)
        return harpe_fail_errno(error, errno, "preparing to run '%.100s'", command[0]);
    harpe_status status = open_channel(&child->step_signals, error);
    if (status != HARPE_OK) return status;
    int failure = spawn_with(command, &child->step_signals, &before, &child->id);
    close_lines_end(&child->step_signals);
    if (failure) return harpe_fail_errno(error, failure, "running '%.100s'", command[0]);
    return HARPE_OK;
}

/* ---- Step signals ---------------------------------------------------------------------------- */

/* Setting a limit may take longer than a step. The steps that begin meanwhile are over when their
 * signals are read. They are skipped, because their windows would be too short. */
static void take_step(run_child *child, harpe_power_limit_optimizer *optimizer) {
    child->step_count++;
    if (child->is_catching_up) return;
    int limit_w = harpe_power_limit_current_w(optimizer);
    harpe_power_limit_on_step_begin(optimizer);
    child->is_catching_up = harpe_power_limit_current_w(optimizer) != limit_w;
}

static void take_epoch(run_child *child, harpe_power_limit_optimizer *optimizer) {
    child->epoch_count++;
    int limit_w = harpe_power_limit_current_w(optimizer);
    harpe_power_limit_on_epoch_end(optimizer);
    if (harpe_power_limit_current_w(optimizer) != limit_w) child->is_catching_up = true;
}

static void take_line(run_child *child, harpe_power_limit_optimizer *optimizer) {
    child->line[child->line_length] = '\0';
    if (strcmp(child->line, "step") == 0) {
        take_step(child, optimizer);
    } else if (strcmp(child->line, "epoch") == 0) {
        take_epoch(child, optimizer);
    } else if (child->line_length > 0 && child->unknown_count++ == 0) {
        fprintf(stderr, "harpe power-limit run: a line to HARPE_STEP_FD was neither 'step' nor "
                        "'epoch'\n");
    }
    child->line_length = 0;
}

static bool is_readable(int descriptor) { return harpe_events_now(descriptor, POLLIN) & POLLIN; }

/* Reads lines from the pipe once. Returns false if no process can write to the pipe any more, or if
 * there is nothing to read yet. */
static bool take_lines(run_child *child, harpe_power_limit_optimizer *optimizer) {
    char bytes[4096];
    ssize_t got = read(child->step_signals.lines, bytes, sizeof bytes);
    for (ssize_t i = 0; i < got; i++)
        if (bytes[i] == '\n')
            take_line(child, optimizer);
        else if (child->line_length < sizeof child->line - 1)
            child->line[child->line_length++] = bytes[i];
    return got > 0 || (got < 0 && errno == EINTR);
}

static void take_step_signals(run_child *child, harpe_power_limit_optimizer *optimizer) {
    uint64_t rings;
    ssize_t ignored = read(child->step_signals.bell, &rings, sizeof rings);
    (void)ignored;
    for (char kind; (kind = next_signal(&child->step_signals));)
        if (kind == 's')
            take_step(child, optimizer);
        else
            take_epoch(child, optimizer);
}

/* Catches up after this process was stopped. The steps that were signalled meanwhile are over, so
 * this function only counts them. The current measurement covers more than its own steps. The
 * function ends this measurement as at the end of an epoch, and the optimizer then measures the
 * same limit again. */
static void pass_over(run_child *child, harpe_power_limit_optimizer *optimizer) {
    uint64_t steps;
    uint64_t epochs;
    child->is_catching_up = true;
    while (take_lines(child, optimizer)) {
    }
    take_all(&child->step_signals, &steps, &epochs);
    child->step_count += (int64_t)steps;
    child->epoch_count += (int64_t)epochs;
    harpe_power_limit_on_epoch_end(optimizer);
}

/* Passes on signals that were sent only to this process. A signal of the terminal reaches the
 * command without help. */
static void take_signals(run_child *child, harpe_power_limit_optimizer *optimizer) {
    struct signalfd_siginfo info;
    while (read(child->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            child->has_ended =
                child->has_ended || waitpid(child->id, &child->wait_code, WNOHANG) == child->id;
        } else if (info.ssi_signo == SIGCONT) {
            pass_over(child, optimizer);
        } else if (info.ssi_code != SI_KERNEL && !child->has_ended) {
            (void)kill(child->id, (int)info.ssi_signo);
        }
    }
}

/* Counts all step signals that the command sent before its end. */
static void take_rest(run_child *child, harpe_power_limit_optimizer *optimizer) {
    take_step_signals(child, optimizer);
    while (take_lines(child, optimizer)) {
    }
}

static void follow(run_child *child, harpe_power_limit_optimizer *optimizer) {
    enum { SIGNALS, LINES, BELL, WAYS };
    struct pollfd ways[WAYS] = {{.fd = child->signals, .events = POLLIN},
                                {.fd = child->step_signals.lines, .events = POLLIN},
                                {.fd = child->step_signals.bell, .events = POLLIN}};
    while (!child->has_ended) {
        if (harpe_poll(ways, WAYS, -1) < 0) continue;
        take_signals(child, optimizer);
        if (ways[BELL].revents) take_step_signals(child, optimizer);
        /* The pipe is empty, and no process can write to it any more. */
        if (ways[LINES].revents && !take_lines(child, optimizer) && !(ways[LINES].revents & POLLIN))
            ways[LINES].fd = -1;
        if (!is_readable(child->step_signals.lines) && !is_readable(child->step_signals.bell))
            child->is_catching_up = false;
    }
    take_rest(child, optimizer);
}

/* ---- Telling --------------------------------------------------------------------------------- */

static harpe_status tell(const run_arguments *arguments, const run_child *child,
                         const harpe_power_limit_optimizer *optimizer, harpe_error *error) {
    bool has_failed = !optimizer || harpe_power_limit_has_failed(optimizer);
    if (arguments->json)
        return harpe_power_limit_print_json(&arguments->flags, optimizer, NULL,
                                            json_boolean(has_failed), child->step_count,
                                            child->epoch_count, error);
    harpe_power_limit_print_table(stderr, &arguments->flags, optimizer);
    if (has_failed) return HARPE_OK; /* the user has already seen the message */
    if (harpe_power_limit_is_done(optimizer)) {
        fprintf(stderr, "Optimum: %d W\n", harpe_power_limit_optimum_w(optimizer));
    } else if (child->step_count == 0) {
        fprintf(stderr,
                "harpe power-limit run: the command marked no steps: it should call "
                "harpe_power_limit_mark_step, or write a line 'step' to the file descriptor in "
                "HARPE_STEP_FD, as each begins; a launcher in between must not close this "
                "descriptor\n");
    } else {
        fprintf(stderr,
                "harpe power-limit run: ended after %lld steps, before all limits were "
                "measured\n",
                (long long)child->step_count);
    }
    return HARPE_OK;
}

/* ---- Running --------------------------------------------------------------------------------- */

/* The objects that set limits and measure. All are NULL if the GPUs cannot be used. */
typedef struct run_optimizer {
    harpe_gpus *gpus;
    harpe_power_limit_gpus *device;
    harpe_power_limit_optimizer *optimizer;
    harpe_text warnings; /* warnings about GPUs, not printed yet */
} run_optimizer;

/* Keeps a warning for later. If the GPUs cannot be used, the error says why, and the warning is not
 * printed. */
static void write_gpu_log(void *user, harpe_log_level level, const char *line) {
    run_optimizer *all = user;
    if (level < HARPE_LOG_WARNING) return;
    if (all->device)
        harpe_command_say("harpe power-limit run", line);
    else
        harpe_text_printf(&all->warnings, "harpe power-limit run: %s\n", line);
}

/* Prints warnings, and also what the member of a fleet reports about its server (INFO). */
static void write_log(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level >= HARPE_LOG_INFO) harpe_command_say("harpe power-limit run", line);
}

static harpe_status set_up(run_arguments *arguments, run_optimizer *all, harpe_error *error) {
    harpe_gpus_options gpu_options = {.log = {.write = write_gpu_log, .user = all}};
    harpe_status status = harpe_gpus_open(&gpu_options, &all->gpus, error);
    if (status == HARPE_OK) {
        status =
            harpe_power_limit_gpus_new(all->gpus, !arguments->without_guard, &all->device, error);
    }
    if (status != HARPE_OK) return status;
    if (all->warnings.data) fputs(all->warnings.data, stderr);
    const harpe_power_limit_device *functions = harpe_power_limit_gpus_device(all->device);
    harpe_power_limit_options *options = &arguments->flags.options;
    options->profile_path = arguments->profile_path;
    options->device_model = harpe_gpu_info_at(all->gpus, 0)->name;
    options->log = (harpe_log){.write = write_log};
    status = harpe_power_limit_flags_finish(&arguments->flags, functions->gpu_count, error);
    if (status != HARPE_OK) return status;
    return harpe_power_limit_optimizer_new(functions, options, &all->optimizer, error);
}

static void tear_down(run_optimizer *all) {
    harpe_power_limit_optimizer_free(all->optimizer);
    harpe_power_limit_gpus_free(all->device);
    harpe_gpus_close(all->gpus);
    harpe_text_free(&all->warnings);
    *all = (run_optimizer){0};
}

/* Returns true if the user made a mistake, such as naming a profile that cannot be used. Such a
 * mistake ends the program before a long job starts. If the GPUs caused the failure, the command
 * runs without an optimizer. */
static bool is_users_mistake(const run_optimizer *all, harpe_status status) {
    return all->device && (status == HARPE_INVALID_INPUT || status == HARPE_INVALID_ARGUMENT ||
                           status == HARPE_IO_ERROR || status == HARPE_LIMIT_EXCEEDED);
}

int harpe_power_limit_run_command(int argc, char **argv) {
    run_arguments arguments = {0};
    run_child child = {0};
    run_optimizer all = {0};
    harpe_error error;
    argp_parse(&argument_parser, argc, argv, ARGP_IN_ORDER, NULL, &arguments);
    harpe_status status =
        finish_fleet(&arguments.fleet_flags, &arguments.flags.options.fleet, &error);
    if (status != HARPE_OK) return harpe_command_fail("power-limit run", &error);
    status = set_up(&arguments, &all, &error);
    free_fleet(&arguments.fleet_flags); /* the optimizer has a copy of the token */
    if (status != HARPE_OK && !is_users_mistake(&all, status)) {
        tear_down(&all);
        fprintf(stderr,
                "harpe power-limit run: the command runs without power limit optimization: %s\n",
                error.message);
        status = HARPE_OK;
    }
    if (status == HARPE_OK) status = start_command(arguments.command, &child, &error);
    if (status == HARPE_OK) {
        follow(&child, all.optimizer);
        close_channel(&child.step_signals);
        status = tell(&arguments, &child, all.optimizer, &error);
    }
    tear_down(&all);
    return status == HARPE_OK ? harpe_command_exit_code(child.wait_code)
                              : harpe_command_fail("power-limit run", &error);
}
