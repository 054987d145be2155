/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the words of a job's metadata, and makes the job's id. The id is readable and sortable by
 * time. For any metadata it is safe as a segment of a URL and as a directory name. The server
 * checks whether an id is in use. */
#include "pfo/metadata.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

const char *const harpe_word_names[HARPE_WORDS] = {"user", "slurm_job", "node", "nodes", "model"};

const char *harpe_metadata_next(const char **place, const char *name, size_t *length) {
    size_t name_length = strlen(name);
    for (const char *word = *place; *word;) {
        word += strspn(word, HARPE_METADATA_SEPARATORS);
        const char *end = word + strcspn(word, HARPE_METADATA_SEPARATORS);
        if (strncmp(word, name, name_length) == 0 && word[name_length] == '=') {
            *place = end;
            *length = (size_t)(end - word) - name_length - 1;
            return word + name_length + 1;
        }
        word = end;
    }
    return NULL;
}

/* ---- The id ---------------------------------------------------------------------------------- */

enum { LONGEST_PART = 128, LONGEST_ID = 512 };

static bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_allowed(char c) {
    return is_letter_or_digit(c) || (c != '\0' && strchr("._:=,@-", c));
}

/* Returns a copy without the words that the client adds, because they would only make the id
 * longer. The caller frees the copy with free(). */
static char *without_added_words(const char *metadata) {
    char *copy = strdup(metadata);
    for (int w = 0; copy && w < HARPE_ADDED_WORDS; w++) {
        const char *value, *place = copy;
        size_t length;
        while ((value = harpe_metadata_next(&place, harpe_word_names[w], &length))) {
            char *start = copy + (value - copy) - strlen(harpe_word_names[w]) - 1;
            start -= start > copy && start[-1] == ' ';
            memmove(start, place, strlen(place) + 1);
            place = start;
        }
    }
    return copy;
}

/* Appends one '_' for each unsafe character, no matter how many bytes it has. */
static void append_safe(harpe_text *text, const char *part) {
    size_t kept = 0;
    for (; *part != '\0' && kept < LONGEST_PART; part++) {
        bool is_inside_character = ((unsigned char)*part & 0xC0) == 0x80;
        if (!is_inside_character) {
            harpe_text_append(text, is_allowed(*part) ? part : "_", 1);
            kept++;
        }
    }
}

char *harpe_job_id_make(const harpe_job_info *job, const char *scheduler, time_t when,
                        int repetition) {
    struct tm local;
    harpe_text text = {0};
    if (!localtime_r(&when, &local))
        local = (struct tm){.tm_year = 70, .tm_mday = 1}; /* the year does not fit an int */
    harpe_text_printf(&text, "%04d-%02d-%02d-%02d-%02d-%02d", local.tm_year + 1900,
                      local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec);
    if (repetition > 1) harpe_text_printf(&text, ".%d", repetition);
    harpe_text_printf(&text, "+dp%d+pp%d+tp%d+", job->dp_degree, job->pp_degree, job->tp_degree);
    append_safe(&text, scheduler);
    char *metadata = without_added_words(job->job_metadata ? job->job_metadata : "");
    text.failed = text.failed || !metadata;
    if (metadata && *metadata) {
        harpe_text_append(&text, "+", 1);
        append_safe(&text, metadata);
    }
    free(metadata);
    return harpe_text_take(&text);
}

bool harpe_job_id_is_valid(const char *id) {
    size_t length = 0;
    if (id[0] == '.') return false;
    for (; id[length] != '\0'; length++)
        if (length == LONGEST_ID || !(is_allowed(id[length]) || id[length] == '+')) return false;
    return length > 0;
}
