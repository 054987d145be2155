/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the search for a job's name in the text of /proc/PID/cgroup. A job's name must fit, and
 * must have only characters that cannot disturb a log. */
#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char job[HARPE_PEER_TEXT];
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    harpe_peer_parse_job(text, job);
    require(memchr(job, '\0', sizeof job));
    for (const char *c = job; *c; c++)
        require(isalnum((unsigned char)*c) || *c == ' ' || *c == '-');
    free(text);
    return 0;
}
