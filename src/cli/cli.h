/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the programs share: the subcommands, their exit codes, functions that prepare
 * the process, report a failure, run a command of the user, read flags and print JSON, and what
 * several subcommands need of servers, GPUs and jobs. It includes what most of them need. */
#ifndef HARPE_CLI_CLI_H
#define HARPE_CLI_CLI_H

#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/number.h"
#include "base/terminal_progress.h"
#include "base/text.h"
#include "http/client/connection.h"
#include "power_limit/step_signal.h"

/* ---- The process (command.c) ----------------------------------------------------------------- */

enum {
    HARPE_EXIT_OK = 0,
    HARPE_EXIT_FAILURE = 1,
    HARPE_EXIT_USAGE = 2,
    HARPE_EXIT_INFEASIBLE = 3,   /* a budget of a fleet is too small for its jobs */
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

/* Makes SIGINT, SIGTERM and SIGHUP ask the program to stop, instead of ending it. */
void harpe_command_catch_signals(void);
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

/* Returns a whole number of an object, or 0 if it is missing. */
long harpe_json_count(const json_t *object, const char *name);
/* Returns a JSON number, or null if the value is not finite, which stands for not known. */
json_t *harpe_command_json_number(double value);
/* Returns a JSON string, or null if `text` is NULL. `text` may contain any bytes; bytes that are
 * not UTF-8 become '?'. */
json_t *harpe_command_json_text(const char *text);

/* Starts a command of the user. Searches PATH for the program. The command gets the signal mask
 * `mask`, and does not ignore the signals that only this program ignores. `actions` are for its
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
/* Waits until a command of the user has ended, and returns its exit code. The caller has blocked
 * the signals `waited`; SIGCHLD is one of them. If another process sends such a signal to this
 * process, this function sends it to the command too. The terminal sends its signals to the command
 * itself. Calls `tick` (may be NULL) after each second without a signal. */
int harpe_command_wait(pid_t child, const sigset_t *waited, void (*tick)(void *user), void *user);
/* Starts a command of the user with the signal mask `mask`, and waits for its end. */
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
 * gets its value. A row without a name is a heading of --help, and an empty row ends a table. If
 * a row has a range, the value must be a number. */
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

/* These functions convert the text of a flag's value. If the value is not valid, they print one
 * line that names the flag and the value, and exit with HARPE_EXIT_USAGE. */
int harpe_flag_int(const struct argp_state *state, const char *flag, const char *text,
                   int64_t minimum, int64_t maximum);
/* If `is_above` is true, the number must be greater than the minimum. */
double harpe_flag_double(const struct argp_state *state, const char *flag, const char *text,
                         double minimum, double maximum, bool is_above);
/* Returns the index of `text` in a NULL-terminated list of names. */
int harpe_flag_choice(const struct argp_state *state, const char *flag, const char *text,
                      const char *const *names);
/* Prints one line and exits with HARPE_EXIT_USAGE. */
void harpe_flag_fail(const struct argp_state *state, const char *format, ...) HARPE_PRINTF(2, 3)
    __attribute__((noreturn));

/* Returns the entry of a NULL-terminated list that is closest to a mistyped name, or NULL. Names
 * of more than 64 characters are not compared. */
const char *harpe_closest_name(const char *name, const char *const *names);

/* ---- A server (server_client.c) -------------------------------------------------------------- */

/* A client of a coordination server, for `harpe jobs` and `harpe fleet`. Answers are JSON. */

typedef struct harpe_server_client_options {
    const char *server;     /* http://HOST:PORT */
    const char *token_file; /* NULL: $HARPE_TOKEN, or the token of the machine's service */
    const char *ca_file;    /* NULL: $HARPE_CA_FILE, or the system's authorities */
} harpe_server_client_options;

/* The flags --server, --token-file and --ca-file of a harpe_server_client_options. */
extern const harpe_flag harpe_server_client_flags[];

typedef struct harpe_server_client {
    harpe_connection *connection;
    const char *server; /* address of the server, without a slash at the end */
    char *token;        /* the token given by the user; NULL: none */
} harpe_server_client;

/* Initialise `out` with zeros, and close it also after a failure. */
harpe_status harpe_server_client_open(const harpe_server_client_options *options,
                                      harpe_server_client *out, harpe_error *error);
void harpe_server_client_close(harpe_server_client *client);

/* The address of the server if neither the user nor $HARPE_SERVER names one. */
#define HARPE_DEFAULT_SERVER "http://127.0.0.1:7787"
const char *harpe_server_client_default(void);

/* Sends any request. Fails with one line from the server's answer unless the answer is 200; the
 * error's vendor_code is then the HTTP status. The caller releases `*answer` with json_decref. */
harpe_status harpe_server_client_request(harpe_server_client *client, const harpe_request *request,
                                         json_t **answer, harpe_error *error);

/* ---- Names of GPUs (gpu_names.c) ------------------------------------------------------------- */

/* The names that users give to GPUs: a number as `harpe gpus` counts, a UUID or a PCI address. The
 * numbers of all commands are those of harpe_gpus_open in the process that the user has started. A
 * command turns a number into a GPU once. From then on, only UUIDs pass between processes. */

typedef struct harpe_gpu_names {
    const harpe_gpus *gpus; /* as this process counts them; NULL: this process has none */
    json_t *lent; /* the GPUs that the node agent has found at its start; NULL: not known */
} harpe_gpu_names;

/* Asks the agent at `socket` for its GPUs. `socket` NULL: the agent that jobs use, if there is one.
 * Without an answer, `lent` is NULL. Waits at most some seconds. */
harpe_gpu_names harpe_gpu_names_ask(const harpe_gpus *gpus, const char *socket);
void harpe_gpu_names_free(harpe_gpu_names *names);

/* Asks an agent for its status, and waits for at most `limit_ms`. The caller releases `*answer`. */
harpe_status harpe_gpu_names_ask_status(const char *socket, int limit_ms, json_t **answer,
                                        harpe_error *error);
/* Returns the GPU with this UUID in a list of the agent; NULL: there is none. */
const json_t *harpe_gpu_names_lent(const json_t *list, const char *uuid);

/* Returns true if a user's name is a number. */
bool harpe_gpu_name_is_number(const char *name);
/* Returns true if a user's name that is no number means the GPU with this UUID and PCI address. */
bool harpe_gpu_name_means(const char *name, const char *uuid, const char *pci_bus_id);
/* Returns the number of a GPU in this process, or -1 if this process does not see the GPU. */
int harpe_gpu_number_of(const harpe_gpus *gpus, const char *uuid);

/* The models of harpe_synth_gpu_models: the end of --help, and the reader of a flag whose value is
 * one of them. The member is a const char *. */
void harpe_gpu_models_help(harpe_text *text);
void harpe_gpu_model_read(void *into, struct argp_state *state, const char *flag, char *text);

/* Finds the GPU of a name among the GPUs of this process. Fails with HARPE_INVALID_ARGUMENT if
 * there is none. Also refuses a number that may have meant another GPU when the agent started,
 * because a GPU was lost or has come since; the message has the UUID to use. Messages begin with
 * `flag`. */
harpe_status harpe_gpu_names_find(const harpe_gpu_names *names, const char *flag, const char *name,
                                  int *gpu, harpe_error *error);

/* ---- Commands that mark their steps (marked_command.c) --------------------------------------- */

/* There are two kinds of marks: counts in shared memory (harpe_power_limit_mark_step), and lines in
 * a pipe (for any other language). Lines are counted in the same memory. */

/* The functions that are called for marks, on the thread that follows the command. */
typedef struct harpe_marks {
    const char *program; /* the beginning of messages, such as "harpe power-limit run" */
    /* NULL: the caller reads the marks in the memory itself. Otherwise none is NULL. */
    void (*step)(void *user);
    void (*epoch)(void *user);
    /* Called when this process was stopped and continues, with the numbers of marks that were made
     * in the meantime. */
    void (*pass_over)(void *user, uint64_t steps, uint64_t epochs);
    void (*caught_up)(void *user); /* called when no mark is left */
    void (*tick)(void *user);      /* called about every `tick_ns`; may be NULL */
    int64_t tick_ns;
    void *user;
} harpe_marks;

/* The memory and the pipe that the command gets, and the marks that are read from both. */
typedef struct harpe_step_channel {
    harpe_step_memory *shared;
    int memory;    /* descriptor of `shared` */
    int lines;     /* read end of the pipe; does not block */
    int lines_end; /* the command's end of the pipe; -1 after it was passed on */
    int bell;      /* descriptor that becomes readable after a signal in the memory; -1: none */
    uint64_t taken_steps, taken_epochs; /* steps and epochs already taken out of `shared` */
    pthread_t listener;
    atomic_bool is_over;
    bool has_listener;
} harpe_step_channel;

/* Initialise with zeros. */
typedef struct harpe_marked_command {
    const harpe_marks *marks;
    pid_t id;
    harpe_step_channel step_signals;
    sigset_t mask; /* of the command */
    int signals;   /* signalfd */
    int wait_code; /* valid after the command has ended */
    bool has_ended;
    char line[32]; /* the incomplete last line from the pipe */
    size_t line_length;
    int64_t unknown_count; /* lines that are no marks */
} harpe_marked_command;

/* Returns true if the user made a mistake, such as naming a file that cannot be used. Such a
 * mistake ends the program before a long job starts. */
bool harpe_marked_command_is_users_mistake(harpe_status status);

/* Makes the channel of marks, and sets the environment variables that name it. Blocks the signals
 * that are passed on. */
harpe_status harpe_marked_command_prepare(harpe_marked_command *child, const harpe_marks *marks,
                                          harpe_error *error);
/* Starts the command. `actions` has the caller's actions for the command's descriptors; NULL: none.
 * This function adds actions of its own. */
harpe_status harpe_marked_command_start(harpe_marked_command *child, char *const *command,
                                        posix_spawn_file_actions_t *actions, harpe_error *error);
/* Calls the functions of the marks until the command has ended. */
void harpe_marked_command_follow(harpe_marked_command *child);
/* Ends the channel of marks, and frees the memory and the pipe. */
void harpe_marked_command_close(harpe_marked_command *child);

/* ---- Jobs of a server (jobs_view.c) ---------------------------------------------------------- */

/* A table of jobs that is printed in pages. The first page determines the layout. quiet: prints
 * only ids. columns: the width of the terminal; 0: rows may have any width. An id that does not fit
 * is shortened in the middle, and on a very narrow terminal it has its own line. Leave the other
 * members 0. */
typedef struct harpe_jobs_table {
    bool quiet;
    int columns;
    bool has_head, is_folded;
    unsigned shown;         /* bits of the columns that fit */
    harpe_unit energy_unit; /* of the whole table */
    int id_width;           /* of the column with ids */
    int id_limit;           /* longer ids are shortened; 0: no limit */
} harpe_jobs_table;

/* Replaces the middle of a shortened id. An id may also contain this text itself. */
#define HARPE_JOB_ID_GAP "..."

void harpe_jobs_view_page(harpe_jobs_table *table, const json_t *jobs, harpe_text *text);
/* Appends the page of one job. */
void harpe_jobs_view_job(const json_t *job, harpe_text *text);
/* Appends the progress of a job in one line without a newline. The line stays the same as long as
 * the job does not change. */
void harpe_jobs_view_progress(const json_t *job, bool quiet, harpe_text *text);

/* Appends the lines about rounds and steps of the page of one job. Appends none of those that the
 * server does not send. */
void harpe_job_report_conduct(const json_t *job, harpe_text *text);

/* ---- The subcommands ------------------------------------------------------------------------- */

/* Each of them receives argv[0] = "harpe NAME" and returns the exit code. main.c calls them. */
int harpe_plan_command(int argc, char **argv);
int harpe_choose_command(int argc, char **argv);
int harpe_evaluate_command(int argc, char **argv);
int harpe_graph_command(int argc, char **argv);
int harpe_synth_command(int argc, char **argv);
int harpe_gpus_command(int argc, char **argv);
int harpe_agent_command(int argc, char **argv);
int harpe_emulate_command(int argc, char **argv);
int harpe_monitor_command(int argc, char **argv);
int harpe_power_limit_command(int argc, char **argv);
int harpe_fleet_command(int argc, char **argv);
int harpe_serve_command(int argc, char **argv);
int harpe_jobs_command(int argc, char **argv);
int harpe_store_command(int argc, char **argv);
int harpe_run_command(int argc, char **argv);
int harpe_profile_command(int argc, char **argv);
int harpe_profile_p2p_command(int argc, char **argv);    /* harpe profile p2p */
int harpe_profile_switch_command(int argc, char **argv); /* harpe profile switch */
int harpe_train_sim_command(int argc, char **argv);
int harpe_tune_command(int argc, char **argv);

/* The actions of `harpe fleet` on a server, which have words and options of their own: status,
 * budget, group, job, load, member, event, prices, audit. */
int harpe_fleet_server_command(int argc, char **argv);
/* Prints a server's answer for people (fleet_view.c). `noun` and `method`: of the action and its
 * request. */
void harpe_fleet_print_answer(const char *noun, const char *method, const json_t *answer);

/* The import hook of Harpe's Python package, with which `harpe run` and `harpe tune` change or
 * count the Python processes of a command (run_command.c). Puts the hook's directory first in
 * PYTHONPATH, and sets HARPE_PROGRAM if it is not set. On failure, returns false, leaves the
 * environment unchanged, and prints the reason in a line that begins with `program`, such as "harpe
 * run". */
bool harpe_python_hook_install(const char *program);

#endif
