/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the CSV that torch.distributed.pipelining writes: a row per rank, with cells such as 0F3,
 * 2I1, 2W1, 1B0, (0F7;7B3)OVERLAP_F_B. An empty cell means that the rank is idle. Cells of
 * communication (0SEND_F3, 2UNSHARD) are left out, because dependencies follow from computations.
 * Beyond that form, a cell may be a recomputation (0R3), may name its instruction
 * (0F3:forward_moe), may be a standalone instruction (:optimizer), may have a lag in seconds after
 * the instructions of other ranks for which it waits (1F3+0.002), or is a BARRIER of all ranks.
 * Checks that every stage runs every microbatch forward and backward exactly once. dag.c checks
 * that the order can finish. */
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/profile.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "plan/dag.h"
#include "plan/schedule.h"

#define FILE_LIMIT_BYTES ((size_t)256 << 20)
#define FILE_INSTRUCTIONS_MAX 10000000

#define CELL_HINT \
    "expected a cell such as 0F3, 1B0, 2I1, 2W1, (0F7;7B3)OVERLAP_F_B, 0F3:name, 1F0+0.002, " \
    ":name or BARRIER"
#define LAG_MAX_S 1e6
#define BARRIER "BARRIER"
/* Limits for a file's own names, and for the dependencies of its barriers. */
#define FILE_NAMES_MAX 64
#define BARRIER_WAITS_MAX 4000000

/* The position of an instruction, for errors found after reading. */
typedef struct position {
    int line;
    int column;
} position;

typedef struct reader {
    harpe_csv csv;
    harpe_schedule_builder builder;
    position *positions; /* one per instruction */
    size_t position_capacity;
    bool *has_stage;                   /* [HARPE_STAGE_MAX + 1] */
    const char *names[FILE_NAMES_MAX]; /* the file's own */
    int name_count;
    int stage_count;
    int microbatch_count;
    size_t action_count;
    int blank_line; /* first blank line; 0: none */
} reader;

/* ---- Cells ----------------------------------------------------------------------------------- */

typedef struct cell {
    const char *cursor, *end;
    size_t field; /* index in its record */
} cell;

/* Reads a decimal number of at most 9 digits. */
static bool take_number(cell *c, int *value) {
    const char *start = c->cursor;
    int result = 0;
    while (c->cursor < c->end && *c->cursor >= '0' && *c->cursor <= '9') {
        if (c->cursor - start == 9) return false;
        result = result * 10 + (*c->cursor++ - '0');
    }
    *value = result;
    return c->cursor > start;
}

/* Reads a word of capital letters and underscores, which may be empty. Returns its length. */
static size_t take_word(cell *c, const char **word) {
    *word = c->cursor;
    while (c->cursor < c->end && ((*c->cursor >= 'A' && *c->cursor <= 'Z') || *c->cursor == '_'))
        c->cursor++;
    return (size_t)(c->cursor - *word);
}

static bool take_text(cell *c, const char *text) {
    size_t length = strlen(text);
    if ((size_t)(c->end - c->cursor) < length || memcmp(c->cursor, text, length) != 0) return false;
    c->cursor += length;
    return true;
}

static bool find_operation(char letter, harpe_operation *operation) {
    for (int k = HARPE_FORWARD; k <= HARPE_RECOMPUTATION; k++) {
        *operation = (harpe_operation)k;
        if (harpe_operation_letter(*operation) == letter) return true;
    }
    return false;
}

/* Returns true if the cell is <stage><communication><microbatch>, such as 0SEND_F3. Some of these
 * actions have no microbatch: 2UNSHARD. */
static bool is_communication(cell c) {
    static const char *const words[] = {"SEND_F",      "SEND_B",          "RECV_F",  "RECV_B",
                                        "WAIT_SEND_F", "WAIT_SEND_B",     "UNSHARD", "RESHARD",
                                        "REDUCE_GRAD", "WAIT_REDUCE_GRAD"};
    const char *word;
    int number;
    if (!take_number(&c, &number)) return false;
    size_t length = take_word(&c, &word);
    if (c.cursor < c.end && !take_number(&c, &number)) return false;
    if (c.cursor < c.end) return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i]) == length && memcmp(words[i], word, length) == 0) return true;
    return false;
}

/* <stage><F|B|I|W><microbatch> */
static harpe_status take_action(const reader *r, cell *c, harpe_action *out, harpe_error *error) {
    harpe_action action = {0};
    const char *word;
    if (!take_number(c, &action.stage)) return harpe_csv_fail(&r->csv, c->field, error, CELL_HINT);
    size_t length = take_word(c, &word);
    if (length != 1 || !find_operation(*word, &action.operation) ||
        !take_number(c, &action.microbatch))
        return harpe_csv_fail(&r->csv, c->field, error, CELL_HINT);
    if (action.stage > HARPE_STAGE_MAX)
        return harpe_csv_fail(&r->csv, c->field, error, "stage: at most %d is supported",
                              HARPE_STAGE_MAX);
    if (action.microbatch >= HARPE_MICROBATCHES_MAX)
        return harpe_csv_fail(&r->csv, c->field, error, "microbatch: at most %d is supported",
                              HARPE_MICROBATCHES_MAX - 1);
    *out = action;
    return HARPE_OK;
}

static harpe_status take_overlapped(const reader *r, cell *c, harpe_instruction *out,
                                    harpe_error *error) {
    harpe_status status = take_action(r, c, &out->actions[0], error);
    if (status != HARPE_OK) return status;
    if (!take_text(c, ";")) return harpe_csv_fail(&r->csv, c->field, error, CELL_HINT);
    status = take_action(r, c, &out->actions[1], error);
    if (status != HARPE_OK) return status;
    if (!take_text(c, ")OVERLAP_F_B")) return harpe_csv_fail(&r->csv, c->field, error, CELL_HINT);
    if (out->actions[0].operation != HARPE_FORWARD ||
        (out->actions[1].operation != HARPE_BACKWARD &&
         out->actions[1].operation != HARPE_BACKWARD_INPUT))
        return harpe_csv_fail(&r->csv, c->field, error,
                              "an overlapped pair is a forward (F) and then a backward (B or I)");
    out->name = HARPE_OVERLAPPED_NAME;
    out->action_count = 2;
    return HARPE_OK;
}

/* Reads ":name" at the end of a cell. The schedule owns the name. */
static harpe_status take_name(reader *r, cell *c, const char **out, harpe_error *error) {
    const char *name = c->cursor + 1;
    size_t length = (size_t)(c->end - name);
    if (!harpe_is_instruction_name(name, length))
        return harpe_csv_fail(&r->csv, c->field, error,
                              "after the colon is no instruction name (1 to %d letters, digits or "
                              "_ . : -)",
                              HARPE_INSTRUCTION_NAME_MAX);
    c->cursor = c->end;
    for (int i = 0; i < r->name_count; i++) {
        if (strncmp(r->names[i], name, length) != 0 || r->names[i][length] != '\0') continue;
        *out = r->names[i];
        return HARPE_OK;
    }
    if (r->name_count == FILE_NAMES_MAX)
        return harpe_csv_fail(&r->csv, c->field, error, "more than %d names", FILE_NAMES_MAX);
    *out = harpe_arena_strdup(&r->builder.schedule->names, name, length);
    if (!*out) return harpe_fail_memory(error);
    r->names[r->name_count++] = *out;
    return HARPE_OK;
}

/* :<name>; its stage is known at the end of the row. */
static harpe_status take_standalone(reader *r, cell *c, harpe_instruction *out,
                                    harpe_error *error) {
    out->actions[0] = (harpe_action){HARPE_STANDALONE, -1, -1};
    out->action_count = 1;
    harpe_status status = take_name(r, c, &out->name, error);
    if (status != HARPE_OK) return status;
    for (int operation = HARPE_FORWARD; operation < HARPE_STANDALONE; operation++)
        if (out->name && strcmp(harpe_operation_name((harpe_operation)operation), out->name) == 0)
            return harpe_csv_fail(&r->csv, c->field, error,
                                  "'%s' is a pipeline instruction, which needs a cell such as 0F3",
                                  out->name);
    return HARPE_OK;
}

/* Takes "+<seconds>" off the end of a cell. A name has no plus sign. */
static harpe_status take_lag(const reader *r, cell *c, double *out, harpe_error *error) {
    const char *plus = memchr(c->cursor, '+', (size_t)(c->end - c->cursor));
    if (!plus) return HARPE_OK;
    if (!harpe_parse_double(plus + 1, (size_t)(c->end - plus) - 1, out) ||
        !(*out >= 0 && *out <= LAG_MAX_S))
        return harpe_csv_fail(&r->csv, c->field, error,
                              "after the plus sign is no time between 0 and %.0f s", LAG_MAX_S);
    c->end = plus;
    return HARPE_OK;
}

/* The instruction of a communication has no actions. */
static harpe_status parse_cell(reader *r, size_t field, harpe_instruction *out,
                               harpe_error *error) {
    const char *text = r->csv.fields[field].text;
    cell c = {text, text + r->csv.fields[field].length, field};
    harpe_instruction instruction = {0};
    harpe_status status;
    if (is_communication(c)) {
        *out = instruction;
        return HARPE_OK;
    }
    status = take_lag(r, &c, &instruction.lag_s, error);
    if (status != HARPE_OK) return status;
    if (c.cursor < c.end && *c.cursor == ':') {
        status = take_standalone(r, &c, &instruction, error);
    } else if (take_text(&c, "(")) {
        status = take_overlapped(r, &c, &instruction, error);
    } else {
        status = take_action(r, &c, &instruction.actions[0], error);
        instruction.name = harpe_operation_name(instruction.actions[0].operation);
        instruction.action_count = 1;
    }
    if (status == HARPE_OK && c.cursor < c.end && *c.cursor == ':')
        status = take_name(r, &c, &instruction.name, error);
    if (status != HARPE_OK) return status;
    if (c.cursor != c.end) return harpe_csv_fail(&r->csv, field, error, CELL_HINT);
    *out = instruction;
    return HARPE_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Records the stage and the microbatch of an action. */
static void note_action(reader *r, const harpe_action *action) {
    if (action->operation == HARPE_STANDALONE) return;
    r->has_stage[action->stage] = true;
    if (action->stage >= r->stage_count) r->stage_count = action->stage + 1;
    if (action->microbatch >= r->microbatch_count) r->microbatch_count = action->microbatch + 1;
    r->action_count++;
}

static bool is_barrier(const harpe_csv_field *field) {
    return field->length == strlen(BARRIER) && memcmp(field->text, BARRIER, field->length) == 0;
}

static harpe_status read_barrier(reader *r, harpe_error *error) {
    harpe_schedule *schedule = r->builder.schedule;
    if (!HARPE_ARRAY_RESERVE(schedule->barriers, schedule->barrier_capacity,
                             schedule->barrier_count + 1))
        return harpe_fail_memory(error);
    schedule->barriers[schedule->barrier_count++] = schedule->instruction_count;
    return HARPE_OK;
}

static harpe_status read_cell(reader *r, size_t field, harpe_error *error) {
    harpe_instruction instruction;
    harpe_status status = parse_cell(r, field, &instruction, error);
    if (status != HARPE_OK || instruction.action_count == 0) return status;
    size_t count = r->builder.schedule->instruction_count;
    if (count >= FILE_INSTRUCTIONS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s:%d: more than %d instructions",
                          r->csv.name, r->csv.line, FILE_INSTRUCTIONS_MAX);
    for (int i = 0; i < instruction.action_count; i++)
        note_action(r, &instruction.actions[i]);
    if (!HARPE_ARRAY_RESERVE(r->positions, r->position_capacity, count + 1))
        return harpe_fail_memory(error);
    r->positions[count] = (position){r->csv.line, r->csv.fields[field].column};
    harpe_schedule_add(&r->builder, &instruction);
    return r->builder.failed ? harpe_fail_memory(error) : HARPE_OK;
}

/* Checks that a rank, whose row has been read, has as many barriers as the ranks before it, which
 * have `before` together. */
static harpe_status check_barriers(const reader *r, size_t before, harpe_error *error) {
    int rank = r->builder.schedule->rank_count;
    size_t count = r->builder.schedule->barrier_count - before;
    size_t per_rank = rank == 0 ? count : before / (size_t)rank;
    if (count != per_rank)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s:%d: rank %d has %zu barriers, but rank 0 has %zu; a barrier is one "
                          "of all ranks",
                          r->csv.name, r->csv.line, rank, count, per_rank);
    return HARPE_OK;
}

/* Gives the standalone instructions of a rank the rank's lowest stage. */
static harpe_status settle_standalone(reader *r, size_t start, harpe_error *error) {
    harpe_schedule *schedule = r->builder.schedule;
    int lowest = -1;
    for (size_t i = start; i < schedule->instruction_count; i++) {
        const harpe_instruction *instruction = &schedule->instructions[i];
        for (int a = 0; a < instruction->action_count; a++) {
            int stage = instruction->actions[a].stage;
            if (stage >= 0 && (lowest < 0 || stage < lowest)) lowest = stage;
        }
    }
    if (lowest < 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s:%d: rank %d has nothing to do: no cell has a computation",
                          r->csv.name, r->csv.line, schedule->rank_count);
    for (size_t i = start; i < schedule->instruction_count; i++)
        if (schedule->instructions[i].actions[0].operation == HARPE_STANDALONE)
            schedule->instructions[i].actions[0].stage = lowest;
    return HARPE_OK;
}

static harpe_status read_row(reader *r, harpe_error *error) {
    const harpe_schedule *schedule = r->builder.schedule;
    size_t count_before = schedule->instruction_count, barriers_before = schedule->barrier_count;
    if (r->blank_line != 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s:%d: rank %d has nothing to do: the line is empty", r->csv.name,
                          r->blank_line, schedule->rank_count);
    if (schedule->rank_count == HARPE_RANKS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s:%d: more than %d ranks", r->csv.name,
                          r->csv.line, HARPE_RANKS_MAX);
    for (size_t i = 0; i < r->csv.field_count; i++) {
        if (r->csv.fields[i].length == 0) continue;
        harpe_status status =
            is_barrier(&r->csv.fields[i]) ? read_barrier(r, error) : read_cell(r, i, error);
        if (status != HARPE_OK) return status;
    }
    harpe_status status = settle_standalone(r, count_before, error);
    if (status == HARPE_OK) status = check_barriers(r, barriers_before, error);
    if (status != HARPE_OK) return status;
    harpe_schedule_end_rank(&r->builder);
    return r->builder.failed ? harpe_fail_memory(error) : HARPE_OK;
}

static harpe_status read_rows(reader *r, harpe_error *error) {
    for (;;) {
        bool has_record;
        harpe_status status = harpe_csv_next_line(&r->csv, &has_record, error);
        if (status != HARPE_OK) return status;
        if (!has_record) break;
        /* Blank lines at the end do not belong to a rank. */
        if (r->csv.field_count == 1 && r->csv.fields[0].length == 0) {
            if (r->blank_line == 0) r->blank_line = r->csv.line;
            continue;
        }
        status = read_row(r, error);
        if (status != HARPE_OK) return status;
    }
    if (r->builder.schedule->rank_count > 0) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s: the schedule is empty; expected one line per rank with cells such as "
                      "0F3,1B0",
                      r->csv.name);
}

/* ---- The whole schedule ---------------------------------------------------------------------- */

static harpe_status check_stages(const reader *r, harpe_error *error) {
    for (int stage = 0; stage < r->stage_count; stage++) {
        if (r->has_stage[stage]) continue;
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: stage %d is missing: no rank runs it, though there is a stage %d",
                          r->csv.name, stage, r->stage_count - 1);
    }
    return HARPE_OK;
}

static unsigned bit_of(harpe_operation operation) { return 1u << operation; }

static harpe_status fail_twice(const reader *r, size_t index, const harpe_action *action,
                               harpe_error *error) {
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s:%d:%d: %d%c%d comes a second time; every action runs once", r->csv.name,
                      r->positions[index].line, r->positions[index].column, action->stage,
                      harpe_operation_letter(action->operation), action->microbatch);
}

/* Returns a text that says what is wrong with the set of operations that a stage runs on a
 * microbatch, or NULL. */
static const char *find_fault(unsigned operations) {
    operations &= ~bit_of(HARPE_RECOMPUTATION);
    const unsigned forward = bit_of(HARPE_FORWARD);
    const unsigned backward = bit_of(HARPE_BACKWARD);
    const unsigned input = bit_of(HARPE_BACKWARD_INPUT);
    const unsigned weight = bit_of(HARPE_BACKWARD_WEIGHT);
    if (operations == (forward | backward) || operations == (forward | input | weight)) return NULL;
    if ((operations & forward) == 0) return "no forward (F)";
    if (operations == forward) return "a forward (F) but no backward (B, or I and W)";
    if ((operations & backward) != 0) return "both a whole backward (B) and half of one (I or W)";
    if ((operations & weight) == 0)
        return "the input half of the backward (I) but no weight half (W)";
    return "the weight half of the backward (W) but no input half (I)";
}

/* What a stage does with a microbatch. */
typedef struct pair_work {
    int rank; /* + 1; 0: nothing */
    unsigned operations;
} pair_work;

static harpe_status add_to_pair(const reader *r, pair_work *pair, size_t index, int rank,
                                const harpe_action *action, harpe_error *error) {
    if (pair->operations & bit_of(action->operation)) return fail_twice(r, index, action, error);
    if (pair->rank != 0 && pair->rank != rank + 1)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s:%d:%d: rank %d runs microbatch %d at stage %d already; a microbatch "
                          "passes a stage on one rank",
                          r->csv.name, r->positions[index].line, r->positions[index].column,
                          pair->rank - 1, action->microbatch, action->stage);
    pair->rank = rank + 1;
    pair->operations |= bit_of(action->operation);
    return HARPE_OK;
}

static harpe_status fill_pairs(const reader *r, pair_work *pairs, harpe_error *error) {
    const harpe_schedule *schedule = r->builder.schedule;
    int rank = 0;
    for (size_t i = 0; i < schedule->instruction_count; i++) {
        while (i >= schedule->rank_start[rank + 1])
            rank++;
        for (int a = 0; a < schedule->instructions[i].action_count; a++) {
            const harpe_action *action = &schedule->instructions[i].actions[a];
            if (action->operation == HARPE_STANDALONE) continue;
            size_t pair =
                (size_t)action->stage * (size_t)r->microbatch_count + (size_t)action->microbatch;
            harpe_status status = add_to_pair(r, &pairs[pair], i, rank, action, error);
            if (status != HARPE_OK) return status;
        }
    }
    return HARPE_OK;
}

/* Returns a rank that runs a stage. */
static int rank_of_stage(const reader *r, const pair_work *pairs, int stage) {
    const pair_work *first = &pairs[(size_t)stage * (size_t)r->microbatch_count];
    while (first->rank == 0)
        first++;
    return first->rank - 1;
}

/* Checks that every stage runs every microbatch forward and backward once, on one rank. If there
 * are so few actions that a microbatch must be missing, the graph reports it. */
static harpe_status check_actions(const reader *r, harpe_error *error) {
    size_t microbatches = (size_t)r->microbatch_count;
    size_t count = (size_t)r->stage_count * microbatches;
    if (count > r->action_count) return HARPE_OK;
    pair_work *pairs = harpe_calloc(count, sizeof *pairs);
    if (!pairs) return harpe_fail_memory(error);
    harpe_status status = fill_pairs(r, pairs, error);
    for (size_t i = 0; status == HARPE_OK && i < count; i++) {
        const char *fault = find_fault(pairs[i].operations);
        if (!fault) continue;
        int stage = (int)(i / microbatches);
        int rank = pairs[i].rank ? pairs[i].rank - 1 : rank_of_stage(r, pairs, stage);
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s: stage %d (rank %d) has %s for microbatch %d", r->csv.name, stage,
                            rank, fault, (int)(i % microbatches));
    }
    free(pairs);
    return status;
}

static harpe_status add_barriers(reader *r, harpe_error *error) {
    harpe_schedule *schedule = r->builder.schedule;
    size_t ranks = (size_t)schedule->rank_count, count = schedule->barrier_count;
    if (count * ranks > BARRIER_WAITS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%s: %zu barriers of %zu ranks are more than %d dependencies",
                          r->csv.name, count / ranks, ranks, BARRIER_WAITS_MAX);
    return harpe_schedule_set_barrier_waits(schedule, error);
}

/* Checks that the order can finish. The error names the file. */
static harpe_status check_order(const reader *r, harpe_error *error) {
    const harpe_schedule *schedule = r->builder.schedule;
    size_t ranks = (size_t)schedule->rank_count;
    const harpe_instruction **lists = harpe_calloc(ranks, sizeof *lists);
    size_t *counts = harpe_calloc(ranks, sizeof *counts);
    harpe_dag dag = {0};
    harpe_error detail = {0};
    harpe_status status;
    if (!lists || !counts) {
        status = harpe_fail_memory(error);
        goto done;
    }
    for (int rank = 0; rank < schedule->rank_count; rank++)
        lists[rank] = harpe_schedule_rank(schedule, rank, &counts[rank]);
    status = harpe_dag_build(lists, counts, schedule->rank_count, schedule->waits,
                             schedule->wait_count, &dag, &detail);
    if (status != HARPE_OK)
        status = harpe_fail(error, status, "%s: %s", r->csv.name, detail.message);
done:
    harpe_dag_clear(&dag);
    free(counts);
    free(lists);
    return status;
}

harpe_status harpe_schedule_parse_csv(const char *text, size_t length, const char *name,
                                      harpe_schedule **out, harpe_error *error) {
    reader r = {0};
    harpe_csv_open(&r.csv, text, length, name);
    harpe_status status = harpe_schedule_builder_start(&r.builder, "file", 0, 0, error);
    if (status != HARPE_OK) goto cleanup;
    r.has_stage = harpe_calloc(HARPE_STAGE_MAX + 1, sizeof *r.has_stage);
    if (!r.has_stage) {
        status = harpe_fail_memory(error);
        goto cleanup;
    }
    status = read_rows(&r, error);
    if (status != HARPE_OK) goto cleanup;
    status = check_stages(&r, error);
    if (status != HARPE_OK) goto cleanup;
    status = check_actions(&r, error);
    if (status != HARPE_OK) goto cleanup;
    status = add_barriers(&r, error);
    if (status != HARPE_OK) goto cleanup;
    status = check_order(&r, error);
    if (status != HARPE_OK) goto cleanup;
    r.builder.schedule->stage_count = r.stage_count;
    r.builder.schedule->microbatch_count = r.microbatch_count;
    status = harpe_schedule_builder_finish(&r.builder, out, error);
cleanup:
    harpe_schedule_builder_abort(&r.builder);
    harpe_csv_close(&r.csv);
    free(r.positions);
    free(r.has_stage);
    return status;
}

harpe_status harpe_schedule_read_csv(const char *path, harpe_schedule **out, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_schedule_parse_csv(text, length, path, out, error);
    free(text);
    return status;
}
