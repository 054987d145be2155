/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the plan file reader. For any bytes, the result is an error of one printable line with a
 * position, or a plan that satisfies all rules of plan.h and does not change when it is written and
 * read again. Uses no files.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/plan.h>

#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_entry(const harpe_plan_file_entry *entry) {
    size_t length = strlen(entry->instruction);
    require(length >= 1 && length <= HARPE_INSTRUCTION_NAME_MAX);
    require(!strpbrk(entry->instruction, " ,\"'\n\r\t\\\x1b\x7f"));
    require(entry->frequency_mhz >= 0 && entry->frequency_mhz <= HARPE_FREQUENCY_MAX_MHZ);
}

/* Writes a plan in the layout in which Harpe writes plan files. */
static void print_plan(const harpe_plan_file *file, harpe_text *text) {
    harpe_text_printf(text, "[\n");
    for (int rank = 0; rank < harpe_plan_file_rank_count(file); rank++) {
        size_t count = 0;
        const harpe_plan_file_entry *entries = harpe_plan_file_rank(file, rank, &count);
        harpe_text_printf(text, "[");
        for (size_t i = 0; i < count; i++) {
            check_entry(&entries[i]);
            harpe_text_printf(text, "%s('%s', %d)", i > 0 ? ", " : "", entries[i].instruction,
                              entries[i].frequency_mhz);
        }
        harpe_text_printf(text, "],\n");
    }
    harpe_text_printf(text, "]\n");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_plan_file *file = NULL;
    harpe_error error = {.message = ""};
    harpe_status status = harpe_plan_file_parse((const char *)data, size, "fuzz.py", &file, &error);
    if (status != HARPE_OK) {
        require(!file);
        require(error.status == status);
        require(strncmp(error.message, "fuzz.py:", strlen("fuzz.py:")) == 0);
        require(!strpbrk(error.message, "\n\r\x1b"));
        return 0;
    }
    require(harpe_plan_file_rank_count(file) >= 1);
    harpe_text once = {0};
    harpe_text twice = {0};
    harpe_plan_file *again = NULL;
    print_plan(file, &once);
    require(harpe_plan_file_parse(once.data, once.length, "again", &again, NULL) == HARPE_OK);
    print_plan(again, &twice);
    require(once.length == twice.length && memcmp(once.data, twice.data, once.length) == 0);
    harpe_plan_file_free(again);
    harpe_plan_file_free(file);
    harpe_text_free(&once);
    harpe_text_free(&twice);
    return 0;
}
