/* SPDX-License-Identifier: Apache-2.0 */
/* The other servers as the mailbox has seen them, beat by beat: who stands still for too long, who
 * is no longer there. Private to the mailbox. */
#ifndef HARPE_SERVER_STORE_LIVES_H
#define HARPE_SERVER_STORE_LIVES_H

#include "server/store/mail.h"

typedef struct harpe_life {
    int64_t id, beat;
    int64_t seen_ns; /* when its beat was first seen to be this one */
} harpe_life;

/* Zero-initialise. */
typedef struct harpe_lives {
    harpe_life *lives;
    size_t count, capacity;
} harpe_lives;

/* From now on it will be missed when it is gone. False: out of memory. */
bool harpe_lives_note(harpe_lives *lives, int64_t id);
/* Was it dead at `asked_ns` (harpe_clock_ns), when the beat was asked for? */
bool harpe_lives_look_dead(harpe_lives *lives, const harpe_beat_row *row, int64_t asked_ns);
/* The database was silent, and so were they: for all of them the time begins anew. */
void harpe_lives_forgive(harpe_lives *lives);
/* One that was noted and is not in `beat`; it is no longer noted. 0: none. */
int64_t harpe_lives_take_gone(harpe_lives *lives, const harpe_beat *beat);
void harpe_lives_free(harpe_lives *lives); /* leaves it empty and usable */

#endif
