/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the profile reader. For any bytes, the result is an error of one printable line, or a
 * profile that satisfies all rules of profile.h and does not change when it is written and read
 * again. Uses no files. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/profile.h>

#include "base/text.h"
#include "plan/profiles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_entry(const harpe_profile *profile, size_t index) {
    const harpe_profile_entry *entry = harpe_profile_entry_at(profile, index);
    require(entry->stage >= 0 && entry->stage < harpe_profile_stage_count(profile));
    require(strlen(entry->instruction) >= 1);
    require(strlen(entry->instruction) <= HARPE_INSTRUCTION_NAME_MAX);
    require(!strpbrk(entry->instruction, " ,\"'\n\r\t\\<>&"));
    require(entry->point_count >= 1);
    require(harpe_profile_find(profile, entry->stage, entry->instruction) == entry);
    for (size_t k = 0; k < entry->point_count; k++) {
        const harpe_profile_point *point = &entry->points[k];
        require(point->frequency_mhz >= 0 && point->frequency_mhz <= HARPE_FREQUENCY_MAX_MHZ);
        require(k == 0 || point->frequency_mhz < point[-1].frequency_mhz);
        require(point->time_s > 0 && point->time_s < 1e7);
        require(point->energy_j > 0 && point->energy_j < 1e17);
    }
    if (index == 0) {
        require(entry->stage == 0);
        return;
    }
    const harpe_profile_entry *previous = harpe_profile_entry_at(profile, index - 1);
    require(entry->stage == previous->stage || entry->stage == previous->stage + 1);
    require(entry->stage != previous->stage ||
            strcmp(previous->instruction, entry->instruction) < 0);
}

static void check_same(const harpe_profile *a, const harpe_profile *b) {
    require(harpe_profile_entry_count(a) == harpe_profile_entry_count(b));
    for (size_t i = 0; i < harpe_profile_entry_count(a); i++) {
        const harpe_profile_entry *left = harpe_profile_entry_at(a, i);
        const harpe_profile_entry *right = harpe_profile_entry_at(b, i);
        require(left->point_count == right->point_count);
        for (size_t k = 0; k < left->point_count; k++) {
            require(left->points[k].frequency_mhz == right->points[k].frequency_mhz);
            require(left->points[k].time_s == right->points[k].time_s);
            require(left->points[k].energy_j == right->points[k].energy_j);
        }
    }
}

static void check_round_trip(const harpe_profile *profile) {
    for (size_t i = 0; i < harpe_profile_entry_count(profile); i++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(profile, i);
        for (size_t k = 0; k < entry->point_count; k++) {
            /* A sum over ranks, or a mean, may be slightly outside of the range of a single row. */
            const harpe_profile_point *point = &entry->points[k];
            if (point->energy_j > 1e9 || point->energy_j < 2e-12 || point->time_s > 9e5 ||
                point->time_s < 2e-9)
                return;
        }
    }
    harpe_text text = {0};
    harpe_profile *again = NULL;
    harpe_profile_print_csv(profile, &text);
    require(harpe_profile_parse_csv(text.data, text.length, "again", &again, NULL) == HARPE_OK);
    check_same(profile, again);
    harpe_profile_free(again);
    harpe_text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_profile *profile = NULL;
    harpe_error error = {.message = ""};
    harpe_status status =
        harpe_profile_parse_csv((const char *)data, size, "fuzz.csv", &profile, &error);
    if (status != HARPE_OK) {
        require(!profile);
        require(error.status == status);
        require(strncmp(error.message, "fuzz.csv", strlen("fuzz.csv")) == 0);
        require(!strpbrk(error.message, "\n\r\x1B"));
        return 0;
    }
    require(harpe_profile_stage_count(profile) >= 1);
    require(harpe_profile_entry_count(profile) >= 1);
    for (size_t i = 0; i < harpe_profile_entry_count(profile); i++)
        check_entry(profile, i);
    check_round_trip(profile);
    harpe_profile_free(profile);
    return 0;
}
