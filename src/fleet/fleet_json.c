/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the file of a fleet (harpe-fleet(5)). Tables list the numbers of each object with their
 * ranges; every other member is an error. */
#include "fleet/fleet_json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "fleet/fleet_names.h"

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
    harpe_error *error;
    char at[HARPE_FLEET_NAME_MAX + 64]; /* what is read: "job 'a'" */
} reader;

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

/* Allocates the array of a list, which may be missing. */
static harpe_status start_list(reader *r, const json_t *root, const char *key, size_t most,
                               size_t extra, size_t element, void **items, size_t *count) {
    const json_t *list = member(root, key);
    (void)snprintf(r->at, sizeof r->at, "the fleet");
    if (list && !json_is_array(list)) return fail_key(r, key, "must be a list, [...]", "");
    *count = json_array_size(list);
    if (*count > most) {
        return harpe_fail(r->error, HARPE_LIMIT_EXCEEDED, "%s: \"%s\" has more than %zu entries",
                          r->name, key, most);
    }
    *items = harpe_arena_alloc(&r->file->arena, *count + extra, element);
    return *items ? HARPE_OK : harpe_fail_memory(r->error);
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

static harpe_status read_prices(reader *r, const json_t *list) {
    for (size_t i = 0; i < r->file->price_count; i++) {
        harpe_fleet_file_price *price = &r->file->prices[i];
        move_to(r, "price", i, NULL, "");
        harpe_status status = read_object(r, json_array_get(list, i), &price_form, price);
        if (status != HARPE_OK) return status;
        if (i > 0 && price->from_s <= price[-1].from_s)
            return fail_key(r, "from", "must be later than that of the price before", "");
    }
    return HARPE_OK;
}

static harpe_status read_events(reader *r, const json_t *list) {
    for (size_t i = 0; i < r->file->event_count; i++) {
        harpe_fleet_file_event *event = &r->file->events[i];
        const json_t *object = json_array_get(list, i);
        move_to(r, "event", i, NULL, "");
        harpe_status status = read_object(r, object, &event_form, event);
        if (status != HARPE_OK) return status;
        if (!member(object, "watts") == !member(object, "share"))
            return fail_here(r, "must have either \"watts\" or \"share\"");
    }
    return HARPE_OK;
}

/* Reads the budgets into `read`, without order. */
static harpe_status read_budgets(reader *r, const json_t *list, harpe_fleet_file_group *read,
                                 size_t count) {
    bool has_fleet = false;
    for (size_t i = 0; i < count; i++) {
        const json_t *object = json_array_get(list, i);
        move_to(r, member(object, "group") ? "budget of group" : "budget", i, object, "group");
        harpe_status status = read_object(r, object, &budget_form, &read[i]);
        if (status != HARPE_OK) return status;
        if (read[i].name) continue;
        if (read[i].parent_name) return fail_key(r, "parent", "needs a \"group\"", "");
        if (has_fleet) return fail_here(r, "is the second without a \"group\"");
        has_fleet = true;
        r->file->groups[0].budget = read[i].budget;
    }
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
    void *items = NULL;
    size_t budgets = 0;
    (void)snprintf(r->at, sizeof r->at, "the fleet");
    harpe_status status = read_object(r, root, &file_form, file);
    if (status != HARPE_OK) return status;
    if (!member(root, "jobs")) return fail_key(r, "jobs", "is missing", "");
    status = start_list(r, root, "jobs", HARPE_FLEET_JOBS_MAX, 1, sizeof *file->jobs, &items,
                        &file->job_count);
    if (status != HARPE_OK) return status;
    file->jobs = items;
    for (size_t j = 0; j < file->job_count && status == HARPE_OK; j++)
        status = read_job(r, json_array_get(json_object_get(root, "jobs"), j), j);
    if (status == HARPE_OK)
        status = start_list(r, root, "prices", PRICES_MAX, 1, sizeof *file->prices, &items,
                            &file->price_count);
    if (status == HARPE_OK) file->prices = items;
    if (status == HARPE_OK) status = read_prices(r, json_object_get(root, "prices"));
    if (status == HARPE_OK)
        status = start_list(r, root, "events", EVENTS_MAX, 1, sizeof *file->events, &items,
                            &file->event_count);
    if (status == HARPE_OK) file->events = items;
    if (status == HARPE_OK) status = read_events(r, json_object_get(root, "events"));
    if (status == HARPE_OK)
        status = start_list(r, root, "budgets", HARPE_FLEET_GROUPS_MAX - 1, 1, sizeof *file->groups,
                            &items, &budgets);
    if (status != HARPE_OK) return status;
    harpe_fleet_file_group *read = items;
    file->groups = harpe_arena_alloc(&file->arena, budgets + 1, sizeof *file->groups);
    if (!file->groups) return harpe_fail_memory(r->error);
    file->groups[0] =
        (harpe_fleet_file_group){.name = "", .parent = -1, .budget = {.watts = -1, .overhead = 1}};
    file->group_count = 1;
    status = read_budgets(r, json_object_get(root, "budgets"), read, budgets);
    return status == HARPE_OK ? harpe_fleet_file_link(file, r->name, read, budgets, r->error)
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
