/* SPDX-License-Identifier: Apache-2.0 */
/* Letters in order, and how many bytes their bodies are. Private to the mailbox; no thread of its
 * own, no lock. */
#ifndef HARPE_SERVER_STORE_LETTERS_H
#define HARPE_SERVER_STORE_LETTERS_H

#include "server/mailbox.h"

typedef struct harpe_letters {
    harpe_letter *first;
    harpe_letter **end; /* where the next one is linked in */
    size_t bytes;
} harpe_letters;

void harpe_letters_init(harpe_letters *letters);
/* One or a list of them, which it takes over. */
void harpe_letters_append(harpe_letters *letters, harpe_letter *more);
/* All of them, as a list; leaves none. */
harpe_letter *harpe_letters_take(harpe_letters *letters);
void harpe_letters_clear(harpe_letters *letters);
/* Frees what asks `peer` for `call`; false: there is no such letter. */
bool harpe_letters_withdraw(harpe_letters *letters, int64_t peer, int64_t call);
/* Frees those that were not written by `me`. */
void harpe_letters_keep_from(harpe_letters *letters, int64_t me);

#endif
