/* SPDX-License-Identifier: Apache-2.0 */
/* Frees a message and its texts. */
#include "server/cluster/message.h"

#include <stdlib.h>

void harpe_message_free(harpe_message *message) {
    if (!message) return;
    free(message->job_id);
    free(message->body);
    free(message);
}
