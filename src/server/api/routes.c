/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a request into a call of the engine, and the call's answer into a response. Answers
 * requests for the dashboard's pages itself. route_table.c lists the paths. metrics.c makes
 * /metrics. */
#include "server/api/api_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#define ZLIB_CONST /* zlib declares its input as const */
#include <zlib.h>

#include <harpe/pfo.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/number.h"
#include "base/text.h"
#include "base/version.h"
#include "pfo/models.h"
#include "rights/tokens.h"

/* ---- Pages ----------------------------------------------------------------------------------- */

/* Answers requests for the dashboard's pages. The program contains them compressed, and sends them
 * in this form. A client that does not accept gzip gets them unpacked. A client that has the
 * current version gets 304 and no page. */

/* A page may load only from this server and send only to it. No other page may show it in a frame,
 * because such a page could trick a user into clicking on it. */
static const char POLICY[] = "default-src 'none'; script-src 'self'; style-src 'self'; "
                             "img-src 'self'; connect-src 'self'; base-uri 'none'; "
                             "form-action 'none'; frame-ancestors 'none'";

static const harpe_page_file *find(const char *path) {
    for (const harpe_page_file *file = harpe_page_files; file->path; file++)
        if (strcmp(file->path, path) == 0) return file;
    return NULL;
}

/* Returns the unpacked file, or NULL if memory runs out. */
static char *unpack(const harpe_page_file *file) {
    z_stream stream = {.next_in = file->gzip, .avail_in = (uInt)file->compressed_length};
    char *text = malloc(file->length + 1);
    if (!text || inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) {
        free(text);
        return NULL;
    }
    stream.next_out = (Bytef *)text;
    stream.avail_out = (uInt)file->length + 1;
    int result = inflate(&stream, Z_FINISH);
    (void)inflateEnd(&stream);
    if (result == Z_STREAM_END && stream.total_out == file->length) return text;
    free(text);
    return NULL;
}

/* Returns true if this is the path of a page. */
static bool is_page(const char *method, const char *path) {
    return strcmp(method, "GET") == 0 && find(path);
}

/* Answers a request for a page. */
static void page_answer(harpe_http_request *request) {
    const harpe_page_file *file = find(harpe_http_path(request));
    const char *known = harpe_http_header(request, "if-none-match");
    const char *accepted = harpe_http_header(request, "accept-encoding");
    bool takes_gzip = accepted && strstr(accepted, "gzip");
    const harpe_http_header_field headers[] = {{"etag", file->etag},
                                               {"cache-control", "no-cache"},
                                               {"vary", "accept-encoding"},
                                               {"content-security-policy", POLICY},
                                               {"x-content-type-options", "nosniff"},
                                               {"referrer-policy", "no-referrer"},
                                               {takes_gzip ? "content-encoding" : NULL, "gzip"},
                                               {NULL, NULL}};
    if (known && strstr(known, file->etag)) {
        harpe_http_answer(request, 304, NULL, NULL, 0, false, headers);
        return;
    }
    char *body = takes_gzip ? malloc(file->compressed_length) : unpack(file);
    if (!body) {
        char none[] = "the server is out of memory: try again later\n";
        harpe_http_answer(request, 503, "text/plain", none, strlen(none), false, NULL);
        return;
    }
    if (takes_gzip) memcpy(body, file->gzip, file->compressed_length);
    harpe_http_answer(request, 200, file->content_type, body,
                      takes_gzip ? file->compressed_length : file->length, true, headers);
}

/* ---- Clients of Zeus ------------------------------------------------------------------------- */

/* Zeus makes its requests with httpx, which names itself in User-Agent. Harpe's client does not use
 * httpx. */

static const char AGENT[] = "python-httpx/";
enum { EMPTY_SCHEDULE_MAX = 256 }; /* bytes; a longer schedule cannot be empty */

static bool is_empty(const harpe_call_answer *answer) {
    harpe_frequency_schedule schedule = {0};
    if (answer->length > EMPTY_SCHEDULE_MAX ||
        harpe_frequency_schedule_parse(answer->body, answer->length, &schedule, NULL) != HARPE_OK)
        return false;
    bool is_empty = schedule.instruction_count == 0;
    harpe_frequency_schedule_free(&schedule);
    return is_empty;
}

/* Returns true if the client that asks for a schedule cannot run this answer, and writes the reason
 * to `line` (at most `size` bytes). */
static bool published_client_fault(const harpe_http_request *request,
                                   const harpe_call_answer *answer, char *line, size_t size) {
    const char *agent = harpe_http_header(request, "user-agent");
    if (!agent || strncmp(agent, AGENT, sizeof AGENT - 1) != 0 || !is_empty(answer)) return false;
    (void)snprintf(line, size,
                   "this job's schedule is empty, because the server does not know how many "
                   "microbatches an iteration has, and a client of Zeus cannot run an empty "
                   "schedule: give the client job_metadata=\"num_microbatches=N\", or start harpe "
                   "serve with --scheduler-args '{\"num_microbatches\": N}'");
    return true;
}

struct harpe_routes {
    harpe_routes_options options;
    const harpe_http *http;
    harpe_latencies *latencies;
    harpe_events *events;
    harpe_long_answers *long_answers;
    harpe_access *access;
    harpe_audit *audit; /* NULL: no audit log */
};

/* A request that became a call. It exists until its answer was sent. */
typedef struct exchange {
    harpe_call call; /* the first member */
    harpe_routes *routes;
    const harpe_route *route;
    harpe_http_request *request; /* NULL once it was answered */
    int64_t answered_round;
    bool is_withheld; /* the schedule was not sent, because the client cannot run it */
    bool is_outside;  /* the engine does not have the call: the audit log is written or read */
    harpe_audit_note note;
    harpe_call_answer answer; /* waits until the audit log is written */
} exchange;

static const char JSON_TYPE[] = "application/json";

/* ---- Answers --------------------------------------------------------------------------------- */

static void answer_text(harpe_http_request *request, int status, const char *type, char *text,
                        const harpe_http_header_field *headers) {
    if (text)
        harpe_http_answer(request, status, type, text, strlen(text), true, headers);
    else
        harpe_answer_out_of_memory(request);
}

static void answer_detail(harpe_http_request *request, int status, const char *detail,
                          const harpe_http_header_field *headers) {
    json_t *object = json_pack("{s:s}", "detail", detail);
    answer_text(request, status, JSON_TYPE, object ? json_dumps(object, JSON_COMPACT) : NULL,
                headers);
    json_decref(object);
}

static void answer_problems(harpe_http_request *request, harpe_problems *problems) {
    answer_text(request, 422, JSON_TYPE, harpe_problems_format(problems), NULL);
    harpe_problems_free(problems);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Returns NULL and answers the request if memory runs out. */
static exchange *new_exchange(harpe_routes *routes, harpe_http_request *request,
                              const harpe_route *route) {
    exchange *self = harpe_calloc(1, sizeof *self);
    if (self)
        *self = (exchange){.routes = routes, .route = route, .request = request};
    else
        harpe_answer_out_of_memory(request);
    return self;
}

static void free_exchange(exchange *self) {
    harpe_audit_note_clear(&self->note);
    free(self->answer.body);
    harpe_call_clear(&self->call);
    free(self);
}

/* Sends the answer. Keeps the exchange of a schedule until it was sent, because the engine needs to
 * know whether the schedule arrived. Other exchanges end here. */
static void send_answer(exchange *self, const harpe_call_answer *answer) {
    const harpe_call *call = &self->call;
    harpe_http_request *request = self->request;
    char round[24];
    snprintf(round, sizeof round, "%lld", (long long)answer->round);
    const harpe_http_header_field headers[] = {{"harpe-round", round}, {NULL, NULL}};
    bool is_schedule = call->kind == HARPE_CALL_SCHEDULE && answer->http_status == 200;
    harpe_latencies_add(self->routes->latencies, self->route,
                        harpe_clock_ns() - harpe_http_arrived_ns(request));
    self->request = NULL;
    self->answered_round = answer->round;
    harpe_http_set_data(request, is_schedule ? self : NULL);
    char fault[512];
    if (is_schedule && published_client_fault(request, answer, fault, sizeof fault)) {
        self->is_withheld = true;
        free(answer->body);
        answer_detail(request, 400, fault, NULL);
        return;
    }
    harpe_http_answer(request, answer->http_status, JSON_TYPE, answer->body, answer->length, true,
                      answer->round >= 0 ? headers : NULL);
    if (!is_schedule) free_exchange(self);
}

/* The answer waits until its record is in the audit log. */
static void is_recorded(void *user) {
    exchange *self = user;
    harpe_call_answer answer = self->answer;
    self->is_outside = false;
    self->answer = (harpe_call_answer){0};
    if (self->request) {
        send_answer(self, &answer);
        return;
    }
    free(answer.body);
    free_exchange(self);
}

static void on_answer(harpe_call *call, const harpe_call_answer *answer) {
    exchange *self = (exchange *)call;
    if (!self->note.what) {
        send_answer(self, answer);
        return;
    }
    self->is_outside = true;
    self->answer = *answer;
    harpe_audit_write(self->routes->audit, &self->note, answer->http_status, answer->body,
                      answer->length, is_recorded, self);
}

/* Lets HTTP close this connection first when connections run out. */
static void on_gives_way(harpe_call *call, bool gives_way) {
    exchange *self = (exchange *)call;
    if (self->request) harpe_http_set_gives_way(self->request, gives_way);
}

static void on_sent(void *user, void *data, bool delivered) {
    harpe_routes *routes = user;
    exchange *self = data;
    if (harpe_events_owns(data)) {
        harpe_events_sent(data);
        return;
    }
    if (harpe_long_answers_own(data)) {
        harpe_long_answers_sent(data);
        return;
    }
    if (routes->options.lead) {
        harpe_lead_delivered(routes->options.lead, &self->call, self->answered_round,
                             delivered && !self->is_withheld);
    }
    free_exchange(self);
}

static void on_gone(void *user, harpe_http_request *request) {
    harpe_routes *routes = user;
    exchange *self = harpe_http_data(request);
    if (!self) return;
    if (harpe_events_owns(self)) {
        harpe_events_gone(self);
        return;
    }
    if (harpe_long_answers_own(self)) {
        harpe_long_answers_gone(self);
        return;
    }
    if (self->is_outside) {
        self->request = NULL;
        return;
    }
    if (routes->options.lead) harpe_lead_forget(routes->options.lead, &self->call);
    if (self->note.what) harpe_audit_write(routes->audit, &self->note, 499, NULL, 0, NULL, NULL);
    free_exchange(self);
}

/* Returns true if the content type is JSON of any kind or missing. */
static bool is_json_type(const char *type) {
    if (!type || !*type) return true;
    if (strncasecmp(type, "application/", 12) != 0) return false;
    size_t length = strcspn(type, "; \t");
    return length >= 16 && strncasecmp(type + length - 4, "json", 4) == 0;
}

/* Reads a number of the query, which must be 0 or more. If the number is missing, does not change
 * `*number`. A number above `maximum` becomes `maximum`. */
static void read_number(const harpe_http_request *request, const char *name, int64_t maximum,
                        int64_t *number, harpe_problems *problems) {
    const char *text = harpe_http_query(request, name);
    int64_t given;
    if (!text || !harpe_query_int_decode(name, text, &given, problems)) return;
    if (given < 0)
        harpe_problems_add_limit(problems, json_pack("[s, s]", "query", name),
                                 "value_error.number.not_ge",
                                 "ensure this value is greater than or equal to 0", 0);
    *number = given < maximum ? given : maximum;
}

/* Reads `rank` and `round` of the query. If they are invalid, answers with an error and returns
 * false. */
static bool read_query(harpe_http_request *request, const harpe_route *route, harpe_call *call) {
    harpe_problems problems = {0};
    int64_t rank = -1;
    int64_t round = -1;
    if (route->call == HARPE_CALL_PIPELINE && harpe_http_query(request, "plan"))
        (void)harpe_query_int_decode("plan", harpe_http_query(request, "plan"), &round, &problems);
    if (route->needs_rank)
        (void)harpe_query_int_decode("rank", harpe_http_query(request, "rank"), &rank, &problems);
    if (route->takes_round && harpe_http_query(request, "round"))
        (void)harpe_query_int_decode("round", harpe_http_query(request, "round"), &round,
                                     &problems);
    if (route->call == HARPE_CALL_FINISHED && route->job_segment < 0) {
        read_number(request, "offset", INT32_MAX, &rank, &problems);
        read_number(request, "limit", 1000, &round, &problems);
    }
    if (harpe_problems_count(&problems) > 0) {
        answer_problems(request, &problems);
        return false;
    }
    call->rank = rank;
    call->round = round;
    return true;
}

static bool read_body(harpe_http_request *request, const harpe_route *route, harpe_call *call) {
    if (!route->body_schema) return true;
    if (is_json_type(harpe_http_header(request, "content-type"))) {
        call->body = harpe_http_take_body(request, &call->length);
        return true;
    }
    harpe_problems problems = {0};
    harpe_problems_add(&problems, json_pack("[s]", "body"), "type_error.dict",
                       "value is not a valid dict");
    answer_problems(request, &problems);
    return false;
}

/* ---- Connections of ranks -------------------------------------------------------------------- */

/* The rank that keeps a connection open. */
typedef struct contact {
    harpe_call call; /* the first member; says later that the connection has ended */
    int64_t heard_ns;
} contact;

static void free_contact(harpe_call *call, const harpe_call_answer *answer) {
    if (answer) free(answer->body);
    free(call->job_id);
    free(call);
}

/* Notes that the rank of this request uses its connection. Only clients that keep their connections
 * say so, and what a proxy keeps or closes says nothing about a rank. */
static void note_contact(harpe_http_request *request, const harpe_call *call) {
    contact *self = harpe_http_client(request);
    if (self) self->heard_ns = harpe_clock_boot_ns();
    if (call->kind != HARPE_CALL_SCHEDULE || !harpe_http_header(request, "harpe-connection"))
        return;
    if (harpe_http_header(request, "via") || harpe_http_header(request, "forwarded") ||
        harpe_http_header(request, "x-forwarded-for"))
        return;
    if (self && self->call.rank == call->rank && strcmp(self->call.job_id, call->job_id) == 0)
        return;
    if (self) free_contact(&self->call, NULL);
    self = harpe_calloc(1, sizeof *self);
    if (self) {
        self->call = (harpe_call){.kind = HARPE_CALL_LOST,
                                  .job_id = strdup(call->job_id),
                                  .rank = call->rank,
                                  .answer = free_contact};
        self->heard_ns = harpe_clock_boot_ns();
    }
    if (self && !self->call.job_id) {
        free(self);
        self = NULL;
    }
    harpe_http_set_client(request, self);
}

static void on_left(void *user, void *client, bool by_client) {
    const harpe_routes *routes = user;
    contact *self = client;
    self->call.round = (harpe_clock_boot_ns() - self->heard_ns) / 1000000;
    if (by_client && routes->options.lead)
        harpe_lead_handle(routes->options.lead, &self->call);
    else
        free_contact(&self->call, NULL);
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* Returns the name of what a call is about: a segment of the path, or parts of the query; or an
 * empty text. Returns NULL if memory runs out. */
static char *name_of(harpe_http_request *request, const harpe_route *route) {
    if (route->job_segment >= 0) return strdup(harpe_http_segment(request, route->job_segment));
    const char *group = harpe_http_query(request, "group");
    if (route->call == HARPE_CALL_FLEET_DELETE_BUDGET) return strdup(group ? group : "");
    if (route->call != HARPE_CALL_FLEET_HISTORY) return strdup("");
    static const char *const names[] = {"from", "to", "points"};
    harpe_text text = {0};
    for (int i = 0; i < 3; i++) {
        double value = 0;
        const char *given = harpe_http_query(request, names[i]);
        if (given) (void)harpe_parse_double(given, strlen(given), &value);
        if (i > 0) harpe_text_append(&text, " ", 1);
        harpe_text_number(&text, value);
    }
    return harpe_text_take(&text);
}

/* Prepares the record of a request for the audit log, and the groups of the client. Returns false
 * if memory runs out. */
static bool note_client(exchange *self, const harpe_client *client) {
    const harpe_route *route = self->route;
    if (client->scope && !(self->call.scope = strdup(client->scope))) return false;
    return !self->routes->audit || !harpe_route_is_audited(route) ||
           harpe_audit_note_take(&self->note, self->request, route, client);
}

static void start_call(harpe_routes *routes, harpe_http_request *request, const harpe_route *route,
                       const harpe_client *client) {
    exchange *self = new_exchange(routes, request, route);
    if (!self) return;
    self->call = (harpe_call){.kind = route->call, .answer = on_answer, .gives_way = on_gives_way};
    bool has_name = route->job_segment >= 0 || route->call >= HARPE_CALL_FLEET_SHOW;
    if (has_name) self->call.job_id = name_of(request, route);
    if ((has_name && !self->call.job_id) || !note_client(self, client)) {
        harpe_answer_out_of_memory(request);
    } else if (read_query(request, route, &self->call) && read_body(request, route, &self->call)) {
        if (route->call == HARPE_CALL_FLEET_PUT_MEMBER || route->call == HARPE_CALL_FLEET_REPORT)
            self->call.rank = client->watts;
        harpe_http_set_data(request, self);
        note_contact(request, &self->call);
        harpe_lead_handle(routes->options.lead, &self->call);
        return;
    } else if (self->note.what) {
        harpe_audit_write(routes->audit, &self->note, 422, NULL, 0, NULL, NULL);
    }
    free_exchange(self);
}

/* ---- Long answers ---------------------------------------------------------------------------- */

/* Reads `after` of the query. If it is not a place in a list, answers with an error and returns
 * false. */
static bool read_place(harpe_http_request *request, harpe_call *call) {
    const char *after = harpe_http_query(request, "after");
    if (!after) return true;
    if (!harpe_jobs_is_place(after)) {
        harpe_problems problems = {0};
        harpe_problems_add(&problems, json_pack("[s,s]", "query", "after"), "value_error",
                           "value is not the \"next\" of a list of jobs");
        answer_problems(request, &problems);
        return false;
    }
    call->job_id = strdup(after);
    if (!call->job_id) harpe_answer_out_of_memory(request);
    return call->job_id != NULL;
}

/* Reads `sort` and `search` of the query. Returns false if memory runs out. */
static bool read_search(const harpe_http_request *request, harpe_call *call,
                        harpe_problems *problems) {
    const char *sort = harpe_http_query(request, "sort");
    const char *search = harpe_http_query(request, "search");
    if (!sort && !search) return true;
    if (sort && !harpe_jobs_can_sort(sort)) {
        harpe_problems_add(problems, json_pack("[s,s]", "query", "sort"), "value_error",
                           "a list of jobs can be sorted by " HARPE_SORT_KEYS
                           "; '-' in front reverses the order");
        return true;
    }
    int length = asprintf(&call->body, "%s\n%s", sort ? sort : "-start", search ? search : "");
    if (length < 0) call->body = NULL;
    call->length = length < 0 ? 0 : (size_t)length;
    return call->body != NULL;
}

static void begin_list(harpe_routes *routes, harpe_http_request *request, const harpe_route *route,
                       const char *scope) {
    harpe_call call = {.kind = HARPE_CALL_LIST, .rank = 0, .round = 1000};
    harpe_problems problems = {0};
    read_number(request, "offset", INT32_MAX, &call.rank, &problems);
    read_number(request, "limit", 100000, &call.round, &problems);
    bool is_read = read_search(request, &call, &problems);
    if (harpe_problems_count(&problems) > 0) {
        answer_problems(request, &problems);
    } else if (!is_read) {
        harpe_answer_out_of_memory(request);
    } else if (read_place(request, &call)) {
        harpe_long_answers_begin(routes->long_answers, request, route, scope, &call);
        return;
    }
    free(call.body);
}

static void begin_show(harpe_routes *routes, harpe_http_request *request, const harpe_route *route,
                       const char *scope) {
    harpe_call call = {.kind = HARPE_CALL_SHOW, .round = -1};
    call.job_id = strdup(harpe_http_segment(request, route->job_segment));
    if (call.job_id)
        harpe_long_answers_begin(routes->long_answers, request, route, scope, &call);
    else
        harpe_answer_out_of_memory(request);
}

/* ---- Pages that need no call ----------------------------------------------------------------- */

static void answer_info(harpe_routes *routes, harpe_http_request *request) {
    char *settings = harpe_settings_format_json(routes->options.settings);
    json_t *info = json_pack("{s:s, s:s, s:o}", "name", "harpe", "version", harpe_build_version(),
                             "settings", settings ? json_loads(settings, 0, NULL) : NULL);
    answer_text(request, 200, JSON_TYPE, info ? json_dumps(info, JSON_COMPACT) : NULL, NULL);
    json_decref(info);
    free(settings);
}

/* This text replaces the reason, because the reason may name a job or a file. */
static const char SECRET_FAULT[] =
    "the server cannot serve at present; only clients that may use it can see the reason";

enum { FAULT_SIZE = HARPE_ERROR_MESSAGE_SIZE + 200 };

/* Returns what keeps the server from its work, perhaps written into `line`; NULL: nothing. */
static const char *find_fault(const harpe_routes *routes, char line[FAULT_SIZE]) {
    const harpe_routes_options *options = &routes->options;
    int64_t deadline_s = options->settings->work_deadline_s;
    const char *fault = harpe_lead_fault(options->lead);
    if (fault) return fault;
    bool has_fault = harpe_store_fault(options->store, deadline_s, line, FAULT_SIZE) ||
                     harpe_workers_fault(options->workers, -1, line, FAULT_SIZE);
    return has_fault ? line : NULL;
}

static void answer_health(const harpe_routes *routes, harpe_http_request *request) {
    char line[FAULT_SIZE];
    const char *fault = find_fault(routes, line);
    if (!fault) fault = harpe_lead_elsewhere(routes->options.lead);
    if (fault) {
        answer_detail(request, 503, harpe_http_is_trusted(request) ? fault : SECRET_FAULT, NULL);
        return;
    }
    char body[] = "{\"status\":\"ok\"}";
    harpe_http_answer(request, 200, JSON_TYPE, body, strlen(body), false, NULL);
}

static void answer_metrics(const harpe_routes *routes, harpe_http_request *request,
                           const char *scope) {
    char line[FAULT_SIZE];
    answer_text(request, 200, HARPE_METRICS_CONTENT_TYPE,
                harpe_metrics_format(harpe_lead_jobs(routes->options.lead),
                                     harpe_lead_steering(routes->options.lead), scope,
                                     routes->options.store, routes->http, routes->latencies,
                                     !find_fault(routes, line)),
                NULL);
}

static void audit_is_read(void *user, char *json, const harpe_error *error) {
    exchange *self = user;
    if (!self->request) {
        free(json);
        free_exchange(self);
        return;
    }
    harpe_http_set_data(self->request, NULL);
    if (json)
        answer_text(self->request, 200, JSON_TYPE, json, NULL);
    else
        answer_detail(self->request, 503, error->message, NULL);
    free_exchange(self);
}

static void answer_audit(harpe_routes *routes, harpe_http_request *request,
                         const harpe_route *route) {
    int64_t limit = 100;
    harpe_problems problems = {0};
    read_number(request, "limit", 10000, &limit, &problems);
    if (harpe_problems_count(&problems) > 0) {
        answer_problems(request, &problems);
        return;
    }
    if (!routes->audit) {
        answer_detail(request, 404, "this server has no audit log: start it with --audit-log FILE",
                      NULL);
        return;
    }
    exchange *self = new_exchange(routes, request, route);
    if (!self) return;
    self->is_outside = true;
    harpe_http_set_data(request, self);
    harpe_audit_read(routes->audit, (int)limit, audit_is_read, self);
}

static void answer_page(harpe_routes *routes, harpe_http_request *request, const harpe_route *route,
                        const char *scope) {
    switch (route->page) {
    case HARPE_PAGE_NONE: return;
    case HARPE_PAGE_INFO: answer_info(routes, request); return;
    case HARPE_PAGE_HEALTH: answer_health(routes, request); return;
    case HARPE_PAGE_EVENTS:
        /* If job_segment is -1, the id is NULL, which means all jobs. */
        harpe_events_open(routes->events, request, harpe_http_segment(request, route->job_segment),
                          scope);
        return;
    case HARPE_PAGE_AUDIT: answer_audit(routes, request, route); return;
    case HARPE_PAGE_OPENAPI:
        answer_text(request, 200, JSON_TYPE, harpe_routes_openapi(), NULL);
        return;
    case HARPE_PAGE_METRICS: answer_metrics(routes, request, scope); return;
    }
}

/* ---- Dispatch -------------------------------------------------------------------------------- */

static bool matches(const harpe_route *route, harpe_http_request *request) {
    const char *pattern = route->path;
    int index = 0;
    for (; *pattern == '/'; index++) {
        pattern++;
        size_t length = strcspn(pattern, "/");
        const char *segment = harpe_http_segment(request, index);
        if (!segment) return false;
        if (*pattern == '{' ? !*segment
                            : strlen(segment) != length || strncmp(segment, pattern, length) != 0)
            return false;
        pattern += length;
    }
    return index == harpe_http_segment_count(request);
}

/* Returns the reason why this client may not make this request, or NULL if it may. `route` is NULL
 * if there is no such route. */
static const char *fault_of(const harpe_routes *routes, const harpe_http_request *request,
                            const harpe_route *route) {
    const harpe_settings *settings = routes->options.settings;
    const char *fault = harpe_cross_site_fault(request, false);
    if (fault || harpe_settings_need_token(settings)) return fault;
    if (route && route->page == HARPE_PAGE_HEALTH) return NULL;
    harpe_origin_rules rules = {
        .listen = settings->listen,
        .allowed_hosts = settings->allowed_hosts,
        .for_ranks = route && route->needs_rank,
    };
    return harpe_origin_fault(request, rules);
}

/* Answers a request that was refused before it became a call, and writes it to the audit log. */
static void refuse(harpe_routes *routes, harpe_http_request *request, const harpe_route *route,
                   const harpe_client *client, int status, const char *fault) {
    harpe_audit_note note;
    if (routes->audit && harpe_route_is_audited(route) &&
        harpe_audit_note_take(&note, request, route, client)) {
        json_t *detail = json_pack("{s:s}", "detail", fault);
        char *answer = detail ? json_dumps(detail, JSON_COMPACT) : NULL;
        harpe_audit_write(routes->audit, &note, status, answer, answer ? strlen(answer) : 0, NULL,
                          NULL);
        free(answer);
        json_decref(detail);
        harpe_audit_note_clear(&note);
    }
    answer_detail(request, status, fault, NULL);
}

/* Answers a request that the client may not make now, and returns true. */
static bool is_refused(harpe_routes *routes, harpe_http_request *request, const harpe_route *route,
                       harpe_client *client) {
    char line[HARPE_ERROR_MESSAGE_SIZE + 200];
    const char *fault = fault_of(routes, request, route);
    bool is_open = route->page == HARPE_PAGE_HEALTH;
    bool is_known = is_open || harpe_access_client(routes->access, request, client);
    if (!is_known) {
        const harpe_http_header_field headers[] = {{"www-authenticate", "Bearer"}, {NULL, NULL}};
        answer_detail(request, 401, "a valid bearer token is needed", headers);
        return true;
    }
    if (fault) {
        refuse(routes, request, route, client, 403, fault);
        return true;
    }
    if (!is_open && harpe_access_fault(client, route, line, sizeof line)) {
        refuse(routes, request, route, client, 403, line);
        return true;
    }
    char mute[600];
    if (!routes->audit || !harpe_route_is_audited(route) ||
        !harpe_audit_fault(routes->audit, mute, sizeof mute))
        return false;
    (void)snprintf(line, sizeof line, "nothing was changed, because %s", mute);
    refuse(routes, request, route, client, 503, line);
    return true;
}

static void serve(harpe_routes *routes, harpe_http_request *request, const harpe_route *route) {
    harpe_client client = {.role = HARPE_ROLE_NONE};
    if (is_refused(routes, request, route, &client)) return;
    if (route->page)
        answer_page(routes, request, route, client.scope);
    else if (route->call == HARPE_CALL_LIST)
        begin_list(routes, request, route, client.scope);
    else if (route->call == HARPE_CALL_SHOW)
        begin_show(routes, request, route, client.scope);
    else
        start_call(routes, request, route, &client);
}

/* Returns true if the route accepts the method. HEAD counts as GET, except for a rank's schedule:
 * the published server refuses HEAD for schedules, and a rank must read the schedule that it takes.
 */
static bool takes_method(const harpe_route *route, const harpe_http_request *request) {
    if (strcmp(route->method, harpe_http_method(request)) != 0) return false;
    return !route->needs_rank || harpe_http_wants_body(request);
}

static void on_request(void *user, harpe_http_request *request) {
    harpe_routes *routes = user;
    const char *method = harpe_http_method(request);
    harpe_text allowed = {0};
    if (is_page(method, harpe_http_path(request))) {
        const char *foreign = harpe_cross_site_fault(request, true);
        if (foreign)
            answer_detail(request, 403, foreign, NULL);
        else
            page_answer(request);
        return;
    }
    for (const harpe_route *route = harpe_route_table; route->method; route++) {
        if (!matches(route, request)) continue;
        if (takes_method(route, request)) {
            harpe_text_free(&allowed);
            serve(routes, request, route);
            return;
        }
        harpe_text_printf(&allowed, "%s%s", allowed.length ? ", " : "", route->method);
    }
    const char *fault = fault_of(routes, request, NULL);
    if (fault) {
        answer_detail(request, 403, fault, NULL);
    } else if (allowed.length && !allowed.failed) {
        const harpe_http_header_field headers[] = {{"allow", allowed.data}, {NULL, NULL}};
        answer_detail(request, 405, "Method Not Allowed", headers);
    } else {
        answer_detail(request, 404, "Not Found", NULL);
    }
    harpe_text_free(&allowed);
}

static size_t body_limit(void *user, harpe_http_request *request) {
    const harpe_routes *routes = user;
    size_t most = (size_t)routes->options.settings->max_body_bytes;
    for (const harpe_route *route = harpe_route_table; route->method; route++)
        if (route->most_body > 0 && route->most_body < most && takes_method(route, request) &&
            matches(route, request))
            return route->most_body;
    return most;
}

/* Returns true for every GET except that of a schedule, which waits for all ranks of a job. */
static bool only_looks(void *user, const char *method, const char *path) {
    static const char schedule[] = "/schedule/";
    (void)user;
    return strcmp(method, "GET") == 0 && strncmp(path, schedule, sizeof schedule - 1) != 0;
}

/* Returns false for paths without secrets: a program that checks whether the server runs needs no
 * token, and the dashboard's pages contain no data and ask for the token themselves. */
static bool needs_token(void *user, const char *method, const char *path) {
    (void)user;
    return strcmp(path, "/healthz") != 0 && !is_page(method, path);
}

static bool knows_token(void *user, const char *token) {
    const harpe_routes *routes = user;
    return harpe_access_knows(routes->access, token);
}

/* Returns true if the token of a stream still has the same groups and may read. */
static bool may_follow(void *user, const harpe_http_request *request, const char *scope) {
    const harpe_routes *routes = user;
    harpe_client client;
    return harpe_access_client(routes->access, request, &client) && client.role != HARPE_ROLE_JOB &&
           harpe_scope_equal(client.scope, scope);
}

static void tokens_have_changed(void *user) {
    harpe_routes *routes = user;
    harpe_events_check(routes->events, may_follow, routes);
}

static bool is_for_others(void *user, const char *method, const char *path) {
    (void)user, (void)method;
    return strcmp(path, "/healthz") == 0;
}

/* ---- Life ------------------------------------------------------------------------------------ */

harpe_status harpe_routes_new(const harpe_routes_options *options, harpe_routes **out,
                              harpe_error *error) {
    harpe_routes *routes = harpe_calloc(1, sizeof *routes);
    if (!routes) return harpe_fail_memory(error);
    routes->options = *options;
    routes->latencies = harpe_latencies_new();
    routes->events = harpe_events_new(options->loop, &routes->options.lead);
    if (routes->latencies)
        routes->long_answers =
            harpe_long_answers_new(options->loop, &routes->options.lead, routes->latencies);
    if (!routes->long_answers || !routes->events) {
        harpe_routes_free(routes);
        return harpe_fail_memory(error);
    }
    const harpe_settings *settings = options->settings;
    if (*settings->audit_log) {
        routes->audit = harpe_audit_new(options->workers, options->audit_files, settings->audit_log,
                                        options->log);
        if (!routes->audit) {
            harpe_routes_free(routes);
            return harpe_fail_memory(error);
        }
    }
    harpe_status status =
        harpe_access_new(options->loop, options->workers, options->tokens_files, settings,
                         options->log, tokens_have_changed, routes, &routes->access, error);
    if (status != HARPE_OK) {
        harpe_routes_free(routes);
        return status;
    }
    *out = routes;
    return HARPE_OK;
}

void harpe_routes_free(harpe_routes *routes) {
    if (!routes) return;
    harpe_latencies_free(routes->latencies);
    harpe_events_free(routes->events);
    harpe_long_answers_free(routes->long_answers);
    harpe_audit_free(routes->audit);
    harpe_access_free(routes->access);
    free(routes);
}

void harpe_routes_leave_engine(harpe_routes *routes) {
    if (routes) routes->options.lead = NULL;
}

void harpe_routes_set_http(harpe_routes *routes, const harpe_http *http) { routes->http = http; }

harpe_http_handler harpe_routes_handler(harpe_routes *routes) {
    return (harpe_http_handler){
        .request = on_request,
        .gone = on_gone,
        .body_limit = body_limit,
        .only_looks = only_looks,
        .needs_token = needs_token,
        .knows_token = harpe_access_has_tokens(routes->access) ? knows_token : NULL,
        .is_for_others = is_for_others,
        .sent = on_sent,
        .left = on_left,
        .user = routes,
    };
}
