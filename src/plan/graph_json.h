/* SPDX-License-Identifier: Apache-2.0 */
/* Formats a graph as JSON in memory. Reading, and writing to a path, are public: see
 * harpe/graph.h. */
#ifndef HARPE_PLAN_GRAPH_JSON_H
#define HARPE_PLAN_GRAPH_JSON_H

#include <harpe/graph.h>

#include "base/text.h"

/* Appends the text of harpe_graph_write_json. Check text->failed afterwards. */
void harpe_graph_json_format(harpe_text *text, const harpe_graph *graph);
/* Appends a name in quotes. */
void harpe_graph_json_name(harpe_text *text, const char *name);

#endif
