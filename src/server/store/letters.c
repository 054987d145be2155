/* SPDX-License-Identifier: Apache-2.0 */
/* A list with its end known, so that thousands of letters are queued one by one. */
#include "server/store/letters.h"

#include <stdlib.h>

void harpe_letters_init(harpe_letters *letters) {
    *letters = (harpe_letters){.end = &letters->first};
}

void harpe_letters_append(harpe_letters *letters, harpe_letter *more) {
    *letters->end = more;
    for (; more; more = more->next) {
        letters->bytes += more->length;
        letters->end = &more->next;
    }
}

harpe_letter *harpe_letters_take(harpe_letters *letters) {
    harpe_letter *first = letters->first;
    harpe_letters_init(letters);
    return first;
}

void harpe_letters_clear(harpe_letters *letters) {
    for (harpe_letter *letter = harpe_letters_take(letters), *next; letter; letter = next) {
        next = letter->next;
        harpe_letter_free(letter);
    }
}

/* The letter at `*place` goes. */
static void drop(harpe_letters *letters, harpe_letter **place) {
    harpe_letter *letter = *place;
    *place = letter->next;
    if (!letter->next) letters->end = place;
    letters->bytes -= letter->length;
    harpe_letter_free(letter);
}

bool harpe_letters_withdraw(harpe_letters *letters, int64_t peer, int64_t call) {
    for (harpe_letter **place = &letters->first; *place; place = &(*place)->next) {
        const harpe_letter *letter = *place;
        if (letter->kind != HARPE_LETTER_ASK || letter->call != call || letter->peer != peer) {
            continue;
        }
        drop(letters, place);
        return true;
    }
    return false;
}

void harpe_letters_keep_from(harpe_letters *letters, int64_t me) {
    for (harpe_letter **place = &letters->first; *place;) {
        if ((*place)->from == me)
            place = &(*place)->next;
        else
            drop(letters, place);
    }
}
