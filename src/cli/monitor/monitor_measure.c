/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe monitor -- COMMAND`: runs a command inside an energy window and returns its exit
 * status. Signals are passed on to the command. The measurement is printed even if a signal has
 * ended the command. */
#include "cli/monitor/monitor_measure.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/monitor/monitor_session.h"

enum { WINDOW_NAME_SIZE = 256 };

/* ---- The command ----------------------------------------------------------------------------- */

/* Waits for the command. Passes on signals that were sent only to this process. A signal of the
 * terminal reaches the command without help. */
static int wait_for_command(pid_t child, const sigset_t *waited) {
    int status = 0;
    for (;;) {
        siginfo_t info;
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) break;
        if (ended < 0 && errno != EINTR) return HARPE_EXIT_FAILURE;
        int number = sigwaitinfo(waited, &info);
        if (number > 0 && number != SIGCHLD && info.si_code <= 0) kill(child, number);
    }
    return WIFSIGNALED(status) ? HARPE_EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

static void block_signals(sigset_t *waited, sigset_t *before) {
    sigemptyset(waited);
    sigaddset(waited, SIGCHLD);
    sigaddset(waited, SIGINT);
    sigaddset(waited, SIGQUIT);
    sigaddset(waited, SIGTERM);
    sigaddset(waited, SIGHUP);
    sigprocmask(SIG_BLOCK, waited, before);
}

static int run_command(char **command) {
    sigset_t waited;
    sigset_t before;
    pid_t child = -1;
    signal(SIGCHLD, SIG_DFL); /* if SIGCHLD were ignored, the exit status would be lost */
    block_signals(&waited, &before);
    int failed = harpe_command_spawn(command, NULL, &before, &child);
    int exit_code = failed == 0 ? wait_for_command(child, &waited)
                                : harpe_command_fail_to_run("monitor", command[0], failed);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return exit_code;
}

/* ---- The measurement ------------------------------------------------------------------------- */

/* Writes the command line, cut to a readable length, as the window's name in the log. */
static void name_window(char **command, char *name) {
    size_t length = 0;
    name[0] = '\0';
    for (char **word = command; *word && length + 1 < WINDOW_NAME_SIZE; word++) {
        int added = snprintf(name + length, WINDOW_NAME_SIZE - length, "%s%s",
                             word == command ? "" : " ", *word);
        length += added > 0 ? (size_t)added : 0;
    }
}

static harpe_status report(const harpe_monitor_request *request,
                           const harpe_monitor_session *session,
                           const harpe_window_measurement *measurement, int exit_code,
                           harpe_error *error) {
    if (!request->json) {
        fputs("harpe monitor: ", stderr);
        harpe_monitor_summary_print(stderr, session, measurement);
        return HARPE_OK;
    }
    json_t *object = harpe_monitor_summary_json(session, measurement);
    json_t *words = json_array();
    for (char **word = request->command; *word; word++)
        json_array_append_new(words, harpe_command_json_text(*word));
    json_object_set_new(object, "command", words);
    json_object_set_new(object, "exit_status", json_integer(exit_code));
    return harpe_command_print_json(object, error);
}

int harpe_monitor_measure(const harpe_monitor_request *request) {
    harpe_error error;
    harpe_monitor_session session = {0};
    harpe_window_measurement measurement = {0};
    char name[WINDOW_NAME_SIZE];
    int exit_code = HARPE_EXIT_OK;
    bool to_stdout = request->csv_path && strcmp(request->csv_path, "-") == 0;
    const char *log_path = to_stdout ? "/dev/stdout" : request->csv_path;
    harpe_status status = harpe_monitor_session_open(request, log_path, &session, &error);
    if (status != HARPE_OK) goto done;
    name_window(request->command, name);
    status = harpe_monitor_begin(session.monitor, name, false, &error);
    if (status != HARPE_OK) goto done;
    exit_code = run_command(request->command);
    status = harpe_monitor_end(session.monitor, name, false, &measurement, &error);
    if (status != HARPE_OK) goto done;
    status = report(request, &session, &measurement, exit_code, &error);
done:
    harpe_window_measurement_clear(&measurement);
    harpe_monitor_session_close(&session);
    if (status == HARPE_OK) return exit_code;
    int failed = harpe_command_fail("monitor", &error);
    /* A failure of the command is returned rather than a failure of the measurement. */
    return exit_code != HARPE_EXIT_OK ? exit_code : failed;
}
