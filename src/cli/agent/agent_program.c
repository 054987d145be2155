/* SPDX-License-Identifier: Apache-2.0 */
/* The program `harpe-agent`: the node agent, which `harpe agent` starts, and the processes that it
 * starts. It is a program of its own so that a process of root maps few libraries. Clients of the
 * agent are in the program `harpe`. */
#include "agent/agent.h"
#include "base/version.h"
#include "cli/cli.h"
#include "client/control.h"
#include "lease/lease.h"
#include "power_limit/guard.h"

typedef struct agent_arguments {
    harpe_agent_options options;
    bool is_quiet;
} agent_arguments;

/* ---- Flags ----------------------------------------------------------------------------------- */

/* Reads "ADDR:PORT" or "[ADDR6]:PORT". */
static void give_address(const struct argp_state *state, const char *flag, char *text,
                         const char **address, int *out_port) {
    enum { PORT_MAX = 65535 };
    int64_t port = -1;
    char *colon = strrchr(text, ':');
    bool is_port = colon && harpe_parse_int(colon + 1, strlen(colon + 1), &port) && port >= 0 &&
                   port <= PORT_MAX;
    if (!is_port || colon == text)
        harpe_flag_fail(state, "%s: '%s' is not ADDR:PORT, such as 127.0.0.1:9787", flag, text);
    *colon = '\0';
    if (*text == '[' && colon[-1] == ']') {
        colon[-1] = '\0';
        text++;
    } else if (strchr(text, ':')) {
        harpe_flag_fail(state, "%s: an IPv6 address needs brackets: [%s]:%s", flag, text,
                        colon + 1);
    }
    *address = text;
    *out_port = (int)port;
}

static void give_zeusd(void *into, struct argp_state *state, const char *flag, char *text) {
    harpe_agent_options *options = into;
    give_address(state, flag, text, &options->zeusd_address, &options->zeusd_port);
}

static void give_metrics(void *into, struct argp_state *state, const char *flag, char *text) {
    harpe_agent_options *options = into;
    give_address(state, flag, text, &options->metrics_address, &options->metrics_port);
}

static const harpe_flag flags[] = {
    {"socket", 0, "PATH",
     "Unix-domain socket for clients ($HARPE_AGENT_SOCKET or " HARPE_AGENT_SOCKET_PATH ")", 1,
     HARPE_INTO(agent_arguments, options.socket)},
    {"state-dir", 0, "DIR",
     "Keep the files of leases in DIR (/run/harpe; a restart of the machine empties it)", 1,
     HARPE_INTO(agent_arguments, options.state_dir)},
    {"config", 0, "FILE",
     "Read the rules from FILE (/etc/harpe/agent.conf, if there is such a file)", 1,
     HARPE_INTO(agent_arguments, options.config)},
    {"metrics-listen", 0, "ADDR:PORT",
     "Serve /metrics for Prometheus on this address, such as 127.0.0.1:9787 (off)", 1,
     HARPE_READ(give_metrics, agent_arguments, options)},
    {"zeusd-socket", 0, "PATH", "Also answer the routes of zeusd on this Unix-domain socket", 2,
     HARPE_INTO(agent_arguments, options.zeusd_socket)},
    {"zeusd-listen", 0, "ADDR:PORT", "Also answer the routes of zeusd on TCP; needs --zeusd-key", 2,
     HARPE_READ(give_zeusd, agent_arguments, options)},
    {"zeusd-key", 0, "FILE", "Check the tokens of TCP clients with the signing key in FILE", 2,
     HARPE_INTO(agent_arguments, options.zeusd_key)},
    {"zeusd-no-restore", 0, NULL, "Leave what clients of zeusd's routes have set, as zeusd does", 2,
     HARPE_INTO(agent_arguments, options.zeusd_no_restore)},
    {"quiet", 'q', NULL, "Log warnings and errors only", 3, HARPE_INTO(agent_arguments, is_quiet)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .refusal = "is none of hold, status and restore",
    .forms = "\nhold|status|restore [OPTION...]",
    .about = "The node agent: lends the clocks and power limits of this machine's GPUs to "
             "processes without privileges, and restores the GPUs when these processes end. It "
             "needs the privilege to change GPUs (root). It runs in the foreground until SIGTERM.\v"
             "Subcommands:\n"
             "  hold      Run a command while GPUs have a clock or power limit\n"
             "  status    Show the leases of the agent\n"
             "  restore   End leases, which restores their GPUs\n\n"
             "See also: man harpe-agent",
};

static void check_usage(const harpe_agent_options *options, const struct argp_state *state) {
    if (options->zeusd_key && !options->zeusd_address)
        harpe_flag_fail(state, "--zeusd-key needs --zeusd-listen");
    if (options->zeusd_address && !options->zeusd_key)
        harpe_flag_fail(state, "--zeusd-listen needs --zeusd-key");
    if (options->zeusd_no_restore && !options->zeusd_address && !options->zeusd_socket)
        harpe_flag_fail(state, "--zeusd-no-restore needs --zeusd-socket or --zeusd-listen");
}

/* ---- Log ------------------------------------------------------------------------------------- */

static void print_line(void *user, harpe_log_level level, const char *line) {
    const agent_arguments *arguments = user;
    static const char *const before[] = {"harpe agent", "harpe agent", "harpe agent: warning",
                                         "harpe agent: error"};
    if (level >= (arguments->is_quiet ? HARPE_LOG_WARNING : HARPE_LOG_INFO))
        harpe_command_say(before[level], line);
}

/* ---- The program ----------------------------------------------------------------------------- */

static void print_version(FILE *stream, struct argp_state *state) {
    (void)state;
    fprintf(stream, "harpe %s%s\n", harpe_build_version(), harpe_command_sanitizers());
}

/* Makes the agent start this program, and no other, for its receivers and helper processes. */
static void start_own_program(void) {
    char *program = realpath("/proc/self/exe", NULL);
    if (program) (void)setenv("HARPE_PROGRAM", program, 1);
    free(program);
}

static int run_agent(int argc, char **argv) {
    agent_arguments arguments = {.is_quiet = false};
    harpe_error error;
    char name[] = "harpe agent"; /* in argp's messages */
    argv[0] = name;
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    check_usage(&arguments.options, &state);
    arguments.options.socket = harpe_lease_agent_socket(arguments.options.socket);
    arguments.options.log = (harpe_log){.write = print_line, .user = &arguments};
    harpe_command_leave_signals();
    start_own_program();
    harpe_status status = harpe_agent_run(&arguments.options, &error);
    if (status == HARPE_OK) return HARPE_EXIT_OK;
    int code = harpe_command_fail("agent", &error);
    /* A rule is invalid. systemd does not start the agent again after this exit status. */
    return status == HARPE_INVALID_INPUT ? HARPE_EXIT_USAGE : code;
}

static bool is_argument(int argc, char **argv, int index, const char *text) {
    return index < argc && strcmp(argv[index], text) == 0;
}

int main(int argc, char **argv) {
    harpe_command_prepare(print_version);
    if (is_argument(argc, argv, 1, HARPE_CONTROLLER_ARGUMENT))
        return harpe_controller_main(argc, argv);
    if (is_argument(argc, argv, 1, HARPE_RECEIVER_ARGUMENT)) return harpe_receiver_main(argc, argv);
    if (is_argument(argc, argv, 2, HARPE_GUARD_ARGUMENT))
        return harpe_power_limit_guard_main(argc, argv);
    return run_agent(argc, argv);
}
