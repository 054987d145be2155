/* SPDX-License-Identifier: Apache-2.0 */
/* Checks an SQLite store and reports problems. */
#ifndef HARPE_SERVER_STORE_STORE_CHECK_H
#define HARPE_SERVER_STORE_STORE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "base/text.h"

/* The contents of a store and its problems. */
typedef struct harpe_store_report {
    bool is_in_use; /* a server uses the store, and a copy was checked */
    int64_t jobs, ranks, results;
    int64_t rounds; /* number of rounds that were handed out */
    int64_t commits;
    int64_t bytes; /* size of the database without its log */
    size_t problems;
    harpe_text details; /* a line for each of the first problems; NUL-terminated or NULL */
} harpe_store_report;
void harpe_store_report_free(harpe_store_report *report);

struct harpe_store_file;
/* Counts the records and looks for problems. */
harpe_status harpe_store_file_check(const struct harpe_store_file *file, harpe_store_report *report,
                                    harpe_error *error);

#endif
