/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs inside libharpe: their contents, and their JSON. <harpe/graph.h> is the public part. */
#ifndef HARPE_PLAN_GRAPHS_H
#define HARPE_PLAN_GRAPHS_H

#include <stdint.h>

#include <harpe/graph.h>

#include "base/array.h"
#include "base/text.h"

/* ---- Contents -------------------------------------------------------------------------------- */

/* The contents of a harpe_graph, and of the part of a harpe_problem that only problems of graphs
 * have. graph.c makes graphs; all other files only read them. */

/* Everything is in the arena. Activities are numbered in the order in which they were given. */
struct harpe_graph {
    harpe_arena arena;
    size_t resource_count;
    harpe_graph_resource *resources;
    size_t activity_count;
    harpe_graph_activity *activities;
    int32_t *resource_of;       /* [activity_count]: index into resources; -1: none */
    int32_t *first_wait;        /* [activity_count + 1]: into wait_for */
    int32_t *wait_for;          /* activities, in the order of each activity's waits */
    int32_t *topological_order; /* activity_count activities */
};

/* How the activities of a graph became the instructions of a problem. The choice of activity a is
 * choice a. Lags and releases are further instructions, with a fixed time and without energy. */
typedef struct harpe_graph_layout {
    size_t activity_count;
    int32_t *instruction_of; /* [activity_count] */
    /* Point k of activity a is option option_of[first_point[a] + k], or -1 for a fixed time. */
    size_t *first_point;   /* [activity_count] */
    int *option_of;        /* in the order of points */
    double *frequency_mhz; /* of the options, in the same order */
} harpe_graph_layout;

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Formats a graph as JSON in memory. Reading, and writing to a path, are public: see
 * harpe/graph.h. */

/* Appends the text of harpe_graph_write_json. Check text->failed afterwards. */
void harpe_graph_json_format(harpe_text *text, const harpe_graph *graph);
/* Appends a name in quotes. */
void harpe_graph_json_name(harpe_text *text, const char *name);

#endif
