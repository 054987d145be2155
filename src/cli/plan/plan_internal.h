/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: the input of a planning problem (problem_options.c), the
 * result of `harpe plan` (plan_result.c), how it is printed and written (plan_output.c,
 * plan_pictures.c) and read again (plan_result.c), and the plans of all replicas
 * (plan_replicas.c). */
#ifndef HARPE_CLI_PLAN_PLAN_INTERNAL_H
#define HARPE_CLI_PLAN_PLAN_INTERNAL_H

#include <harpe/graph.h>
#include <harpe/plan.h>
#include <harpe/replicas.h>

#include "base/file.h"
#include "cli/cli.h"
#include "plan/plan_file.h"

/* ---- Rows of plans (plan_output.c) ----------------------------------------------------------- */

typedef struct harpe_labelled_row {
    char label[64];
    harpe_frontier_row row;
} harpe_labelled_row;

/* Returns the width of a column with the rows' labels. */
int harpe_rows_label_width(const harpe_labelled_row *rows, size_t count);
/* Prints a table with a heading on stdout. If there is overhead energy, the table has a column for
 * the energy of the GPUs alone. If one_clock_energy_j is known, it has a column for the savings
 * against it. */
void harpe_rows_print(const harpe_labelled_row *rows, size_t count);
/* Prints a table with peak and swing of the plans' power. Leaves out rows without a peak. */
void harpe_rows_print_power(const harpe_labelled_row *rows, size_t count);

/* Returns one row as an object with frontier.csv's column names as keys. Omits "plan" if the number
 * is -1. If the row is a lower bound, omits the parts of the energy, peak and swing. Also omits
 * peak and swing if they are not known. Adds one_clock_savings_percent and frequency_mhz (of a plan
 * with one clock) if they are known. */
json_t *harpe_row_json(const harpe_frontier_row *row);

/* Returns the number of decimals that gives about `digits` significant digits. */
int harpe_row_decimals(double value, int digits);

/* ---- The problem ----------------------------------------------------------------------------- */

/* Initialise with harpe_problem_input_defaults. The flags fill in the first half, and
 * harpe_problem_input_load the second. */
typedef struct harpe_problem_input {
    const char *profile_path;
    int microbatches; /* 0: not given */
    int ranks;        /* --num-stages; 0: not given */
    int chunks;       /* 0: the schedule's default */
    int group_size;   /* --microbatch-group-size; 0: the schedule's default */
    bool overlaps_moe_expert_parallel_comm;
    int gpus_per_stage; /* 0: not given */
    const char *schedule_name;
    bool schedule_is_file;
    char **prologue; /* NULL-terminated, owned; NULL: none */
    char **epilogue;
    double *blocking_power_w; /* owned */
    size_t blocking_power_count;
    const char *wait_powers_path;  /* NULL: each rank has one power */
    const char *switch_table_path; /* NULL: no table of switching latencies */
    double overhead_power_w;
    double transfer_time_s;
    harpe_cost_model cost_model;
    double unit_time_s;
    double noise_factor;
    uint64_t memory_limit_bytes;
    const char *graph_path; /* set by the subcommand; NULL: a profile with a schedule */

    harpe_graph *graph; /* NULL: a profile with a schedule */
    harpe_profile *profile;
    harpe_wait_powers *wait_powers; /* NULL: none */
    harpe_schedule *schedule;
    harpe_problem *problem;
} harpe_problem_input;

extern const harpe_problem_input harpe_problem_input_defaults;

/* The flags that describe a problem, and a help text that names the schedules. */
extern const harpe_flag harpe_problem_flags[];
void harpe_problem_more_help(harpe_text *text);
/* Checks that no required flag is missing. */
void harpe_problem_input_check(const harpe_problem_input *input, const struct argp_state *state);

/* Reads the value of --switch-latency: a number of seconds, "profile", or a CSV file, which
 * harpe_problem_input_load reads. The problem's latencies are then those of the file. */
void harpe_flag_switch_latency(const struct argp_state *state, const char *flag, const char *text,
                               harpe_problem_input *input, harpe_clock_switch *change);

/* Reads the profile, builds or reads the schedule, and joins them; or reads the graph. */
harpe_status harpe_problem_input_load(harpe_problem_input *input, harpe_error *error);
void harpe_problem_input_free(harpe_problem_input *input);

/* Two steps of harpe_problem_input_load, for a command that reads profiles itself. The first makes
 * the schedule for input->profile. The second returns the options of a pipeline's problem. */
harpe_status harpe_problem_input_schedule(harpe_problem_input *input, harpe_error *error);
harpe_problem_options harpe_problem_input_options(const harpe_problem_input *input);

/* Returns a JSON object with the flags as keys. */
json_t *harpe_problem_input_arguments(const harpe_problem_input *input);
/* Returns a JSON object: schedule, ranks, stages, microbatches, instructions, blocking power. */
json_t *harpe_problem_input_json(const harpe_problem_input *input);
/* The first appends a line that describes the problem for people. The second prints this line. */
void harpe_problem_input_describe(const harpe_problem_input *input, harpe_text *text);
void harpe_problem_input_print(const harpe_problem_input *input);

/* ---- Plans with one clock -------------------------------------------------------------------- */

/* Zero-initialise. */
typedef struct harpe_one_clock_rows {
    harpe_frontier_row *rows; /* fastest first, without peak and swing */
    size_t count;             /* 0: none, as for a graph */
    double highest_s;         /* time at the highest clocks */
} harpe_one_clock_rows;

void harpe_one_clock_rows_free(harpe_one_clock_rows *of);

/* Returns the row of least energy among those that take at most `most_s`, or at most the time of
 * the highest clocks if this time is longer; NULL: there are no rows. Stores its energy (0 without
 * rows) in the one_clock_energy_j of `row`, the plan that is compared with it. */
const harpe_frontier_row *harpe_one_clock_compare(const harpe_one_clock_rows *of, double most_s,
                                                  harpe_frontier_row *row);

/* Returns a copy of a row for a table. The label names the clock. */
harpe_labelled_row harpe_one_clock_labelled(const harpe_frontier_row *row);

/* ---- The result ------------------------------------------------------------------------------ */

typedef enum harpe_key_row {
    HARPE_KEY_ALL_MAXIMUM = 0, /* every instruction at its highest frequency */
    HARPE_KEY_FASTEST,         /* least energy within 1.001 times the time of the fastest plan */
    HARPE_KEY_SMALL_SLOWDOWN,  /* least energy within 1.05 times the time of all_maximum */
    HARPE_KEY_MINIMUM_ENERGY,
    HARPE_KEY_COUNT,
} harpe_key_row;

/* Zero-initialise. */
typedef struct harpe_plan_result {
    harpe_plan_request request;
    harpe_frontier *frontier;
    harpe_plan_set *plans;    /* NULL: only the bound was requested */
    harpe_plan all_maximum;   /* its energy contains that of its changes of clock */
    harpe_frontier_row *rows; /* rows of the plans, fastest first */
    size_t row_count;
    /* Rows of plans. If only the bound was requested, rows of the lower bound. */
    harpe_labelled_row key_rows[HARPE_KEY_COUNT];
    harpe_one_clock_rows one_clock;
    /* The plan with one clock with which each of these rows is compared; NULL: none. */
    const harpe_frontier_row *key_one_clock[HARPE_KEY_COUNT];
    bool verified;
    char *dwell_note; /* a sentence about clocks that hold too briefly; NULL: all hold */
} harpe_plan_result;

/* Solves the problem. Without plans, computes only the bound for the request's cost of changes. */
harpe_status harpe_plan_result_solve(const harpe_problem *problem,
                                     const harpe_plan_request *request, bool with_plans,
                                     const harpe_progress *progress, harpe_plan_result *result,
                                     harpe_error *error);
/* Verifies frontier and plans independently of the solver. */
harpe_status harpe_plan_result_verify(const harpe_problem *problem, harpe_plan_result *result,
                                      harpe_error *error);
void harpe_plan_result_free(harpe_plan_result *result);

/* Returns the row of a plan whose lower_bound_j is set. Energy and bound of the plan do not contain
 * the energy of its changes of clock, `change_j` for each change; those of the row do. The energy
 * of `all_maximum` must contain it. */
harpe_frontier_row harpe_plan_result_row(const harpe_problem *problem, double change_j,
                                         const harpe_plan *plan, int number,
                                         const harpe_plan *all_maximum);

/* Adds peak and swing of a plan's power to its row. */
harpe_status harpe_plan_result_add_power(const harpe_problem *problem, const int *frequency_mhz,
                                         harpe_frontier_row *row, harpe_error *error);

/* Returns the row of the plan with the least energy among those that take at most `time_s`, or that
 * of the fastest plan if none does. There is at least one plan. */
const harpe_frontier_row *harpe_plan_result_within(const harpe_plan_result *result, double time_s);

/* Returns the plan of a row, or NULL if there are no plans. */
const harpe_plan *harpe_plan_result_plan(const harpe_plan_result *result,
                                         const harpe_frontier_row *row);

/* ---- Plan directories ------------------------------------------------------------------------ */

#define HARPE_FRONTIER_FILE_NAME "frontier.csv"
#define HARPE_BOUND_FILE_NAME "bound.csv"
#define HARPE_PLAN_JSON_NAME "plan.json"
#define HARPE_REPORT_NAME "report.html"
/* The value of "program" in plan.json: {"program": "harpe", ...}. */
#define HARPE_PLAN_JSON_PROGRAM "harpe"

typedef struct harpe_plan_directory {
    harpe_frontier_row *rows; /* rows of frontier.csv, at least one */
    size_t row_count;
    harpe_frontier_row all_maximum;
    harpe_one_clock_rows one_clock; /* none in files of older versions */
    double end_power_w; /* of all GPUs, while all of them wait at the end of an iteration */
    bool is_of_graph;   /* the plan files are those of a graph */
    int gpu_count;      /* of all ranks */
    double overhead_power_w;
} harpe_plan_directory;

/* Reads frontier.csv and plan.json; free with harpe_plan_directory_free. */
harpe_status harpe_plan_directory_read(const char *path, harpe_plan_directory *out,
                                       harpe_error *error);
/* Changes the overhead power whose energy the rows contain. */
void harpe_plan_directory_set_overhead(harpe_plan_directory *plans, double overhead_w);
void harpe_plan_directory_free(harpe_plan_directory *plans);

/* Returns the path of a file in a directory. The caller frees `*out` with free(). */
harpe_status harpe_plan_directory_join(const char *path, const char *name, char **out,
                                       harpe_error *error);

/* Checks whether --force may replace `path`. It may if `path` does not exist, is empty, or was made
 * by harpe plan. Returns HARPE_ALREADY_EXISTS for every other directory. harpe_directory_open
 * handles a path that is not a directory. */
harpe_status harpe_plan_directory_check_replaceable(const char *path, harpe_error *error);

/* ---- Printing and writing -------------------------------------------------------------------- */

/* Returns the notes about a loaded problem, and `more` if it is not NULL, as a JSON array of
 * sentences. */
json_t *harpe_plan_notes(const harpe_problem_input *input, const char *more);

/* Writes the limits on power ("peak 2300 W, swing 5 % of the mean"). Returns false if there are
 * none. */
bool harpe_plan_limits_words(const harpe_plan_request *request, char *into, size_t size);

/* Return an object with the limits on power, which is empty if there are none. The second function
 * adds to the limits that all plans keep them. */
json_t *harpe_plan_limits_json(const harpe_plan_request *request);
json_t *harpe_plan_kept_limits_json(const harpe_plan_request *request);

/* Prints that all plans keep the limits on power, if there are any. */
void harpe_plan_limits_print(const harpe_plan_request *request);

/* Prints the result on stdout: a few lines for people. `directory` may be NULL: nothing was
 * written. */
void harpe_plan_summary_print(const harpe_problem_input *input, const harpe_plan_result *result,
                              const char *directory, bool has_report);
/* Returns the result for programs. `arguments` has the command's arguments; the result owns it. */
json_t *harpe_plan_result_json(const harpe_problem_input *input, const harpe_plan_result *result,
                               json_t *arguments);

/* Writes the name of a plan's file in its directory. */
void harpe_plan_file_name(char name[64], bool is_of_graph, int number);
/* Returns the name of a file without its directories. */
const char *harpe_plan_name_of(const char *path);
/* Writes a text into a directory, and clears the text. Fails if `status` is a failure, if there was
 * no memory for the text, or if a signal has come. */
harpe_status harpe_plan_write_text(harpe_directory *directory, const char *name, harpe_text *text,
                                   harpe_status status, harpe_error *error);
/* Writes plan.json. `object` is released; NULL: there was no memory for it. */
harpe_status harpe_plan_write_json(harpe_directory *directory, json_t *object, harpe_error *error);

/* Writes bound.csv, frontier.csv, the plan files and plan.json. `arguments` contains the command's
 * arguments and is released; NULL: writes only bound.csv. */
harpe_status harpe_plan_output_write(harpe_directory *directory, const harpe_problem_input *input,
                                     const harpe_plan_result *result, json_t *arguments,
                                     harpe_error *error);

/* ---- Replicas -------------------------------------------------------------------------------- */

/* Initialise with zeros, and `smooth` with -1. */
typedef struct harpe_replica_input {
    bool has_columns;        /* --replicas: the profile is of all GPUs */
    const char **more_paths; /* --replica: profiles of further replicas; the array is owned */
    size_t more_count, more_capacity;
    double time_s;   /* 0: not given */
    double slowdown; /* 0: not given */
    double smooth;   /* the highest standard deviation of noise; below 0: not given */
} harpe_replica_input;

extern const harpe_flag harpe_replica_flags[];
/* Checks that the flags fit together. */
void harpe_replica_input_check(const harpe_replica_input *input, const struct argp_state *state);
/* Returns true if the command plans replicas. */
bool harpe_replica_input_is_given(const harpe_replica_input *replicas);

/* The command line of `harpe plan`. */
typedef struct harpe_plan_arguments {
    harpe_problem_input input;
    harpe_replica_input replicas;
    const char *output_directory;
    const char *export_path; /* --export-graph; NULL: none */
    const char *plans;       /* as given */
    bool plans_given;
    bool with_plans;
    harpe_plan_request request;
    bool bound_only;
    bool force;
    bool verify;
    bool json;
    bool quiet;
    bool no_pictures;
    const char **command_line; /* as the user typed it, for the report; the array is owned */
    size_t command_line_length;
} harpe_plan_arguments;

/* plan_command.c: opens the output directory. _commit_output moves it to its place, unless `status`
 * is a failure or a signal has arrived. */
harpe_status harpe_plan_open_output(const harpe_plan_arguments *arguments,
                                    harpe_directory *directory, harpe_error *error);
harpe_status harpe_plan_commit_output(const harpe_plan_arguments *arguments,
                                      harpe_directory *directory, harpe_status status,
                                      harpe_error *error);

/* Writes pictures and, if there are plans, report.html. */
harpe_status harpe_plan_output_pictures(harpe_directory *directory,
                                        const harpe_plan_arguments *arguments,
                                        const harpe_plan_result *result, harpe_error *error);
/* Does the work of the command for a job of several replicas. Writes job.py, a plan file for each
 * replica, replicas.csv, bound.csv and plan.json, and prints the result. */
harpe_status harpe_plan_replicas(harpe_plan_arguments *arguments, harpe_error *error);

#endif
