/* SPDX-License-Identifier: Apache-2.0 */
/* Planning of any job, not only of pipelines. A graph describes one iteration: activities, the
 * resources that run them, and which activities must end before another may start.
 *
 *     harpe_graph --> harpe_problem --> harpe_frontier --> harpe_plan_set --> harpe_graph_runs
 *
 * harpe/plan.h has the functions from the problem to the plans. harpe_graph_runs returns the option
 * of each activity in a plan.
 *
 * All times are in seconds, energies in joules, powers in watts. A graph does not change after it
 * is made, and any thread may read it. The energy of one iteration of length T is
 *
 *     sum over all activities of their energies
 *     + sum over all resources r of P_r * (T - time that the activities of r take)
 *
 * P_r is the blocking power of r. An activity without a resource does not change the second sum. */
#ifndef HARPE_GRAPH_H
#define HARPE_GRAPH_H

#include <stddef.h>

#include <harpe/api.h>
#include <harpe/plan.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

#define HARPE_GRAPH_NAME_MAX 255 /* longest name of an activity or a resource, in bytes */

typedef struct harpe_graph harpe_graph;

/* A GPU, or another thing that runs one activity at a time and draws power while it waits. */
typedef struct harpe_graph_resource {
    const char *name;
    double blocking_power_w; /* 0 .. 1e9, while it runs no activity */
} harpe_graph_resource;

/* One way to run an activity. */
typedef struct harpe_graph_option {
    double time_s;        /* 1e-9 .. 1e6 */
    double energy_j;      /* 0 .. 1e9 */
    double frequency_mhz; /* at most HARPE_FREQUENCY_MAX_MHZ; 0: the option has none */
} harpe_graph_option;

/* Another activity that must end before this one may start. */
typedef struct harpe_graph_wait {
    const char *name;
    double lag_s; /* least number of seconds between that end and this start; 0 .. 1e6 */
} harpe_graph_wait;

/* Initialise with zeros, then set the members that you need. */
typedef struct harpe_graph_activity {
    const char *name;     /* different from all other activities' names */
    const char *resource; /* name of a resource; NULL: none */
    /* The options, in any order. 0: the activity has a fixed time. */
    size_t option_count;
    const harpe_graph_option *options;
    double time_s;   /* of an activity without options: 0 .. 1e6 */
    double energy_j; /* of an activity without options: 0 .. 1e9; a negative number: what its
                      * resource draws while it waits for the same time */
    size_t wait_count;
    const harpe_graph_wait *waits; /* each activity at most once */
    double release_s;              /* earliest start in the iteration; 0 .. 1e6 */
    double deadline_s;             /* latest end in the iteration, at most 1e6; 0: none */
} harpe_graph_activity;

/* Makes a graph. Copies everything. The activities of one resource must be in a definite order: of
 * any two, one must wait for the other, directly or through other activities. Fails with
 * HARPE_INVALID_INPUT if a number is out of its range, a name is missing, empty, unknown or given
 * twice, the waits form a cycle, two activities of one resource could run at the same time, or no
 * activity takes any time. Fails with HARPE_INFEASIBLE if a deadline cannot be met. The message
 * names the activity. O((activities + waits) * resources) in the worst case. Free with
 * harpe_graph_free. */
HARPE_API harpe_status harpe_graph_new(const harpe_graph_resource *resources, size_t resource_count,
                                       const harpe_graph_activity *activities,
                                       size_t activity_count, harpe_graph **out,
                                       harpe_error *error);

/* Reads a graph from a JSON file of at most 256 MiB; see harpe-graph(5). Errors begin with the
 * file's name. A JSON error names file:line:column; any other error names the activity. */
HARPE_API harpe_status harpe_graph_read_json(const char *path, harpe_graph **out,
                                             harpe_error *error);

/* Reads a graph from a JSON text in memory. `name` replaces the file's name in errors. `text` need
 * not end in NUL. */
HARPE_API harpe_status harpe_graph_parse_json(const char *text, size_t length, const char *name,
                                              harpe_graph **out, harpe_error *error);

/* Writes the graph as JSON, completely or not at all. harpe_graph_read_json reads the same graph.
 */
HARPE_API harpe_status harpe_graph_write_json(const harpe_graph *graph, const char *path,
                                              harpe_error *error);

/* Makes the graph of a pipeline. Each rank becomes a resource "rank0", "rank1" ..., whose blocking
 * power is that of all its GPUs. Entry 3 of rank 0's list becomes the activity "0.3.forward" if it
 * is a forward. Its options are all measured points, highest frequency first. Fails with
 * HARPE_INVALID_ARGUMENT if the problem was made from a graph. Free with harpe_graph_free. */
HARPE_API harpe_status harpe_graph_of_problem(const harpe_problem *problem, harpe_graph **out,
                                              harpe_error *error);

HARPE_API void harpe_graph_free(harpe_graph *graph);

/* Return the resources and activities in the order in which they were given. NULL for an index that
 * is not 0 .. count - 1. Valid while the graph exists. */
HARPE_API size_t harpe_graph_resource_count(const harpe_graph *graph);
HARPE_API const harpe_graph_resource *harpe_graph_resource_at(const harpe_graph *graph,
                                                              size_t index);
HARPE_API size_t harpe_graph_activity_count(const harpe_graph *graph);
HARPE_API const harpe_graph_activity *harpe_graph_activity_at(const harpe_graph *graph,
                                                              size_t index);

/* Makes the problem whose frontier and plans the functions of harpe/plan.h compute. The graph need
 * not outlive it. `options` may be NULL; its blocking power and gpus_per_stage must be empty,
 * because the graph has the blocking powers. In this problem a rank is a resource; activities
 * without a resource form one more rank. An instruction's frequency is a number that stands for one
 * of its options: read the options of a plan with harpe_graph_runs. harpe_plan_all_maximum, the
 * reference of savings, runs each activity with the option of the highest frequency, or with the
 * fastest option if an option of the activity has no frequency. harpe_plan_set_new refuses a
 * clock_switch for such a problem with HARPE_NOT_SUPPORTED. With deadlines, planning takes longer,
 * because each plan has a search of its own. Free with harpe_problem_free. */
HARPE_API harpe_status harpe_problem_of_graph(const harpe_graph *graph,
                                              const harpe_problem_options *options,
                                              harpe_problem **out, harpe_error *error);

/* How a plan runs one activity. Times are rounded to picoseconds. */
typedef struct harpe_graph_run {
    int option;           /* index into the activity's options; -1: the activity has none */
    double frequency_mhz; /* of that option; 0: none */
    double start_s;       /* earliest start */
    double slack_s;       /* how much later it may start without a longer iteration or a missed
                           * deadline */
} harpe_graph_run;

/* Computes how a plan runs each activity. `frequency_mhz` is that of a harpe_plan of `problem`.
 * `runs` receives harpe_graph_activity_count entries, in the order of the graph's activities. Fails
 * with HARPE_INVALID_ARGUMENT if the problem was not made from a graph. */
HARPE_API harpe_status harpe_graph_runs(const harpe_problem *problem, const int *frequency_mhz,
                                        harpe_graph_run *runs, harpe_error *error);

HARPE_END_DECLS

#endif
