/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes what a member of a fleet reads from a server: the answer to a report, and the reason of a
 * refusal. A plan is one of the member's, and a reason is a text that fits. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/client/connection.h"
#include "power_limit/member.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { PLANS = 5, UNTOUCHED = 77 };
    size_t plan = UNTOUCHED;
    bool is_read = harpe_member_read_answer((const char *)data, size, PLANS, &plan);
    require(is_read ? plan < PLANS : plan == UNTOUCHED);
    require(!harpe_member_read_answer((const char *)data, size, 0, &plan));
    char reason[64] = "";
    harpe_answer answer = {.body = (const char *)data, .length = size};
    (void)harpe_answer_detail(&answer, reason, sizeof reason);
    require(memchr(reason, '\0', sizeof reason) != NULL);
    return 0;
}
