/* SPDX-License-Identifier: Apache-2.0 */
/* What every subcommand of the program shares: the table's type, exit codes, how a failure is
 * told, how values of flags are read, how JSON is printed. No subcommand's own logic is here. */
#ifndef HARPE_CLI_COMMAND_H
#define HARPE_CLI_COMMAND_H

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include <harpe/status.h>

enum {
    HARPE_EXIT_OK = 0,
    HARPE_EXIT_FAILURE = 1,
    HARPE_EXIT_USAGE = 2,
    HARPE_EXIT_SIGNAL = 128, /* plus the signal's number */
};

/* One subcommand. `run` gets argv[0] = "harpe NAME" and returns the exit code. */
typedef struct harpe_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} harpe_command;

int harpe_plan_command(int argc, char **argv);
int harpe_choose_command(int argc, char **argv);
int harpe_evaluate_command(int argc, char **argv);
int harpe_synth_command(int argc, char **argv);
int harpe_gpus_command(int argc, char **argv);
int harpe_emulate_command(int argc, char **argv);
int harpe_monitor_command(int argc, char **argv);
int harpe_power_limit_command(int argc, char **argv);
int harpe_serve_command(int argc, char **argv);
int harpe_jobs_command(int argc, char **argv);
int harpe_store_command(int argc, char **argv);
int harpe_profile_command(int argc, char **argv);
int harpe_train_sim_command(int argc, char **argv);

/* Prints "harpe NAME: <message>" to stderr and returns the exit code that fits the failure: usage
 * for a value outside its documented range, 128 + signal after an interruption. */
int harpe_command_fail(const char *command, const harpe_error *error);

/* HARPE_INTERRUPTED once a signal has asked to stop. For work between progress reports. */
harpe_status harpe_command_check_signal(harpe_error *error);

/* Prints `value` (taking it over) as one JSON object on stdout. */
harpe_status harpe_command_print_json(json_t *value, harpe_error *error);
/* These print such an object in parts. Call harpe_command_print_json_rows once for each part of
 * the array `name` (`is_first`: this part begins the object), then harpe_command_print_json_end
 * with the other members, of which there is at least one (`others` is taken over). A closed
 * standard output is a failure. */
harpe_status harpe_command_print_json_rows(const char *name, const json_t *rows, bool is_first,
                                           harpe_error *error);
harpe_status harpe_command_print_json_end(json_t *others, harpe_error *error);

/* Prints "<before>: <line>" to stderr, without characters that a terminal would obey. For lines of
 * a log, which may contain texts from outside. */
void harpe_command_say(const char *before, const char *line);

/* A JSON string of any bytes: those that are not UTF-8 become '?'. */
json_t *harpe_command_json_text(const char *text);

/* "bold" escapes for headings: empty unless stdout is a terminal and NO_COLOR is unset. */
const char *harpe_bold_start(void);
const char *harpe_bold_end(void);

/* Values of flags, inside an argp parser: on a bad one they print one line that names the flag and
 * the value, and exit with HARPE_EXIT_USAGE. */
int harpe_flag_int(const struct argp_state *state, const char *flag, const char *text,
                   int64_t minimum, int64_t maximum);
double harpe_flag_double(const struct argp_state *state, const char *flag, const char *text,
                         double minimum, double maximum);
/* The same, and the minimum itself is refused. */
double harpe_flag_double_above(const struct argp_state *state, const char *flag, const char *text,
                               double minimum, double maximum);
/* Index of `text` in a NULL-terminated list of names. */
int harpe_flag_choice(const struct argp_state *state, const char *flag, const char *text,
                      const char *const *names);
/* One line and exit with HARPE_EXIT_USAGE. */
void harpe_flag_fail(const struct argp_state *state, const char *format, ...) HARPE_PRINTF(2, 3)
    __attribute__((noreturn));

/* The entry of a NULL-terminated list that is closest to a mistyped name, or NULL. Names of more
 * than 64 characters are not compared. */
const char *harpe_closest_name(const char *name, const char *const *names);

#endif
