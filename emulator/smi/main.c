/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the emulator's nvidia-smi: the supported options of NVIDIA's program and
 * their actions. The options and their forms follow NVIDIA's manual page nvidia-smi(1). */
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "smi.h"

/* ---- Options --------------------------------------------------------------------------------- */

typedef enum option_id {
    OPTION_HELP,
    OPTION_VERSION,
    OPTION_HELP_QUERY_GPU,
    OPTION_HELP_QUERY_PROCESSES,
    OPTION_LIST,
    OPTION_ID,
    OPTION_FILE,
    OPTION_LOOP,
    OPTION_LOOP_MS,
    OPTION_REPORT,
    OPTION_XML,
    OPTION_SECTIONS,
    OPTION_QUERY_GPU,
    OPTION_QUERY_PROCESSES,
    OPTION_FORMAT,
    OPTION_POWER_LIMIT,
    OPTION_PERSISTENCE,
    OPTION_COMPUTE_MODE,
    OPTION_LOCK_GRAPHICS,
    OPTION_RESET_GRAPHICS,
    OPTION_LOCK_MEMORY,
    OPTION_RESET_MEMORY,
    OPTION_COUNT,
} option_id;

typedef enum option_argument { NO_ARGUMENT, AN_ARGUMENT, MAYBE_AN_ARGUMENT } option_argument;

static const struct {
    const char *short_name, *long_name;
    option_argument argument;
    const char *argument_name, *help;
} options[OPTION_COUNT] = {
    [OPTION_HELP] = {"-h", "--help", NO_ARGUMENT, "", "This help"},
    [OPTION_VERSION] = {NULL, "--version", NO_ARGUMENT, "", "Versions"},
    [OPTION_HELP_QUERY_GPU] = {NULL, "--help-query-gpu", NO_ARGUMENT, "",
                               "The fields of --query-gpu"},
    [OPTION_HELP_QUERY_PROCESSES] = {NULL, "--help-query-compute-apps", NO_ARGUMENT, "",
                                     "The fields of --query-compute-apps"},
    [OPTION_LIST] = {"-L", "--list-gpus", NO_ARGUMENT, "", "One line per GPU"},
    [OPTION_ID] = {"-i", "--id", AN_ARGUMENT, "ID,...",
                   "Only these GPUs: indices, UUIDs or PCI addresses"},
    [OPTION_FILE] = {"-f", "--filename", AN_ARGUMENT, "FILE", "Write there"},
    [OPTION_LOOP] = {"-l", "--loop", MAYBE_AN_ARGUMENT, "SECONDS",
                     "Again every so often, until interrupted (5)"},
    [OPTION_LOOP_MS] = {"-lms", "--loop-ms", AN_ARGUMENT, "MS", "The same in milliseconds"},
    [OPTION_REPORT] = {"-q", "--query", NO_ARGUMENT, "", "Everything about the GPUs"},
    [OPTION_XML] = {"-x", "--xml-format", NO_ARGUMENT, "", "-q as XML"},
    [OPTION_SECTIONS] = {"-d", "--display", AN_ARGUMENT, "SECTION,...", "Of -q only these"},
    [OPTION_QUERY_GPU] = {NULL, "--query-gpu", AN_ARGUMENT, "FIELD,...", "A line per GPU"},
    [OPTION_QUERY_PROCESSES] = {NULL, "--query-compute-apps", AN_ARGUMENT, "FIELD,...",
                                "A line per process"},
    [OPTION_FORMAT] = {NULL, "--format", AN_ARGUMENT, "csv[,noheader][,nounits]", "Of a query"},
    [OPTION_POWER_LIMIT] = {"-pl", "--power-limit", AN_ARGUMENT, "WATTS", "Set the power limit"},
    [OPTION_PERSISTENCE] = {"-pm", "--persistence-mode", AN_ARGUMENT, "0|1",
                            "Set persistence mode"},
    [OPTION_COMPUTE_MODE] = {"-c", "--compute-mode", AN_ARGUMENT, "0|2|3", "Set the compute mode"},
    [OPTION_LOCK_GRAPHICS] = {"-lgc", "--lock-gpu-clocks", AN_ARGUMENT, "MIN,MAX",
                              "Lock the graphics clock, in MHz"},
    [OPTION_RESET_GRAPHICS] = {"-rgc", "--reset-gpu-clocks", NO_ARGUMENT, "", "Unlock it"},
    [OPTION_LOCK_MEMORY] = {"-lmc", "--lock-memory-clocks", AN_ARGUMENT, "MIN,MAX",
                            "Lock the memory clock, in MHz"},
    [OPTION_RESET_MEMORY] = {"-rmc", "--reset-memory-clocks", NO_ARGUMENT, "", "Unlock it"},
};

typedef struct command_line {
    bool has[OPTION_COUNT];
    const char *value[OPTION_COUNT]; /* NULL: none given */
} command_line;

/* Finds the option of a word. `*value` receives the text after its "=". */
static int find_option(const char *word, const char **value) {
    *value = NULL;
    size_t length = strcspn(word, "=");
    for (int i = 0; i < OPTION_COUNT; i++) {
        const char *name = options[i].long_name;
        if (options[i].short_name && strcmp(word, options[i].short_name) == 0) return i;
        if (strlen(name) == length && memcmp(name, word, length) == 0) {
            if (word[length] == '=') *value = word + length + 1;
            return i;
        }
    }
    return OPTION_COUNT;
}

static int refuse(const char *what, const char *word) {
    printf(
        "%s: %s. Run 'nvidia-smi -h' for help; this is the nvidia-smi of Harpe's emulator, which "
        "knows some of NVIDIA's options.\n",
        what, word);
    return SMI_BAD_ARGUMENT;
}

static int parse(int argc, char **argv, command_line *line) {
    for (int i = 1; i < argc; i++) {
        const char *value = NULL;
        int option = find_option(argv[i], &value);
        if (option == OPTION_COUNT)
            return refuse("Invalid combination of input arguments", argv[i]);
        option_argument wanted = options[option].argument;
        bool may_follow = wanted == AN_ARGUMENT ||
                          (wanted == MAYBE_AN_ARGUMENT && i + 1 < argc && argv[i + 1][0] != '-');
        if (wanted == NO_ARGUMENT && value) return refuse("An option that takes no value", argv[i]);
        if (!value && may_follow) {
            if (i + 1 >= argc) return refuse("An option without its value", argv[i]);
            value = argv[++i];
        }
        line->has[option] = true;
        line->value[option] = value;
    }
    return SMI_OK;
}

/* ---- Help ------------------------------------------------------------------------------------ */

static void print_help(void) {
    printf("NVIDIA System Management Interface of Harpe's NVML emulator\n\n"
           "A small program in the place of NVIDIA's nvidia-smi, for emulated GPUs only; 'harpe "
           "emulate' puts it\nin the PATH. It knows the options that programs use.\n\n"
           "nvidia-smi [OPTION [ARGUMENT]]...\n\n");
    for (int i = 0; i < OPTION_COUNT; i++) {
        char names[96];
        snprintf(names, sizeof names, "%s%s%s%s%s",
                 options[i].short_name ? options[i].short_name : "",
                 options[i].short_name ? ", " : "", options[i].long_name,
                 options[i].argument == NO_ARGUMENT ? "" : "=", options[i].argument_name);
        printf("  %-48s  %s\n", names, options[i].help);
    }
}

static int print_versions(void) {
    smi_gpus gpus;
    char driver[SMI_TEXT_MAX] = "", nvml[SMI_TEXT_MAX] = "";
    int status = smi_open(NULL, &gpus);
    if (status != SMI_OK) return status;
    (void)smi_get_system_text("nvmlSystemGetDriverVersion", driver, sizeof driver);
    (void)smi_get_system_text("nvmlSystemGetNVMLVersion", nvml, sizeof nvml);
    printf("NVIDIA-SMI version  : that of Harpe's NVML emulator\n"
           "NVML version        : %s\nDRIVER version      : %s\n",
           nvml, driver);
    return SMI_OK;
}

/* ---- Actions --------------------------------------------------------------------------------- */

static int read_format(const char *text, smi_format *format) {
    for (const char *at = text; at;) {
        size_t length = strcspn(at, ",");
        while (length > 0 && *at == ' ')
            at++, length--;
        if (length == 3 && memcmp(at, "csv", 3) == 0)
            format->is_given = true;
        else if (length == 8 && memcmp(at, "noheader", 8) == 0)
            format->no_header = true;
        else if (length == 7 && memcmp(at, "nounits", 7) == 0)
            format->no_units = true;
        else
            return refuse("Not a format: csv, noheader, nounits are", text);
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return SMI_OK;
}

static int show_once(const command_line *line, const smi_gpus *gpus, smi_format format, FILE *out) {
    int status = SMI_OK;
    if (line->has[OPTION_LIST]) return smi_list(gpus, out);
    if (line->has[OPTION_QUERY_GPU])
        status = smi_query_gpus(gpus, line->value[OPTION_QUERY_GPU], format, out);
    else if (line->has[OPTION_QUERY_PROCESSES])
        status = smi_query_processes(gpus, line->value[OPTION_QUERY_PROCESSES], format, out);
    else if (line->has[OPTION_REPORT])
        status = smi_report(gpus, line->has[OPTION_XML], line->value[OPTION_SECTIONS], out);
    else
        status = smi_table(gpus, out);
    return fflush(out) == 0 ? status : SMI_OTHER;
}

/* Returns the seconds between two rounds, 0 for a single round, or a value below 0 if the text is
 * invalid. */
static double loop_s(const command_line *line) {
    bool is_ms = line->has[OPTION_LOOP_MS];
    if (!is_ms && !line->has[OPTION_LOOP]) return 0;
    const char *text = line->value[is_ms ? OPTION_LOOP_MS : OPTION_LOOP];
    if (!text) return 5;
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0 && value < 1e9)) return -1;
    return is_ms ? value / 1e3 : value;
}

static int show(const command_line *line, const smi_gpus *gpus) {
    smi_format format = {0};
    double pause_s = loop_s(line);
    if (pause_s < 0) return refuse("Not a time for --loop", "a number above 0 is expected");
    int status = SMI_OK;
    if (line->has[OPTION_FORMAT]) status = read_format(line->value[OPTION_FORMAT], &format);
    if (status != SMI_OK) return status;
    FILE *out = stdout;
    if (line->has[OPTION_FILE]) out = fopen(line->value[OPTION_FILE], "we");
    if (!out) return refuse("Cannot write", line->value[OPTION_FILE]);
    do {
        status = show_once(line, gpus, format, out);
        format.no_header = true; /* the heading is printed only once */
        if (pause_s > 0) harpe_sleep_ns((int64_t)(pause_s * 1e9));
    } while (pause_s > 0 && status == SMI_OK);
    if (out != stdout && fclose(out) != 0) status = SMI_OTHER;
    return status;
}

/* Changes the settings that the command line names. Returns the exit status, or -1 if there is
 * nothing to set. */
static int change(const command_line *line, const smi_gpus *gpus) {
    if (line->has[OPTION_POWER_LIMIT])
        return smi_set_power_limit(gpus, line->value[OPTION_POWER_LIMIT]);
    if (line->has[OPTION_PERSISTENCE])
        return smi_set_persistence(gpus, line->value[OPTION_PERSISTENCE]);
    if (line->has[OPTION_COMPUTE_MODE])
        return smi_set_compute_mode(gpus, line->value[OPTION_COMPUTE_MODE]);
    if (line->has[OPTION_LOCK_GRAPHICS])
        return smi_lock_clocks(gpus, line->value[OPTION_LOCK_GRAPHICS], false);
    if (line->has[OPTION_RESET_GRAPHICS]) return smi_lock_clocks(gpus, NULL, false);
    if (line->has[OPTION_LOCK_MEMORY])
        return smi_lock_clocks(gpus, line->value[OPTION_LOCK_MEMORY], true);
    if (line->has[OPTION_RESET_MEMORY]) return smi_lock_clocks(gpus, NULL, true);
    return -1;
}

int main(int argc, char **argv) {
    command_line line = {0};
    smi_gpus gpus;
    int status = parse(argc, argv, &line);
    if (status != SMI_OK) return status;
    if (line.has[OPTION_HELP]) {
        print_help();
        return SMI_OK;
    }
    if (line.has[OPTION_VERSION]) return print_versions();
    if (line.has[OPTION_HELP_QUERY_GPU]) smi_property_help(stdout);
    if (line.has[OPTION_HELP_QUERY_PROCESSES]) smi_query_processes_help(stdout);
    if (line.has[OPTION_HELP_QUERY_GPU] || line.has[OPTION_HELP_QUERY_PROCESSES]) return SMI_OK;
    status = smi_open(line.value[OPTION_ID], &gpus);
    if (status != SMI_OK) return status;
    status = change(&line, &gpus);
    return status >= 0 ? status : show(&line, &gpus);
}
