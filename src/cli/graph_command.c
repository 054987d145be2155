/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe graph import`: makes a graph from the traces of a job. This file reads flags and writes
 * output; src/trace does the work. */
#include <harpe/graph.h>
#include <harpe/profile.h>

#include "cli/cli.h"
#include "trace/trace.h"

/* The time until a new clock holds differs widely between GPU models, and between clocks of one GPU
 * (Velička, Vysocky, Riha: Methodology for GPU Frequency Switching Latency Measurement, 2025). This
 * default is an assumption for GPUs on which it was not measured. */
#define DEFAULT_MIN_ACTIVITY_S 0.02
/* Between a forward and a backward of harpe synth. */
#define DEFAULT_COMPUTE_SHARE 0.8
#define TRACES_MAX 65536

typedef struct graph_arguments {
    harpe_trace_request request;
    harpe_trace_graph_options options;
    const char **patterns; /* of names of kernels that communicate */
    size_t pattern_count;
    const char *output_path;
    char **traces;
    size_t trace_count;
    bool has_action, force, json, quiet;
} graph_arguments;

/* ---- Flags ----------------------------------------------------------------------------------- */

static void read_format(void *into, struct argp_state *state, const char *flag, char *text) {
    static const char *const formats[] = {"kineto", "chakra", NULL};
    *(harpe_trace_format *)into = harpe_flag_choice(state, flag, text, formats) == 0
                                      ? HARPE_TRACE_KINETO
                                      : HARPE_TRACE_CHAKRA;
}

static void add_pattern(void *into, struct argp_state *state, const char *flag, char *text) {
    graph_arguments *arguments = into;
    (void)state, (void)flag;
    arguments->patterns[arguments->pattern_count++] = text;
}

/* Reads the action, and then the traces. */
static void read_word(void *into, struct argp_state *state, const char *flag, char *text) {
    static const char *const actions[] = {"import", NULL};
    graph_arguments *arguments = into;
    if (arguments->trace_count == TRACES_MAX)
        harpe_flag_fail(state, "at most %d traces", TRACES_MAX);
    if (arguments->has_action)
        arguments->traces[arguments->trace_count++] = text;
    else
        (void)harpe_flag_choice(state, flag, text, actions);
    arguments->has_action = true;
}

static const harpe_flag words[] = {{"ACTION", .read = read_word}, {0}};

static const harpe_flag flags[] = {
    {"format", 0, "FORMAT", "kineto or chakra (default: as the files are)", 1,
     HARPE_READ(read_format, graph_arguments, request.format)},
    {"step", 0, "N", "Import step N of Kineto traces (default: the last step)", 1,
     HARPE_INTO(graph_arguments, request.step), 0, INT32_MAX},
    {"communication", 0, "REGEX",
     "Kernels whose names match this POSIX extended regular expression communicate, as those of "
     "known libraries do; may be given several times",
     1, .read = add_pattern},
    {.help = "Activities:", .group = 2},
    {"gpu", 'g', "MODEL",
     "GPU model whose laws give the times and energies of other clocks (default: all times are "
     "fixed; models below)",
     2, HARPE_READ(harpe_gpu_model_read, graph_arguments, options.gpu_model)},
    {"compute-share", 0, "X",
     "Part of a kernel's time that scales with the clock (default 0.8; 1: bound by computation, 0: "
     "bound by memory)",
     2, HARPE_INTO(graph_arguments, options.compute_share), 0, 1},
    {"min-activity", 0, "SECONDS",
     "Length below which an activity keeps the highest clock (default 0.02)", 2,
     HARPE_INTO(graph_arguments, options.min_activity_s), 0, 3600},
    {"blocking-power", 0, "WATTS", "Power of a GPU that waits (default: that of --gpu, or 0)", 2,
     HARPE_INTO(graph_arguments, options.blocking_power_w), 0, 1e9},
    {.help = "Output:", .group = 3},
    {"output", 'o', "FILE", "Where to write the graph (required)", 3,
     HARPE_INTO(graph_arguments, output_path)},
    {"force", 'f', NULL, "Replace an existing file", 3, HARPE_INTO(graph_arguments, force)},
    {"json", 'j', NULL, "Print a summary as JSON", 3, HARPE_INTO(graph_arguments, json)},
    {"quiet", 'q', NULL, "Print no summary and no notes", 3, HARPE_INTO(graph_arguments, quiet)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .words = words,
    .forms = "import TRACE...",
    .about = "Make a graph for harpe plan --graph from the traces of one iteration, one file for "
             "each rank: traces of PyTorch's profiler (Kineto) or MLCommons Chakra execution "
             "traces.\vExample:\n  harpe graph import rank*.json --gpu A100 --output job.json\n  "
             "harpe plan --graph job.json --output-dir plans\n\nSee also: man harpe-graph",
    .more_help = harpe_gpu_models_help,
};

static void check_usage(const graph_arguments *arguments, const struct argp_state *state) {
    if (!arguments->has_action) harpe_flag_fail(state, "an action is missing: import");
    if (arguments->trace_count == 0)
        harpe_flag_fail(state, "import needs the traces of the job, one for each rank");
    if (!arguments->output_path)
        harpe_flag_fail(state, "import needs --output, the name of the graph to write");
}

/* ---- Output ---------------------------------------------------------------------------------- */

static const char *ending(size_t count, const char *one, const char *several) {
    return count == 1 ? one : several;
}

/* Returns the first note of each kind, with the number of the other traces that have it. */
static json_t *list_notes(const graph_arguments *arguments, const harpe_trace *traces) {
    json_t *notes = json_array();
    harpe_text text = {0};
    harpe_kernel_names_note_unmatched(arguments->request.names, &text);
    harpe_command_add_note(notes, &text);
    harpe_kernel_names_note_similar(arguments->request.names, &text);
    harpe_command_add_note(notes, &text);
    for (int kind = 0; kind < HARPE_TRACE_NOTE_COUNT; kind++) {
        const char *first = NULL;
        size_t count = 0;
        for (size_t t = 0; t < arguments->trace_count; t++) {
            if (!traces[t].notes[kind]) continue;
            if (count++ == 0) first = traces[t].notes[kind];
        }
        if (count > 0) harpe_text_printf(&text, "%s", first);
        if (count > 1)
            harpe_text_printf(&text, " (%zu more trace%s: the same)", count - 1,
                              ending(count - 1, "", "s"));
        harpe_command_add_note(notes, &text);
    }
    return notes;
}

static size_t count_without_parents(const harpe_trace *traces, size_t count) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += traces[i].has_no_parents;
    return found;
}

static void print_summary(const graph_arguments *arguments, const harpe_trace *traces,
                          const harpe_trace_graph_counts *counts) {
    printf("%zu trace%s", arguments->trace_count, ending(arguments->trace_count, "", "s"));
    if (traces[0].step >= 0) printf(", step %lld", (long long)traces[0].step);
    printf(": %s s on the longest rank\n", HARPE_DIGITS(counts->longest_s, 6));
    printf("%zu activit%s compute%s, of which %zu %s several clocks\n", counts->computing,
           ending(counts->computing, "y", "ies"), ending(counts->computing, "s", ""),
           counts->with_options, ending(counts->with_options, "has", "have"));
    printf("%zu communication%s between them", counts->communications,
           ending(counts->communications, "", "s"));
    if (counts->without_others > 0)
        printf(", of which %zu %s no partner in another trace", counts->without_others,
               ending(counts->without_others, "has", "have"));
    printf("\n");
    if (counts->inside > 0)
        printf("%zu communication%s (%s s) inside of activities: waits between ranks are not "
               "planned there\n",
               counts->inside, ending(counts->inside, "", "s"), HARPE_DIGITS(counts->inside_s, 4));
    size_t without_parents = count_without_parents(traces, arguments->trace_count);
    if (without_parents > 0)
        printf("ctrl_deps are not used in %zu trace%s: with them, nodes wait for each other\n",
               without_parents, ending(without_parents, "", "s"));
    if (!arguments->options.gpu_model)
        printf("All times are fixed: give --gpu to plan with other clocks\n");
}

static harpe_status print_json(const graph_arguments *arguments, const harpe_trace *traces,
                               const harpe_trace_graph_counts *counts, harpe_error *error) {
    int64_t step = traces[0].step;
    json_t *object = json_pack(
        "{s:I, s:o, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:o, s:o}", "traces",
        (json_int_t)arguments->trace_count, "step", step < 0 ? json_null() : json_integer(step),
        "longest_s", counts->longest_s, "computing", (json_int_t)counts->computing,
        "with_several_clocks", (json_int_t)counts->with_options, "communications",
        (json_int_t)counts->communications, "without_partner", (json_int_t)counts->without_others,
        "inside", (json_int_t)counts->inside, "inside_s", counts->inside_s, "without_ctrl_deps",
        (json_int_t)count_without_parents(traces, arguments->trace_count), "notes",
        list_notes(arguments, traces), "output", harpe_command_json_text(arguments->output_path));
    return harpe_command_print_json(object, error);
}

/* ---- The command ----------------------------------------------------------------------------- */

/* Puts the ranks in order, whatever the order of the files. */
static int compare_ranks(const void *left, const void *right) {
    int64_t a = ((const harpe_trace *)left)->rank, b = ((const harpe_trace *)right)->rank;
    return (a > b) - (a < b);
}

static harpe_status import(const graph_arguments *arguments, harpe_trace *traces,
                           harpe_error *error) {
    size_t count = arguments->trace_count;
    harpe_graph *graph = NULL;
    harpe_trace_graph_counts counts;
    harpe_status status =
        harpe_command_check_output(arguments->output_path, arguments->force, error);
    for (size_t t = 0; t < count && status == HARPE_OK; t++) {
        status = harpe_trace_file_read(arguments->traces[t], (int64_t)t, &arguments->request,
                                       &traces[t], error);
        if (status == HARPE_OK) status = harpe_command_check_signal(error);
    }
    if (status != HARPE_OK) return status;
    qsort(traces, count, sizeof *traces, compare_ranks);
    status = harpe_trace_graph_new(traces, count, &arguments->options, &graph, &counts, error);
    if (status == HARPE_OK) status = harpe_command_check_signal(error);
    if (status == HARPE_OK) status = harpe_graph_write_json(graph, arguments->output_path, error);
    if (status == HARPE_OK && arguments->json)
        status = print_json(arguments, traces, &counts, error);
    else if (status == HARPE_OK && !arguments->quiet)
        print_summary(arguments, traces, &counts);
    if (status == HARPE_OK && !arguments->quiet)
        harpe_command_print_notes("graph", list_notes(arguments, traces));
    harpe_graph_free(graph);
    return status;
}

int harpe_graph_command(int argc, char **argv) {
    graph_arguments arguments = {
        .request = {.step = HARPE_TRACE_LAST_STEP},
        .options = {.compute_share = DEFAULT_COMPUTE_SHARE,
                    .min_activity_s = DEFAULT_MIN_ACTIVITY_S,
                    .blocking_power_w = -1},
        .traces = harpe_calloc((size_t)argc, sizeof *arguments.traces),
        .patterns = harpe_calloc((size_t)argc, sizeof *arguments.patterns),
    };
    harpe_error error;
    bool has_memory = arguments.traces && arguments.patterns;
    harpe_status status = has_memory ? HARPE_OK : harpe_fail_memory(&error);
    if (status == HARPE_OK) {
        struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
        check_usage(&arguments, &state);
        status = harpe_kernel_names_new(arguments.patterns, arguments.pattern_count,
                                        &arguments.request.names, &error);
    }
    harpe_trace *traces = harpe_calloc(arguments.trace_count, sizeof *traces);
    harpe_command_catch_signals();
    if (status == HARPE_OK)
        status = traces ? import(&arguments, traces, &error) : harpe_fail_memory(&error);
    for (size_t t = 0; traces && t < arguments.trace_count; t++)
        harpe_trace_free(&traces[t]);
    harpe_kernel_names_free(arguments.request.names);
    free(traces);
    free(arguments.traces);
    free(arguments.patterns);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("graph", &error);
}
