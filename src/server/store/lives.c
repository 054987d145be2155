/* SPDX-License-Identifier: Apache-2.0 */
/* A few servers in an array. Only this machine's monotonic clock is looked at, and only differences
 * of it: clocks of servers need not agree. While this machine is suspended it sees no beats, and
 * that clock stands still. */
#include "server/store/lives.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"

static harpe_life *need_life(harpe_lives *lives, int64_t id) {
    for (size_t i = 0; i < lives->count; i++) {
        if (lives->lives[i].id == id) return &lives->lives[i];
    }
    if (!HARPE_ARRAY_RESERVE(lives->lives, lives->capacity, lives->count + 1)) return NULL;
    harpe_life *life = &lives->lives[lives->count++];
    *life = (harpe_life){.id = id, .beat = -1};
    return life;
}

bool harpe_lives_note(harpe_lives *lives, int64_t id) { return need_life(lives, id) != NULL; }

/* What was seen to be the same at both ends of a long time. This very process may have slept
 * between asking and being answered: the time begins with an answer and ends with a question. */
bool harpe_lives_look_dead(harpe_lives *lives, const harpe_beat_row *row, int64_t asked_ns) {
    if (row->has_ended) return true;
    harpe_life *life = need_life(lives, row->id);
    if (!life) return false;
    if (life->beat != row->beat) {
        life->beat = row->beat;
        life->seen_ns = harpe_clock_ns();
        return false;
    }
    return asked_ns - life->seen_ns > HARPE_BEAT_DEAD_NS;
}

void harpe_lives_forgive(harpe_lives *lives) {
    for (size_t i = 0; i < lives->count; i++) {
        lives->lives[i].seen_ns = harpe_clock_ns();
    }
}

static bool is_among(const harpe_beat *beat, int64_t id) {
    for (size_t i = 0; i < beat->count; i++) {
        if (beat->rows[i].id == id) return true;
    }
    return false;
}

int64_t harpe_lives_take_gone(harpe_lives *lives, const harpe_beat *beat) {
    for (size_t i = 0; i < lives->count; i++) {
        int64_t id = lives->lives[i].id;
        if (is_among(beat, id)) continue;
        lives->lives[i] = lives->lives[--lives->count];
        return id;
    }
    return 0;
}

void harpe_lives_free(harpe_lives *lives) {
    free(lives->lives);
    *lives = (harpe_lives){0};
}
