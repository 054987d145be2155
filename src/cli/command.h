/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions for all subcommands: the type of the table, exit codes, and functions that prepare
 * the process, report a failure, run a command of the user, read flags and print JSON. */
#ifndef HARPE_CLI_COMMAND_H
#define HARPE_CLI_COMMAND_H

#include <argp.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "base/text.h"

enum {
    HARPE_EXIT_OK = 0,
    HARPE_EXIT_FAILURE = 1,
    HARPE_EXIT_USAGE = 2,
    HARPE_EXIT_CANNOT_RUN = 126, /* these two are the exit codes of env(1) */
    HARPE_EXIT_NO_SUCH_COMMAND = 127,
    HARPE_EXIT_SIGNAL = 128, /* plus the signal's number */
};

/* A subcommand. `run` receives argv[0] = "harpe NAME" and returns the exit code. */
typedef struct harpe_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} harpe_command;

/* Runs the command `argv[0]` of a table of `count` rows, whose names in messages begin with
 * `before`, such as "harpe agent". Returns -1 if the table does not have it. */
int harpe_command_dispatch(const harpe_command *table, size_t count, const char *before, int argc,
                           char **argv);

/* Prepares the process of a program: its standard streams, its signals and argp. `print_version` is
 * called for --version. Call it first. */
void harpe_command_prepare(void (*print_version)(FILE *, struct argp_state *));

/* Returns what the version says about sanitizers: empty, or "; address sanitizer". */
const char *harpe_command_sanitizers(void);

/* Prints "harpe NAME: <message>" to stderr and returns the matching exit code: HARPE_EXIT_USAGE for
 * a value outside of its documented range, 128 + the signal's number after an interruption. */
int harpe_command_fail(const char *command, const harpe_error *error);

/* Returns HARPE_INTERRUPTED if a signal has asked the program to stop. Call it during work that
 * reports no progress. */
harpe_status harpe_command_check_signal(harpe_error *error);
/* Returns false if a signal has asked the program to stop. It is a harpe_connection's `go_on`, so
 * that a signal ends a request that hangs. */
bool harpe_command_goes_on(void *user);

/* Fails with HARPE_ALREADY_EXISTS if `path` exists, unless `force` is true. `path` may be NULL. */
harpe_status harpe_command_check_output(const char *path, bool force, harpe_error *error);

/* Prints `value` as one JSON value on stdout, usually an object, and releases it. */
harpe_status harpe_command_print_json(json_t *value, harpe_error *error);
/* Print an object in parts. Call harpe_command_print_json_rows once for each part of the array
 * `name`; `is_first` is true for the first part. Then call harpe_command_print_json_end with the
 * other members, of which there must be at least one. `others` is released. A closed standard
 * output is a failure. */
harpe_status harpe_command_print_json_rows(const char *name, const json_t *rows, bool is_first,
                                           harpe_error *error);
harpe_status harpe_command_print_json_end(json_t *others, harpe_error *error);

/* Adds a text to a list of notes, unless it is empty or memory ran out, and clears the text. */
void harpe_command_add_note(json_t *notes, harpe_text *text);
/* Prints each note to stderr as "harpe NAME: <note>", and releases the list. */
void harpe_command_print_notes(const char *name, json_t *notes);

/* Writes what was printed. A closed standard output is a failure. */
harpe_status harpe_command_flush(harpe_error *error);
/* Writes a text to a file, or prints it if `path` is NULL; a failed print is noticed at exit. Frees
 * the text, and fails if there was no memory for it. */
harpe_status harpe_command_write(const char *path, harpe_text *text, harpe_error *error);

/* Appends `value` as JSON on one line, without characters that can control a terminal. `text` fails
 * if memory runs out. */
void harpe_command_append_json_line(harpe_text *text, const json_t *value);

/* Prints "<before>: <line>" to stderr, without characters that can control a terminal. It is used
 * for log lines, which may contain texts from outside. */
void harpe_command_say(const char *before, const char *line);
/* Returns a log that prints warnings and errors with harpe_command_say, and drops other lines.
 * `before` must stay valid. */
harpe_log harpe_command_log(const char *before);

/* Returns a JSON number, or null if the value is not finite, which stands for not known. */
json_t *harpe_command_json_number(double value);
/* Returns a JSON string. `text` may contain any bytes; bytes that are not UTF-8 become '?'. */
json_t *harpe_command_json_text(const char *text);

/* Starts a command of the user, which is searched in PATH. The command gets the signal mask `mask`,
 * and does not ignore the signals that only this program ignores. `actions` are for its
 * descriptors; NULL: none. Returns 0 or an errno. */
int harpe_command_spawn(char *const *command, const posix_spawn_file_actions_t *actions,
                        const sigset_t *mask, pid_t *child);
/* Prints "harpe NAME: cannot run '<program>': <reason>" to stderr for a command of the user that
 * could not be started, and returns the exit code. `code` is an errno. */
int harpe_command_fail_to_run(const char *name, const char *program, int code);

/* Returns the exit code for the wait status of a command: its own, or 128 + the signal's number. */
int harpe_command_exit_code(int wait_status);
/* Blocks the signals of a list that ends with 0. Stores them in `*blocked`, and the signals that
 * were blocked before in `*before`. */
void harpe_command_block(const int *numbers, sigset_t *blocked, sigset_t *before);
/* Runs a command of the user with the signal mask `mask`, and returns its exit code. The signals
 * `waited`, one of which is SIGCHLD, must be blocked. Those that are sent only to this process are
 * passed on; a signal of the terminal reaches the command without help. */
int harpe_command_run(const char *name, char *const *command, const sigset_t *waited,
                      const sigset_t *mask);
/* Restores the default handlers of the signals that a server's loop receives as events. */
void harpe_command_leave_signals(void);

/* Returns the width of the terminal, or 0 if stdout is not a terminal. Rows may then have any
 * width. */
int harpe_command_columns(void);
/* Returns escapes for bold headings; empty unless stdout is a terminal and NO_COLOR is unset. */
const char *harpe_bold_start(void);
const char *harpe_bold_end(void);

/* ---- Command lines --------------------------------------------------------------------------- */

/* Reads a value that needs code of its own. `into` points to the member that the flag's row
 * names, and `flag` is the name of the flag in messages. A wrong value ends in harpe_flag_fail. */
typedef void harpe_flag_reader(void *into, struct argp_state *state, const char *flag, char *text);

/* The type of the member that gets a flag's value. */
typedef enum harpe_flag_kind {
    HARPE_FLAG_SWITCH = 1, /* bool: becomes true */
    HARPE_FLAG_TEXT,       /* const char * */
    HARPE_FLAG_WHOLE,      /* int, or an enum whose values are the indices of names */
    HARPE_FLAG_WIDE,       /* int64_t or uint64_t */
    HARPE_FLAG_NUMBER,     /* double */
} harpe_flag_kind;

/* A flag or a word of a command: its text in --help, and the member of the command's arguments that
 * gets its value. A row without a name is a heading of --help, and an empty row ends a table.
 * A text whose row has a range must be a number. */
typedef struct harpe_flag {
    const char *name;  /* without "--" */
    int letter;        /* 'q' for -q; 0: none */
    const char *value; /* what --help calls the value; NULL: there is no value */
    const char *help;
    int group;            /* in --help, the flags of a group stand together */
    size_t at;            /* offset of the member; HARPE_INTO sets `at` and `kind` */
    harpe_flag_kind kind; /* 0: `read` reads the value */
    double minimum, maximum;
    const char *const *names; /* the value is one of these names; ends with NULL */
    harpe_flag_reader *read;
    size_t given;   /* offset of a bool that becomes true if the flag is given; 0: none */
    double divisor; /* the number is divided by this; 0: by 1 */
    bool is_above;  /* the number must be greater than the minimum */
    int how;        /* OPTION_ALIAS of the row before, OPTION_HIDDEN or OPTION_ARG_OPTIONAL */
} harpe_flag;

/* Names the member of a struct that gets the value. */
#define HARPE_INTO(type, member) \
    .at = offsetof(type, member), .kind = _Generic(((type *)NULL)->member, \
                                                   bool: HARPE_FLAG_SWITCH, \
                                                   const char *: HARPE_FLAG_TEXT, \
                                                   int64_t: HARPE_FLAG_WIDE, \
                                                   uint64_t: HARPE_FLAG_WIDE, \
                                                   double: HARPE_FLAG_NUMBER, \
                                                   int: HARPE_FLAG_WHOLE, \
                                                   unsigned: HARPE_FLAG_WHOLE)
/* Names the function that reads the value, and the member that it gets. */
#define HARPE_READ(function, type, member) .read = (function), .at = offsetof(type, member)

/* Flags whose members are in one struct, and the place of the struct in the command's arguments. */
typedef struct harpe_flag_part {
    const harpe_flag *flags;
    size_t at;
    int group; /* is added to the groups of the flags */
} harpe_flag_part;

/* How a command is called. */
typedef struct harpe_command_line {
    harpe_flag_part parts[4]; /* ends with an empty part */
    const harpe_flag *words; /* words in their order; NULL: none. A word with `read` takes all words
                              * from its place on. */
    size_t command; /* offset of a char **, which gets the user's command: all words from the first
                     * on; 0: none. Flags after the first word are then part of the command. */
    bool is_in_order;    /* the words decide which flags may follow */
    const char *refusal; /* text about a word too many; NULL: the word is unexpected */
    const char *forms;   /* the forms of the words in --help, a line each; NULL: no words */
    const char *about;   /* the text of --help: above the flags, "\v", below the flags */
    void (*more_help)(harpe_text *text); /* appends the last lines of --help; NULL: none */
} harpe_command_line;

/* Reads a command line into `arguments`, which has its defaults. Prints help, or one line about a
 * mistake, and then exits. Returns a state for harpe_flag_fail, so that the caller can check how
 * values fit together. */
struct argp_state harpe_command_line_read(const harpe_command_line *line, int argc, char **argv,
                                          void *arguments);

/* These functions read the values of flags. For an invalid value, they print one line with the flag
 * and the value, and exit with HARPE_EXIT_USAGE. */
int harpe_flag_int(const struct argp_state *state, const char *flag, const char *text,
                   int64_t minimum, int64_t maximum);
double harpe_flag_double(const struct argp_state *state, const char *flag, const char *text,
                         double minimum, double maximum);
/* Reads a number that must be greater than the minimum. */
double harpe_flag_double_above(const struct argp_state *state, const char *flag, const char *text,
                               double minimum, double maximum);
/* Returns the index of `text` in a NULL-terminated list of names. */
int harpe_flag_choice(const struct argp_state *state, const char *flag, const char *text,
                      const char *const *names);
/* Prints one line and exits with HARPE_EXIT_USAGE. */
void harpe_flag_fail(const struct argp_state *state, const char *format, ...) HARPE_PRINTF(2, 3)
    __attribute__((noreturn));

/* Returns the entry of a NULL-terminated list that is closest to a mistyped name, or NULL. Names
 * of more than 64 characters are not compared. */
const char *harpe_closest_name(const char *name, const char *const *names);

#endif
