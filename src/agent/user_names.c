/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the names of the users who were asked for last, and looks each name up again after ten
 * minutes. */
#include "agent/user_names.h"

#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"

#define NAME_AGE_NS (INT64_C(600) * 1000000000) /* age at which a name is looked up again */

enum { USERS = 256, NAME_SIZE = 64, BUFFER_SIZE = 16384 };

/* While `is_running` is true, a worker writes `found`. All other members belong to the loop. */
typedef struct user_name {
    bool is_used, is_running;
    uid_t user;
    char name[NAME_SIZE], found[NAME_SIZE];
    int64_t looked_up_ns; /* 0: never */
    int64_t asked_ns;
    harpe_work work;
} user_name;

struct harpe_user_names {
    harpe_workers *workers;
    int pool;
    user_name users[USERS];
};

/* Runs on a worker. */
static void look_up(void *given) {
    user_name *user = given;
    char buffer[BUFFER_SIZE];
    struct passwd entry, *found = NULL;
    user->found[0] = '\0';
    if (getpwuid_r(user->user, &entry, buffer, sizeof buffer, &found) == 0 && found)
        (void)snprintf(user->found, sizeof user->found, "%s", found->pw_name);
}

static void looked_up(void *given) {
    user_name *user = given;
    (void)snprintf(user->name, sizeof user->name, "%s", user->found);
    user->looked_up_ns = harpe_clock_ns();
    user->is_running = false;
}

harpe_status harpe_user_names_new(harpe_workers *workers, int pool, harpe_user_names **out,
                                  harpe_error *error) {
    harpe_user_names *names = harpe_calloc(1, sizeof *names);
    if (!names) return harpe_fail_memory(error);
    names->workers = workers;
    names->pool = pool;
    *out = names;
    return HARPE_OK;
}

void harpe_user_names_free(harpe_user_names *names) { free(names); }

/* Returns the user's place in the table. If the user has none, gives the user the place whose last
 * request is the oldest. Returns NULL if workers use all places. */
static user_name *find_place(harpe_user_names *names, uid_t user) {
    user_name *oldest = NULL;
    for (int i = 0; i < USERS; i++) {
        user_name *each = &names->users[i];
        if (each->is_used && each->user == user) return each;
        if (!each->is_running && (!oldest || each->asked_ns < oldest->asked_ns)) oldest = each;
    }
    if (oldest) *oldest = (user_name){.is_used = true, .user = user};
    return oldest;
}

const char *harpe_user_names_find(harpe_user_names *names, uid_t user) {
    user_name *place = find_place(names, user);
    int64_t now_ns = harpe_clock_ns();
    if (!place) return "";
    place->asked_ns = now_ns;
    bool is_known = place->looked_up_ns > 0 && now_ns - place->looked_up_ns < NAME_AGE_NS;
    if (is_known || place->is_running) return place->name;
    place->is_running = true;
    place->work =
        (harpe_work){.work = look_up, .done = looked_up, .user = place, .pool = names->pool};
    harpe_workers_submit(names->workers, &place->work);
    return place->name;
}
