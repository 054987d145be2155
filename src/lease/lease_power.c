/* SPDX-License-Identifier: Apache-2.0 */
/* The holder's side of a lease of power limits. */
#include "lease/lease_power.h"

#include "base/error.h"
#include "base/helper_process.h"

enum { ANSWER_MS = 30000 };

harpe_status harpe_lease_power_set(int socket, harpe_lease_power_setting setting, uint32_t value,
                                   harpe_error *error) {
    harpe_lease_power_request request = {.setting = setting, .value = value};
    harpe_error answer;
    if (!harpe_helper_process_send(socket, &request, sizeof request) ||
        !harpe_helper_process_receive(socket, &answer, sizeof answer, ANSWER_MS))
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "the node agent's lease of a GPU's power limit has ended");
    answer.message[sizeof answer.message - 1] = '\0';
    if (answer.status != HARPE_OK && error) *error = answer;
    return answer.status;
}
