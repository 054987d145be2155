/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe profile`: measures the power of a GPU that waits for its peer (p2p), measures how long a
 * GPU takes to change its clock (switch), or makes a profile from a server's dump of a job
 * (convert, in this file). In an iteration, the n-th run of an instruction had the frequency of the
 * n-th entry of this instruction in the round's schedule. A rank with an empty schedule ran at its
 * highest frequency. Times and energies are averaged for each rank. */
#include <dirent.h>

#include <harpe/pfo.h>
#include <harpe/profile.h>

#include "base/file.h"
#include "cli/cli.h"
#include "plan/profiles.h"

typedef struct convert_request {
    const char *directory;
    const char *output_path; /* NULL: stdout */
    bool force;
    bool json;
} convert_request;

/* Sums over the runs of one instruction at one frequency on one rank. */
typedef struct run_sum {
    int stage, rank, frequency_mhz;
    const char *instruction; /* equal names have the same pointer */
    double time_s, energy_j;
    size_t runs;
} run_sum;

typedef struct conversion {
    const char *directory;
    harpe_rank_info *ranks;
    size_t rank_count;
    harpe_arena arena; /* names */
    const char **names;
    size_t name_count, name_capacity;
    run_sum *sums;
    size_t sum_count, sum_capacity;
    size_t rounds, iterations, skipped_iterations, iterations_without_energy;
} conversion;

/* ---- Sums ------------------------------------------------------------------------------------ */

static const char *intern(conversion *self, const char *name) {
    for (size_t i = 0; i < self->name_count; i++)
        if (strcmp(self->names[i], name) == 0) return self->names[i];
    char *copy = harpe_arena_strdup(&self->arena, name, strlen(name));
    if (!copy || !HARPE_ARRAY_RESERVE(self->names, self->name_capacity, self->name_count + 1))
        return NULL;
    return self->names[self->name_count++] = copy;
}

/* Adds a run. `first` is the index at which the sums of this result begin. The sums before it
 * are complete. */
static bool add_run(conversion *self, size_t first, const run_sum *run) {
    for (size_t i = first; i < self->sum_count; i++) {
        run_sum *sum = &self->sums[i];
        if (sum->instruction != run->instruction || sum->frequency_mhz != run->frequency_mhz)
            continue;
        sum->time_s += run->time_s;
        sum->energy_j += run->energy_j;
        sum->runs++;
        return true;
    }
    if (!HARPE_ARRAY_RESERVE(self->sums, self->sum_capacity, self->sum_count + 1)) return false;
    self->sums[self->sum_count++] = *run;
    return true;
}

static int compare_sums(const void *a, const void *b) {
    const run_sum *left = a, *right = b;
    if (left->stage != right->stage) return left->stage < right->stage ? -1 : 1;
    if (left->rank != right->rank) return left->rank < right->rank ? -1 : 1;
    int names = strcmp(left->instruction, right->instruction);
    if (names != 0) return names;
    return (left->frequency_mhz < right->frequency_mhz) -
           (left->frequency_mhz > right->frequency_mhz);
}

/* Merges the sums, so that each (rank, instruction, frequency) has one sum. The highest frequency
 * is first. */
static void merge_sums(conversion *self) {
    size_t kept = 0;
    qsort(self->sums, self->sum_count, sizeof *self->sums, compare_sums);
    for (size_t i = 0; i < self->sum_count; i++) {
        if (kept > 0 && compare_sums(&self->sums[kept - 1], &self->sums[i]) == 0) {
            self->sums[kept - 1].time_s += self->sums[i].time_s;
            self->sums[kept - 1].energy_j += self->sums[i].energy_j;
            self->sums[kept - 1].runs += self->sums[i].runs;
        } else {
            self->sums[kept++] = self->sums[i];
        }
    }
    self->sum_count = kept;
}

/* ---- One result ------------------------------------------------------------------------------ */

static const harpe_rank_info *find_rank(const conversion *self, int rank) {
    for (size_t i = 0; i < self->rank_count; i++)
        if (self->ranks[i].rank == rank) return &self->ranks[i];
    return NULL;
}

static int highest_frequency(const harpe_rank_info *rank) {
    int highest_mhz = 0;
    for (size_t i = 0; i < rank->available_frequency_count; i++) {
        int frequency_mhz = rank->available_frequencies_mhz[i];
        highest_mhz = frequency_mhz > highest_mhz ? frequency_mhz : highest_mhz;
    }
    return highest_mhz;
}

static size_t scheduled_runs(const harpe_frequency_schedule *schedule, const char *name) {
    size_t count = 0;
    for (size_t i = 0; i < schedule->instruction_count; i++)
        count += strcmp(schedule->instructions[i].instruction, name) == 0;
    return count;
}

/* Finds the next entry with this name, beginning at `*entry`. Returns its frequency, and sets
 * `*entry` to the index after it. */
static int next_frequency(const harpe_frequency_schedule *schedule, const char *name,
                          size_t *entry) {
    while (strcmp(schedule->instructions[*entry].instruction, name) != 0)
        ++*entry;
    return schedule->instructions[(*entry)++].frequency_mhz;
}

static const harpe_breakdown *energies_of(const harpe_profiling_result *result,
                                          const harpe_breakdown *times) {
    for (size_t i = 0; i < result->energy_breakdown_count; i++) {
        const harpe_breakdown *energies = &result->energy_breakdown[i];
        if (strcmp(energies->instruction, times->instruction) == 0) return energies;
    }
    return NULL;
}

/* Adds the runs of one instruction in all iterations of a result. */
static bool add_breakdown(conversion *self, const harpe_rank_info *rank,
                          const harpe_frequency_schedule *schedule, const harpe_breakdown *times,
                          const harpe_breakdown *energies, size_t first) {
    size_t expected = scheduled_runs(schedule, times->instruction);
    const char *name = intern(self, times->instruction);
    if (!name) return false;
    for (size_t i = 0; i < times->iteration_count; i++) {
        size_t entry = 0, count = times->counts[i];
        self->iterations++;
        if (schedule->instruction_count > 0 && count != expected) {
            self->skipped_iterations++;
            continue;
        }
        if (!energies || i >= energies->iteration_count || energies->counts[i] != count) {
            self->iterations_without_energy++;
            continue;
        }
        for (size_t k = 0; k < count; k++) {
            run_sum run = {.stage = rank->pp_rank, .rank = rank->rank, .instruction = name};
            run.frequency_mhz = schedule->instruction_count > 0
                                    ? next_frequency(schedule, name, &entry)
                                    : highest_frequency(rank);
            run.time_s = times->values[times->offsets[i] + k];
            run.energy_j = energies->values[energies->offsets[i] + k];
            run.runs = 1;
            if (!add_run(self, first, &run)) return false;
        }
    }
    return true;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static harpe_status add_results(conversion *self, const char *name,
                                const harpe_profiling_result *results, size_t count,
                                const harpe_frequency_schedule *schedules, size_t schedule_count,
                                harpe_error *error) {
    for (size_t i = 0; i < count; i++) {
        const harpe_rank_info *rank = find_rank(self, results[i].rank);
        const harpe_frequency_schedule *schedule = NULL;
        for (size_t k = 0; k < schedule_count && !schedule; k++)
            schedule = schedules[k].rank == results[i].rank ? &schedules[k] : NULL;
        if (!rank || !schedule)
            return harpe_fail(error, HARPE_INVALID_INPUT, "%s/%s: rank %d is not in %s",
                              self->directory, name, results[i].rank,
                              rank ? "the round's schedules" : "ranks.json");
        size_t first = self->sum_count;
        for (size_t k = 0; k < results[i].time_breakdown_count; k++) {
            const harpe_breakdown *times = &results[i].time_breakdown[k];
            if (!add_breakdown(self, rank, schedule, times, energies_of(&results[i], times), first))
                return harpe_fail_memory(error);
        }
    }
    self->rounds++;
    return HARPE_OK;
}

/* Adds the results of a round. `name` is that of the file, K.prof.json. */
static harpe_status add_round(conversion *self, const char *name, harpe_error *error) {
    char schedule_name[300];
    snprintf(schedule_name, sizeof schedule_name, "%.*s.sched.json", (int)strcspn(name, "."), name);
    char *result_path = harpe_path_join(self->directory, "/", name);
    char *schedule_path = harpe_path_join(self->directory, "/", schedule_name);
    harpe_profiling_result *results = NULL;
    harpe_frequency_schedule *schedules = NULL;
    size_t count = 0, schedule_count = 0;
    harpe_status status = result_path && schedule_path ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = harpe_profiling_results_load(result_path, &results, &count, error);
    if (status == HARPE_OK)
        status = harpe_schedules_load(schedule_path, &schedules, &schedule_count, error);
    if (status == HARPE_OK)
        status = add_results(self, name, results, count, schedules, schedule_count, error);
    harpe_profiling_results_free(results, count);
    harpe_schedules_free(schedules, schedule_count);
    free(result_path);
    free(schedule_path);
    return status;
}

static bool is_result_name(const char *name) {
    size_t digits = strspn(name, "0123456789");
    return digits > 0 && digits <= 18 && strcmp(name + digits, ".prof.json") == 0;
}

static harpe_status read_all(conversion *self, harpe_error *error) {
    DIR *directory = opendir(self->directory);
    if (!directory) return harpe_fail_errno(error, errno, "%s", self->directory);
    char *path = harpe_path_join(self->directory, "/", "ranks.json");
    harpe_status status = path ? harpe_ranks_load(path, &self->ranks, &self->rank_count, error)
                               : harpe_fail_memory(error);
    free(path);
    for (struct dirent *entry; status == HARPE_OK && (entry = readdir(directory));) {
        if (!is_result_name(entry->d_name)) continue;
        status = harpe_command_check_signal(error);
        if (status == HARPE_OK) status = add_round(self, entry->d_name, error);
    }
    closedir(directory);
    return status;
}

/* ---- The profile ----------------------------------------------------------------------------- */

static harpe_status check(const conversion *self, harpe_error *error) {
    if (self->rounds == 0)
        return harpe_fail(error, HARPE_NOT_FOUND,
                          "%s: no K.prof.json here; has the job reported a result?",
                          self->directory);
    if (self->sum_count > 0) return HARPE_OK;
    if (self->iterations_without_energy > 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: the results hold no energies of instructions (energy_breakdown), "
                          "without which there is no profile; let the clients measure energy",
                          self->directory);
    return harpe_fail(
        error, HARPE_INVALID_INPUT,
        "%s: no result holds times of instructions (time_breakdown) that fit its schedule",
        self->directory);
}

static harpe_status print_rows(const conversion *self, harpe_text *text, harpe_error *error) {
    harpe_text_printf(text, "stage,rank,instruction,frequency,time,energy\n");
    for (size_t i = 0; i < self->sum_count; i++) {
        const run_sum *sum = &self->sums[i];
        harpe_measurement row = {.stage = sum->stage,
                                 .rank = sum->rank,
                                 .instruction = sum->instruction,
                                 .frequency_mhz = sum->frequency_mhz,
                                 .time_s = sum->time_s / (double)sum->runs,
                                 .energy_j = sum->energy_j / (double)sum->runs};
        harpe_profile_field fault = harpe_profile_row_fault(&row, strlen(row.instruction));
        if (fault != HARPE_FIELD_COUNT)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s: rank %d, '%.63s' at %d MHz: mean time %s s, energy %s J: %s",
                              self->directory, row.rank, row.instruction, row.frequency_mhz,
                              HARPE_DIGITS(row.time_s, 6), HARPE_DIGITS(row.energy_j, 6),
                              harpe_profile_field_rule(fault));
        harpe_text_printf(text, "%d,%d,%s,%d,", row.stage, row.rank, row.instruction,
                          row.frequency_mhz);
        harpe_text_number(text, row.time_s);
        harpe_text_append(text, ",", 1);
        harpe_text_number(text, row.energy_j);
        harpe_text_append(text, "\n", 1);
    }
    return text->failed ? harpe_fail_memory(error) : HARPE_OK;
}

static harpe_status write_out(const conversion *self, const convert_request *request,
                              harpe_error *error) {
    harpe_text text = {0};
    harpe_status status = print_rows(self, &text, error);
    if (status == HARPE_OK) status = harpe_command_write(request->output_path, &text, error);
    harpe_text_free(&text);
    if (status != HARPE_OK) return status;
    if (request->json) {
        json_t *object = json_pack(
            "{s:o, s:I, s:I, s:I, s:I}", "output", harpe_command_json_text(request->output_path),
            "rounds", (json_int_t)self->rounds, "rows", (json_int_t)self->sum_count,
            "skipped_iterations", (json_int_t)self->skipped_iterations, "iterations_without_energy",
            (json_int_t)self->iterations_without_energy);
        return harpe_command_print_json(object, error);
    }
    if (self->skipped_iterations + self->iterations_without_energy > 0)
        fprintf(stderr,
                "harpe profile: of %zu lists of instructions %zu did not fit their schedule and "
                "%zu had no energies; they are left out\n",
                self->iterations, self->skipped_iterations, self->iterations_without_energy);
    return HARPE_OK;
}

static harpe_status convert(const convert_request *request, harpe_error *error) {
    conversion self = {.directory = request->directory};
    harpe_status status = harpe_command_check_output(request->output_path, request->force, error);
    if (status == HARPE_OK) status = read_all(&self, error);
    if (status == HARPE_OK) status = check(&self, error);
    if (status == HARPE_OK) {
        merge_sums(&self);
        status = write_out(&self, request, error);
    }
    harpe_ranks_free(self.ranks, self.rank_count);
    harpe_arena_free(&self.arena);
    free(self.names);
    free(self.sums);
    return status;
}

/* ---- The command ----------------------------------------------------------------------------- */

static const harpe_flag convert_words[] = {{"DIRECTORY", HARPE_INTO(convert_request, directory)},
                                           {0}};

static const harpe_flag convert_flags[] = {
    {"output", 'o', "FILE", "Where to write the CSV (default: standard output)", 1,
     HARPE_INTO(convert_request, output_path)},
    {"force", 'f', NULL, "Replace an existing file", 1, HARPE_INTO(convert_request, force)},
    {"json", 'j', NULL, "Print a summary as JSON (needs --output)", 1,
     HARPE_INTO(convert_request, json)},
    {0},
};

static const harpe_command_line convert_line = {
    .parts = {{.flags = convert_flags}},
    .words = convert_words,
    .refusal = "is too many: one directory at a time",
    .forms = "DIRECTORY",
    .about = "Make a profile from the server's dump of a job: ranks.json, K.sched.json, "
             "K.prof.json.\vExample:\n  harpe profile convert "
             "dump/2026-01-31-12-00-00+dp1+pp4+tp1+Perseus --output profile.csv\n\nSee also: man "
             "harpe-profile",
};

static int run_convert(int argc, char **argv) {
    convert_request request = {0};
    struct argp_state state = harpe_command_line_read(&convert_line, argc, argv, &request);
    if (!request.directory)
        harpe_flag_fail(&state, "expected the directory with the server's dump of a job");
    if (request.json && !request.output_path)
        harpe_flag_fail(&state, "--json needs --output: standard output cannot hold both");
    harpe_error error;
    harpe_status status = convert(&request, &error);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("profile", &error);
}

static const harpe_command subcommands[] = {
    {"p2p", "Measure the power of a GPU that waits for a peer", harpe_profile_p2p_command},
    {"switch", "Measure how long a GPU takes to change its clock", harpe_profile_switch_command},
    {"convert", "Make a profile from a server's dump of a job", run_convert},
};

static void refuse_word(void *into, struct argp_state *state, const char *flag, char *text) {
    static const char *const words[] = {"p2p", "switch", "convert", NULL};
    (void)into, (void)harpe_flag_choice(state, flag, text, words);
}

static const harpe_flag words[] = {{"what to do", .read = refuse_word}, {0}};

static const harpe_command_line command_line = {
    .words = words,
    .is_in_order = true,
    .forms =
        "p2p [OPTION...]\nswitch [OPTION...] [-- COMMAND [ARG...]]\nconvert DIRECTORY [OPTION...]",
    .about = "Measure the power of a GPU that waits for a peer (p2p), measure how long a GPU takes "
             "to change its clock (switch), or make a profile from a server's dump of a job "
             "(convert).\vMore: harpe profile p2p --help, harpe profile switch --help, harpe "
             "profile convert --help, man harpe-profile",
};

int harpe_profile_command(int argc, char **argv) {
    harpe_command_catch_signals();
    int code =
        argc > 1 ? harpe_command_dispatch(subcommands, 3, "harpe profile", argc - 1, argv + 1) : -1;
    if (code >= 0) return code;
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &code);
    harpe_flag_fail(&state, "expected 'p2p', 'switch' or 'convert'; see 'harpe profile --help'");
}
