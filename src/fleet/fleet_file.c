/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the file of a fleet (harpe-fleet(5)), and makes the fleet of a moment: budgets and prices
 * of a moment, and prices from CSV. After reading, the groups are put in order, parents first, the
 * groups that jobs and events name are found, and names that occur twice are refused. */
#include "fleet/fleet_tools.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"

/* ---- A moment -------------------------------------------------------------------------------- */

double harpe_fleet_file_watts(const harpe_fleet_file *file, int group, double at_s,
                              double known_s) {
    double watts = file->groups[group].budget.watts, less = 0;
    if (watts < 0) return -1;
    for (size_t e = 0; e < file->event_count; e++) {
        const harpe_fleet_file_event *event = &file->events[e];
        bool runs = at_s >= event->from_s && at_s < event->from_s + event->duration_s;
        if (event->group != group || !runs || event->from_s - event->notice_s > known_s) continue;
        watts *= 1 - event->share_less;
        less += event->watts_less;
    }
    return fmax(watts - less, 0);
}

harpe_fleet_price harpe_fleet_file_price_at(const harpe_fleet_file *file, double at_s) {
    return harpe_price_at(file->prices, file->price_count, at_s, file->carbon_per_kg,
                          file->value_per_s);
}

void harpe_fleet_file_free(harpe_fleet_file *file) {
    harpe_arena_free(&file->arena);
    *file = (harpe_fleet_file){0};
}

/* ---- Prices from a file ---------------------------------------------------------------------- */

/* Copies the prices into the file's arena. */
static harpe_status keep_prices(harpe_fleet_file *file, const harpe_price_series *series,
                                harpe_error *error) {
    harpe_fleet_file_price *kept = harpe_arena_alloc(&file->arena, series->count, sizeof *kept);
    if (!kept) return harpe_fail_memory(error);
    memcpy(kept, series->prices, series->count * sizeof *kept);
    file->prices = kept;
    file->price_count = series->count;
    return HARPE_OK;
}

harpe_status harpe_fleet_file_read_prices(harpe_fleet_file *file, const char *path,
                                          harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_price_series series = {0};
    harpe_status status = harpe_file_read(path, HARPE_PRICE_SERIES_BYTES, &text, &length, error);
    if (status == HARPE_OK)
        status = harpe_price_series_read_csv(text, length, path, &series, error);
    if (status == HARPE_OK && series.is_of_day)
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s: the times of a fleet's file count from 0: use the column time_s "
                            "instead of at",
                            path);
    if (status == HARPE_OK) status = keep_prices(file, &series, error);
    harpe_price_series_free(&series);
    free(text);
    return status;
}

/* ---- The fleet of a moment ------------------------------------------------------------------- */

static harpe_status add_groups(const harpe_fleet_file *file, double at_s, harpe_fleet *fleet,
                               harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t g = 0; g < file->group_count && status == HARPE_OK; g++) {
        const harpe_fleet_file_group *group = &file->groups[g];
        harpe_fleet_budget budget = group->budget;
        int number = 0;
        if (g > 0)
            status = harpe_fleet_add_group(fleet, group->name, group->parent, &number, error);
        /* The stated budget is checked before the events make it smaller. */
        if (status == HARPE_OK) status = harpe_fleet_set_budget(fleet, (int)g, &budget, error);
        budget.watts = harpe_fleet_file_watts(file, (int)g, at_s, at_s);
        if (status == HARPE_OK) status = harpe_fleet_set_budget(fleet, (int)g, &budget, error);
    }
    return status;
}

harpe_fleet_job harpe_fleet_file_description(const harpe_fleet_file_job *job) {
    return (harpe_fleet_job){.name = job->name,
                             .group = job->group,
                             .weight = job->weight,
                             .max_slowdown = job->max_slowdown,
                             .plan_count = job->plan_count,
                             .plans = job->plans};
}

static harpe_status add_jobs(const harpe_fleet_file *file, double at_s, harpe_fleet *fleet,
                             harpe_error *error) {
    for (size_t j = 0; j < file->job_count; j++) {
        const harpe_fleet_file_job *job = &file->jobs[j];
        const harpe_fleet_job description = harpe_fleet_file_description(job);
        int number;
        harpe_status status = harpe_fleet_add(fleet, &description, &number, error);
        if (status != HARPE_OK) return status;
    }
    /* Numbers of removed jobs would be used again, so all jobs are added first. */
    for (size_t j = 0; j < file->job_count; j++) {
        const harpe_fleet_file_job *job = &file->jobs[j];
        if (at_s >= job->arrival_s && at_s < job->end_s) continue;
        harpe_status status = harpe_fleet_remove(fleet, (int)j, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

harpe_status harpe_fleet_file_fleet(const harpe_fleet_file *file, const char *name, double at_s,
                                    harpe_fleet **out, harpe_error *error) {
    harpe_fleet *fleet = NULL;
    harpe_error reason;
    harpe_status status = harpe_fleet_new(&fleet, &reason);
    if (status == HARPE_OK) status = add_groups(file, at_s, fleet, &reason);
    if (status == HARPE_OK) status = add_jobs(file, at_s, fleet, &reason);
    if (status == HARPE_OK) {
        harpe_fleet_price price = harpe_fleet_file_price_at(file, at_s);
        status = harpe_fleet_set_price(fleet, &price, &reason);
    }
    if (status == HARPE_OK) {
        *out = fleet;
        return HARPE_OK;
    }
    harpe_fleet_free(fleet);
    return harpe_fail(error, status, "%s: %s", name, reason.message);
}

/* ---- Names ----------------------------------------------------------------------------------- */

typedef struct linker {
    const char *name;
    harpe_fleet_file *file;
    json_t *groups; /* by name: the index in "budgets" */
    harpe_error *error;
} linker;

/* Returns the index of a group in "budgets", or -1. */
static int index_of(const linker *l, const char *group) {
    const json_t *index = group ? json_object_get(l->groups, group) : NULL;
    return index ? (int)json_integer_value(index) : -1;
}

/* Enters a name into a map. Fails if it is there already. */
static harpe_status enter(const linker *l, json_t *map, const char *kind, const char *name,
                          size_t index) {
    char clean[HARPE_FLEET_NAME_MAX];
    if (json_object_get(map, name))
        return harpe_fail(l->error, HARPE_INVALID_INPUT, "%s: %s '%s' occurs twice", l->name, kind,
                          harpe_clean_text(clean, sizeof clean, name));
    return json_object_set_new_nocheck(map, name, json_integer((json_int_t)index)) == 0
               ? HARPE_OK
               : harpe_fail_memory(l->error);
}

/* Moves the groups from `read` to the file, parents first. A round adds the groups of one depth, or
 * of several, so a fleet that is not too deep needs at most HARPE_FLEET_DEPTH_MAX rounds. */
static harpe_status order_groups(const linker *l, const harpe_fleet_file_group *read, size_t count,
                                 int *number) {
    size_t wanted = 0;
    for (size_t i = 0; i < count; i++)
        wanted += read[i].name ? 1 : 0;
    for (int round = 0; round < HARPE_FLEET_DEPTH_MAX && l->file->group_count <= wanted; round++) {
        for (size_t i = 0; i < count; i++) {
            int parent = read[i].parent < 0 ? 0 : number[read[i].parent];
            if (!read[i].name || number[i] >= 0 || parent < 0) continue;
            number[i] = (int)l->file->group_count;
            l->file->groups[l->file->group_count] = read[i];
            l->file->groups[l->file->group_count++].parent = parent;
        }
    }
    if (l->file->group_count == wanted + 1) return HARPE_OK;
    for (size_t i = 0; i < count; i++) {
        if (!read[i].name || number[i] >= 0) continue;
        char clean[HARPE_FLEET_NAME_MAX];
        return harpe_fail(l->error, HARPE_INVALID_INPUT,
                          "%s: budget of group '%s': the group is inside of itself, or of more "
                          "than %d groups",
                          l->name, harpe_clean_text(clean, sizeof clean, read[i].name),
                          HARPE_FLEET_DEPTH_MAX - 1);
    }
    return harpe_fail(l->error, HARPE_INTERNAL, "%s: groups are out of order", l->name);
}

static harpe_status fail_group(const linker *l, const char *kind, const char *of,
                               const char *group) {
    char clean[HARPE_FLEET_NAME_MAX], clean_of[HARPE_FLEET_NAME_MAX];
    return harpe_fail(l->error, HARPE_INVALID_INPUT,
                      "%s: %s '%.200s': no entry of \"budgets\" names the group '%.200s'", l->name,
                      kind, harpe_clean_text(clean_of, sizeof clean_of, of),
                      harpe_clean_text(clean, sizeof clean, group));
}

/* Sets the numbers of the groups of jobs and events. */
static harpe_status find_groups(const linker *l, const int *number) {
    for (size_t j = 0; j < l->file->job_count; j++) {
        harpe_fleet_file_job *job = &l->file->jobs[j];
        int found = index_of(l, job->group_name);
        if (job->group_name && found < 0) return fail_group(l, "job", job->name, job->group_name);
        if (found >= 0) job->group = number[found];
    }
    for (size_t e = 0; e < l->file->event_count; e++) {
        harpe_fleet_file_event *event = &l->file->events[e];
        char text[24];
        (void)snprintf(text, sizeof text, "%zu", e);
        int found = index_of(l, event->group_name);
        if (event->group_name && found < 0) return fail_group(l, "event", text, event->group_name);
        event->group = found >= 0 ? number[found] : 0;
        if (l->file->groups[event->group].budget.watts >= 0) continue;
        return harpe_fail(
            l->error, HARPE_INVALID_INPUT,
            "%s: event %zu (the first is 0): its group has no \"watts\" that it could lower",
            l->name, e);
    }
    return HARPE_OK;
}

static harpe_status link_groups(const linker *l, harpe_fleet_file_group *read, size_t count) {
    int *number = harpe_arena_alloc(&l->file->arena, count + 1, sizeof *number);
    harpe_status status = number ? HARPE_OK : harpe_fail_memory(l->error);
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        number[i] = -1;
        if (read[i].name) status = enter(l, l->groups, "budget of group", read[i].name, i);
    }
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        read[i].parent = index_of(l, read[i].parent_name);
        if (read[i].parent_name && read[i].parent < 0)
            return fail_group(l, "budget of group", read[i].name, read[i].parent_name);
    }
    if (status == HARPE_OK) status = order_groups(l, read, count, number);
    return status == HARPE_OK ? find_groups(l, number) : status;
}

/* Moves the groups that were read from "budgets" to the file, which has group 0 and room for
 * `count` more. Sets the groups of jobs and events. Fails if a name occurs twice or is not known,
 * or if an event lowers a budget that does not exist. `name` begins the error. Changes `read`. */
static harpe_status link_names(harpe_fleet_file *file, const char *name,
                               harpe_fleet_file_group *read, size_t count, harpe_error *error) {
    linker l = {.name = name, .file = file, .groups = json_object(), .error = error};
    json_t *jobs = json_object();
    harpe_status status =
        l.groups && jobs ? link_groups(&l, read, count) : harpe_fail_memory(error);
    for (size_t j = 0; j < file->job_count && status == HARPE_OK; j++)
        status = enter(&l, jobs, "job", file->jobs[j].name, j);
    json_decref(l.groups);
    json_decref(jobs);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

#define FILE_LIMIT_BYTES ((size_t)256 << 20)
#define PRICES_MAX 1000000
#define EVENTS_MAX 10000
#define REQUIRED NAN

/* A number of an object. */
typedef struct number_member {
    const char *key;
    size_t offset; /* of a double in the struct */
    double absent; /* its value if it is missing; REQUIRED: an error */
    double low, high;
    const char *range; /* "0 .. 1" */
} number_member;

typedef struct text_member {
    const char *key;
    size_t offset; /* of a const char * in the struct */
    bool is_required;
} text_member;

/* What an object may contain. Lists end with a NULL key. `others` are read elsewhere. */
typedef struct object_form {
    const number_member *numbers;
    const text_member *texts;
    const char *const *others;
} object_form;

typedef struct reader {
    const char *name;
    harpe_fleet_file *file;
    harpe_fleet_file_group *budgets; /* as they are read, without order */
    size_t budget_count;
    bool has_fleet; /* a budget of the whole fleet was read */
    harpe_error *error;
    char at[HARPE_FLEET_NAME_MAX + 64]; /* what is read: "job 'a'" */
} reader;

/* A list of the file, and where its entries go. */
typedef struct list_form {
    const char *key;
    size_t most, element;
    void *items; /* receives the address of the array */
    size_t *count;
    harpe_status (*read)(reader *r, const json_t *object, size_t index);
} list_form;

/* ---- Objects --------------------------------------------------------------------------------- */

static harpe_status fail_key(const reader *r, const char *key, const char *what,
                             const char *range) {
    char clean[64];
    return harpe_fail(r->error, HARPE_INVALID_INPUT, "%s: %s: \"%s\" %s%s", r->name, r->at,
                      harpe_clean_text(clean, sizeof clean, key), what, range);
}

static harpe_status fail_here(const reader *r, const char *what) {
    return harpe_fail(r->error, HARPE_INVALID_INPUT, "%s: %s %s", r->name, r->at, what);
}

/* Returns a member, or NULL if it is missing or null. */
static const json_t *member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static bool is_known(const object_form *form, const char *key) {
    for (const number_member *m = form->numbers; m->key; m++)
        if (strcmp(m->key, key) == 0) return true;
    for (const text_member *m = form->texts; m->key; m++)
        if (strcmp(m->key, key) == 0) return true;
    for (const char *const *other = form->others; *other; other++)
        if (strcmp(*other, key) == 0) return true;
    return false;
}

static harpe_status read_number(const reader *r, const json_t *object, const number_member *m,
                                void *into) {
    const json_t *value = member(object, m->key);
    double number = value ? json_number_value(value) : m->absent;
    if (!value && isnan(m->absent)) return fail_key(r, m->key, "is missing", "");
    if (value && !json_is_number(value)) return fail_key(r, m->key, "must be a number", "");
    if (value && !(number >= m->low && number <= m->high))
        return fail_key(r, m->key, "must be ", m->range);
    memcpy((char *)into + m->offset, &number, sizeof number);
    return HARPE_OK;
}

static harpe_status read_text(const reader *r, const json_t *object, const text_member *m,
                              void *into) {
    const json_t *value = member(object, m->key);
    const char *text = json_string_value(value);
    size_t length = json_string_length(value);
    if (!value && m->is_required) return fail_key(r, m->key, "is missing", "");
    if (value && !text) return fail_key(r, m->key, "must be a text", "");
    if (text && (length == 0 || length > HARPE_FLEET_NAME_MAX || strlen(text) != length))
        return fail_key(r, m->key, "must have 1 to 255 bytes, without the character 0", "");
    const char *copy = text ? harpe_arena_strdup(&r->file->arena, text, length) : NULL;
    if (text && !copy) return harpe_fail_memory(r->error);
    memcpy((char *)into + m->offset, &copy, sizeof copy);
    return HARPE_OK;
}

static harpe_status read_object(const reader *r, const json_t *object, const object_form *form,
                                void *into) {
    if (!json_is_object(object)) return fail_here(r, "must be an object, {...}");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (!is_known(form, key))
            return fail_key(r, key, "is not a known member (see harpe-fleet(5))", "");
    }
    harpe_status status = HARPE_OK;
    for (const text_member *m = form->texts; m->key && status == HARPE_OK; m++)
        status = read_text(r, object, m, into);
    for (const number_member *m = form->numbers; m->key && status == HARPE_OK; m++)
        status = read_number(r, object, m, into);
    return status;
}

/* Says what is read now: a number, counted from 0, and the name if it has one. */
static void move_to(reader *r, const char *kind, size_t index, const json_t *object,
                    const char *key) {
    char clean[HARPE_FLEET_NAME_MAX];
    const char *name = json_string_value(member(object, key));
    if (name && *name)
        (void)snprintf(r->at, sizeof r->at, "%s '%s'", kind,
                       harpe_clean_text(clean, sizeof clean, name));
    else
        (void)snprintf(r->at, sizeof r->at, "%s %zu (the first is 0)", kind, index);
}

/* Reads a list, which may be missing. */
static harpe_status read_list(reader *r, const json_t *root, const list_form *form) {
    const json_t *list = member(root, form->key);
    (void)snprintf(r->at, sizeof r->at, "the fleet");
    if (list && !json_is_array(list)) return fail_key(r, form->key, "must be a list, [...]", "");
    size_t count = json_array_size(list);
    if (count > form->most) {
        return harpe_fail(r->error, HARPE_LIMIT_EXCEEDED, "%s: \"%s\" has more than %zu entries",
                          r->name, form->key, form->most);
    }
    void *items = harpe_arena_alloc(&r->file->arena, count + 1, form->element);
    if (!items) return harpe_fail_memory(r->error);
    memcpy(form->items, &items, sizeof items);
    *form->count = count;
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < count && status == HARPE_OK; i++)
        status = form->read(r, json_array_get(list, i), i);
    return status;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

#define JOB(member) offsetof(harpe_fleet_file_job, member)

static const text_member job_texts[] = {
    {"name", JOB(name), true}, {"group", JOB(group_name), false}, {NULL, 0, false}};
static const number_member job_numbers[] = {
    {"weight", JOB(weight), 1, 0, 1e12, "0 .. 1e12"},
    {"max_slowdown", JOB(max_slowdown), 0, 1, 1e9, "1 .. 1e9"},
    {"priority", JOB(priority), 0, -1e9, 1e9, "-1e9 .. 1e9"},
    {"gpus", JOB(gpus), 0, 1, 1e6, "1 .. 1e6"},
    {"arrival", JOB(arrival_s), 0, 0, 1e9, "0 .. 1e9 s"},
    {"end", JOB(end_s), INFINITY, 0, 1e9, "0 .. 1e9 s"},
    {"work", JOB(work_s), INFINITY, 1e-3, 1e9, "0.001 .. 1e9 s"},
    {NULL, 0, 0, 0, 0, NULL}};
static const char *const job_others[] = {"plans", "power", NULL};
static const object_form job_form = {job_numbers, job_texts, job_others};

static const text_member no_texts[] = {{NULL, 0, false}};
static const char *const no_others[] = {NULL};
static const number_member plan_numbers[] = {
    {"time", offsetof(harpe_fleet_plan, time_s), REQUIRED, 1e-9, 1e9, "1e-9 .. 1e9 s"},
    {"power", offsetof(harpe_fleet_plan, power_w), REQUIRED, 0, 1e9, "0 .. 1e9 W"},
    {NULL, 0, 0, 0, 0, NULL}};
static const object_form plan_form = {plan_numbers, no_texts, no_others};
static const number_member load_numbers[] = {
    {"power", offsetof(harpe_fleet_plan, power_w), REQUIRED, 0, 1e9, "0 .. 1e9 W"},
    {NULL, 0, 0, 0, 0, NULL}};

/* Reads the plans, or the power of a load. */
static harpe_status read_plans(reader *r, const json_t *object, harpe_fleet_file_job *job) {
    const json_t *list = member(object, "plans"), *power = member(object, "power");
    if (list && power)
        return fail_here(r, "has \"plans\" and \"power\"; only a load without plans has a power");
    if (!list && !power) return fail_here(r, "has neither \"plans\" nor a \"power\"");
    size_t count = list ? json_array_size(list) : 1;
    if (list && (count < 1 || count > HARPE_FLEET_PLANS_MAX))
        return fail_key(r, "plans", "must be a list of 1 to 10000 plans", "");
    job->is_load = !list;
    job->plan_count = count;
    job->plans = harpe_arena_alloc(&r->file->arena, count, sizeof *job->plans);
    if (!job->plans) return harpe_fail_memory(r->error);
    if (!list) {
        job->plans[0].time_s = 1;
        return read_number(r, object, load_numbers, &job->plans[0]);
    }
    size_t end = strlen(r->at);
    for (size_t k = 0; k < count; k++) {
        (void)snprintf(r->at + end, sizeof r->at - end, ", plan %zu", k);
        harpe_status status = read_object(r, json_array_get(list, k), &plan_form, &job->plans[k]);
        if (status != HARPE_OK) return status;
    }
    r->at[end] = '\0';
    return HARPE_OK;
}

static harpe_status read_job(reader *r, const json_t *object, size_t index) {
    harpe_fleet_file_job *job = &r->file->jobs[index];
    move_to(r, "job", index, object, "name");
    harpe_status status = read_object(r, object, &job_form, job);
    if (status == HARPE_OK) status = read_plans(r, object, job);
    if (status == HARPE_OK && job->end_s <= job->arrival_s)
        return fail_key(r, "end", "must be after its arrival", "");
    return status;
}

/* ---- Budgets, prices, events ----------------------------------------------------------------- */

#define GROUP(member) offsetof(harpe_fleet_file_group, member)

static const text_member budget_texts[] = {
    {"group", GROUP(name), false}, {"parent", GROUP(parent_name), false}, {NULL, 0, false}};
static const number_member budget_numbers[] = {
    {"watts", GROUP(budget.watts), -1, 0, 1e12, "0 .. 1e12 W"},
    {"margin", GROUP(budget.margin), 0, 0, 0.99, "0 .. 0.99"},
    {"overhead", GROUP(budget.overhead), 1, 1, 10, "1 .. 10"},
    {NULL, 0, 0, 0, 0, NULL}};
static const object_form budget_form = {budget_numbers, budget_texts, no_others};

#define PRICE(member) offsetof(harpe_fleet_file_price, member)

static const number_member price_numbers[] = {
    {"from", PRICE(from_s), 0, 0, 1e9, "0 .. 1e9 s"},
    {"price", PRICE(energy_per_kwh), 0, -1e6, 1e6, "-1e6 .. 1e6 per kWh"},
    {"carbon", PRICE(carbon_g_per_kwh), 0, 0, 1e6, "0 .. 1e6 g/kWh"},
    {NULL, 0, 0, 0, 0, NULL}};
static const object_form price_form = {price_numbers, no_texts, no_others};

#define EVENT(member) offsetof(harpe_fleet_file_event, member)

static const text_member event_texts[] = {{"group", EVENT(group_name), false}, {NULL, 0, false}};
static const number_member event_numbers[] = {
    {"from", EVENT(from_s), REQUIRED, 0, 1e9, "0 .. 1e9 s"},
    {"duration", EVENT(duration_s), REQUIRED, 1e-3, 1e9, "0.001 .. 1e9 s"},
    {"watts", EVENT(watts_less), 0, 0, 1e12, "0 .. 1e12 W"},
    {"share", EVENT(share_less), 0, 0, 1, "0 .. 1"},
    {"notice", EVENT(notice_s), 0, 0, 1e9, "0 .. 1e9 s"},
    {NULL, 0, 0, 0, 0, NULL}};
static const object_form event_form = {event_numbers, event_texts, no_others};

static harpe_status read_price(reader *r, const json_t *object, size_t index) {
    harpe_fleet_file_price *price = &r->file->prices[index];
    move_to(r, "price", index, NULL, "");
    harpe_status status = read_object(r, object, &price_form, price);
    if (status == HARPE_OK && index > 0 && price->from_s <= price[-1].from_s)
        return fail_key(r, "from", "must be later than that of the price before", "");
    return status;
}

static harpe_status read_event(reader *r, const json_t *object, size_t index) {
    move_to(r, "event", index, NULL, "");
    harpe_status status = read_object(r, object, &event_form, &r->file->events[index]);
    if (status == HARPE_OK && !member(object, "watts") == !member(object, "share"))
        return fail_here(r, "must have either \"watts\" or \"share\"");
    return status;
}

static harpe_status read_budget(reader *r, const json_t *object, size_t index) {
    harpe_fleet_file_group *group = &r->budgets[index];
    move_to(r, member(object, "group") ? "budget of group" : "budget", index, object, "group");
    harpe_status status = read_object(r, object, &budget_form, group);
    if (status != HARPE_OK || group->name) return status;
    if (group->parent_name) return fail_key(r, "parent", "needs a \"group\"", "");
    if (r->has_fleet) return fail_here(r, "is the second without a \"group\"");
    r->has_fleet = true;
    r->file->groups[0].budget = group->budget;
    return HARPE_OK;
}

/* ---- The file -------------------------------------------------------------------------------- */

#define WHOLE(member) offsetof(harpe_fleet_file, member)

static const number_member file_numbers[] = {
    {"carbon_price", WHOLE(carbon_per_kg), 0, 0, 1e6, "0 .. 1e6 per kg"},
    {"value", WHOLE(value_per_s), 1, 1e-9, 1e6, "1e-9 .. 1e6 per s"},
    {"reaction", WHOLE(reaction_s), 30, 0, 1e6, "0 .. 1e6 s"},
    {"ramp", WHOLE(ramp_w_per_s), INFINITY, 1e-3, 1e12, "0.001 .. 1e12 W/s"},
    {"horizon", WHOLE(horizon_s), 86400, 1, 1e8, "1 .. 1e8 s"},
    {NULL, 0, 0, 0, 0, NULL}};
static const char *const file_lists[] = {"jobs", "budgets", "prices", "events", NULL};
static const object_form file_form = {file_numbers, no_texts, file_lists};

static harpe_status read_file(reader *r, const json_t *root) {
    harpe_fleet_file *file = r->file;
    const list_form lists[] = {
        {"jobs", HARPE_FLEET_JOBS_MAX, sizeof *file->jobs, &file->jobs, &file->job_count, read_job},
        {"prices", PRICES_MAX, sizeof *file->prices, &file->prices, &file->price_count, read_price},
        {"events", EVENTS_MAX, sizeof *file->events, &file->events, &file->event_count, read_event},
        {"budgets", HARPE_FLEET_GROUPS_MAX - 1, sizeof *r->budgets, &r->budgets, &r->budget_count,
         read_budget},
    };
    (void)snprintf(r->at, sizeof r->at, "the fleet");
    harpe_status status = read_object(r, root, &file_form, file);
    if (status != HARPE_OK) return status;
    if (!member(root, "jobs")) return fail_key(r, "jobs", "is missing", "");
    size_t budgets = json_array_size(json_object_get(root, "budgets"));
    file->groups = harpe_arena_alloc(&file->arena, budgets + 1, sizeof *file->groups);
    if (!file->groups) return harpe_fail_memory(r->error);
    file->groups[0] =
        (harpe_fleet_file_group){.name = "", .parent = -1, .budget = {.watts = -1, .overhead = 1}};
    file->group_count = 1;
    for (size_t i = 0; i < sizeof lists / sizeof *lists && status == HARPE_OK; i++)
        status = read_list(r, root, &lists[i]);
    return status == HARPE_OK ? link_names(file, r->name, r->budgets, r->budget_count, r->error)
                              : status;
}

harpe_status harpe_fleet_file_parse(const char *text, size_t length, const char *name,
                                    harpe_fleet_file *out, harpe_error *error) {
    json_error_t reason;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &reason);
    if (!root) {
        char clean[JSON_ERROR_TEXT_LENGTH];
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s:%d:%d: not JSON: %s", name, reason.line,
                          reason.column, harpe_clean_text(clean, sizeof clean, reason.text));
    }
    harpe_fleet_file file = {.job_count = 0};
    reader r = {.name = name, .file = &file, .error = error};
    harpe_status status = read_file(&r, root);
    json_decref(root);
    if (status == HARPE_OK)
        *out = file;
    else
        harpe_fleet_file_free(&file);
    return status;
}

harpe_status harpe_fleet_file_read(const char *path, harpe_fleet_file *out, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_fleet_file_parse(text, length, path, out, error);
    free(text);
    return status;
}

/* ---- The public functions -------------------------------------------------------------------- */

static harpe_status fleet_of(harpe_fleet_file *file, const char *name, double at_s,
                             harpe_fleet **out, harpe_error *error) {
    harpe_status status = harpe_fleet_file_fleet(file, name, at_s, out, error);
    harpe_fleet_file_free(file);
    return status;
}

static harpe_status check_moment(double at_s, harpe_error *error) {
    if (at_s >= 0 && at_s <= 1e9) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT, "the moment must be 0 .. 1e9 s");
}

harpe_status harpe_fleet_parse_json(const char *text, size_t length, const char *name, double at_s,
                                    harpe_fleet **out, harpe_error *error) {
    harpe_fleet_file file;
    harpe_status status = check_moment(at_s, error);
    if (status == HARPE_OK) status = harpe_fleet_file_parse(text, length, name, &file, error);
    return status == HARPE_OK ? fleet_of(&file, name, at_s, out, error) : status;
}

harpe_status harpe_fleet_read_json(const char *path, double at_s, harpe_fleet **out,
                                   harpe_error *error) {
    harpe_fleet_file file;
    harpe_status status = check_moment(at_s, error);
    if (status == HARPE_OK) status = harpe_fleet_file_read(path, &file, error);
    return status == HARPE_OK ? fleet_of(&file, path, at_s, out, error) : status;
}
