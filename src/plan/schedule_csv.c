/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the CSV that torch.distributed.pipelining writes: a row per rank, with cells such as 0F3,
 * 2I1, 2W1, 1B0, (0F7;7B3)OVERLAP_F_B. An empty cell means that the rank is idle. Cells of
 * communication (0SEND_F3, 2UNSHARD) are left out, because dependencies follow from computations.
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
#include "plan/dag.h"
#include "plan/schedule.h"

#define FILE_LIMIT_BYTES ((size_t)256 << 20)
#define FILE_INSTRUCTIONS_MAX 10000000

#define CELL_HINT "expected a cell such as 0F3, 1B0, 2I1, 2W1 or (0F7;7B3)OVERLAP_F_B"

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
    int *owner; /* of each stage: rank + 1; 0: not seen */
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
    switch (letter) {
    case 'F': *operation = HARPE_FORWARD; return true;
    case 'B': *operation = HARPE_BACKWARD; return true;
    case 'I': *operation = HARPE_BACKWARD_INPUT; return true;
    case 'W': *operation = HARPE_BACKWARD_WEIGHT; return true;
    default: return false;
    }
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

/* The instruction of a communication has no actions. */
static harpe_status parse_cell(const reader *r, size_t field, harpe_instruction *out,
                               harpe_error *error) {
    const char *text = r->csv.fields[field].text;
    cell c = {text, text + r->csv.fields[field].length, field};
    harpe_instruction instruction = {0};
    harpe_status status;
    if (is_communication(c)) {
        *out = instruction;
        return HARPE_OK;
    }
    if (take_text(&c, "(")) {
        status = take_overlapped(r, &c, &instruction, error);
    } else {
        status = take_action(r, &c, &instruction.actions[0], error);
        instruction.name = harpe_operation_name(instruction.actions[0].operation);
        instruction.action_count = 1;
    }
    if (status != HARPE_OK) return status;
    if (c.cursor != c.end) return harpe_csv_fail(&r->csv, field, error, CELL_HINT);
    *out = instruction;
    return HARPE_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Records the stage and the microbatch of an action, and checks that the stage is on one rank
 * only. */
static harpe_status note_action(reader *r, const harpe_action *action, size_t field,
                                harpe_error *error) {
    int owner = r->builder.schedule->rank_count + 1;
    int *noted = &r->owner[action->stage];
    if (*noted != 0 && *noted != owner)
        return harpe_csv_fail(&r->csv, field, error,
                              "stage %d is on rank %d already; a stage is on one rank",
                              action->stage, *noted - 1);
    *noted = owner;
    if (action->stage >= r->stage_count) r->stage_count = action->stage + 1;
    if (action->microbatch >= r->microbatch_count) r->microbatch_count = action->microbatch + 1;
    r->action_count++;
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
    for (int i = 0; i < instruction.action_count; i++) {
        status = note_action(r, &instruction.actions[i], field, error);
        if (status != HARPE_OK) return status;
    }
    if (!HARPE_ARRAY_RESERVE(r->positions, r->position_capacity, count + 1))
        return harpe_fail_memory(error);
    r->positions[count] = (position){r->csv.line, r->csv.fields[field].column};
    harpe_schedule_add(&r->builder, &instruction);
    return r->builder.failed ? harpe_fail_memory(error) : HARPE_OK;
}

static harpe_status read_row(reader *r, harpe_error *error) {
    const harpe_schedule *schedule = r->builder.schedule;
    size_t count_before = schedule->instruction_count;
    if (r->blank_line != 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s:%d: rank %d has nothing to do: the line is empty", r->csv.name,
                          r->blank_line, schedule->rank_count);
    if (schedule->rank_count == HARPE_RANKS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s:%d: more than %d ranks", r->csv.name,
                          r->csv.line, HARPE_RANKS_MAX);
    for (size_t i = 0; i < r->csv.field_count; i++) {
        if (r->csv.fields[i].length == 0) continue;
        harpe_status status = read_cell(r, i, error);
        if (status != HARPE_OK) return status;
    }
    if (schedule->instruction_count == count_before)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s:%d: rank %d has nothing to do: no cell has a computation",
                          r->csv.name, r->csv.line, schedule->rank_count);
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
        if (r->owner[stage] != 0) continue;
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: stage %d is missing: no rank runs it, though there is a stage %d",
                          r->csv.name, stage, r->stage_count - 1);
    }
    return HARPE_OK;
}

static unsigned bit_of(harpe_operation operation) { return 1u << operation; }

static harpe_status fail_twice(const reader *r, size_t index, const harpe_action *action,
                               harpe_error *error) {
    static const char letters[] = {[HARPE_FORWARD] = 'F',
                                   [HARPE_BACKWARD] = 'B',
                                   [HARPE_BACKWARD_INPUT] = 'I',
                                   [HARPE_BACKWARD_WEIGHT] = 'W'};
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s:%d:%d: %d%c%d comes a second time; every action runs once", r->csv.name,
                      r->positions[index].line, r->positions[index].column, action->stage,
                      letters[action->operation], action->microbatch);
}

/* Returns a text that says what is wrong with the set of operations that a stage runs on a
 * microbatch, or NULL. */
static const char *find_fault(unsigned operations) {
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

/* Checks that every stage runs every microbatch forward and backward once. If there are so few
 * actions that a microbatch must be missing, the graph reports it. */
static harpe_status check_actions(const reader *r, harpe_error *error) {
    const harpe_schedule *schedule = r->builder.schedule;
    size_t microbatches = (size_t)r->microbatch_count;
    size_t pairs = (size_t)r->stage_count * microbatches;
    if (pairs > r->action_count) return HARPE_OK;
    unsigned char *operations = harpe_calloc(pairs, sizeof *operations);
    if (!operations) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < schedule->instruction_count; i++) {
        for (int a = 0; a < schedule->instructions[i].action_count; a++) {
            const harpe_action *action = &schedule->instructions[i].actions[a];
            unsigned char *seen =
                &operations[(size_t)action->stage * microbatches + (size_t)action->microbatch];
            if (*seen & bit_of(action->operation)) {
                status = fail_twice(r, i, action, error);
                goto done;
            }
            *seen = (unsigned char)(*seen | bit_of(action->operation));
        }
    }
    for (size_t i = 0; i < pairs; i++) {
        const char *fault = find_fault(operations[i]);
        if (!fault) continue;
        int stage = (int)(i / microbatches);
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s: stage %d (rank %d) has %s for microbatch %d", r->csv.name, stage,
                            r->owner[stage] - 1, fault, (int)(i % microbatches));
        goto done;
    }
done:
    free(operations);
    return status;
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
    status = harpe_dag_build(lists, counts, schedule->rank_count, &dag, &detail);
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
    r.owner = harpe_calloc(HARPE_STAGE_MAX + 1, sizeof *r.owner);
    if (!r.owner) {
        status = harpe_fail_memory(error);
        goto cleanup;
    }
    status = read_rows(&r, error);
    if (status != HARPE_OK) goto cleanup;
    status = check_stages(&r, error);
    if (status != HARPE_OK) goto cleanup;
    status = check_actions(&r, error);
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
    free(r.owner);
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
