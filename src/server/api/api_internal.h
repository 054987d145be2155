/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of src/server/api share: the rows of the routes, and the parts of routes.c. */
#ifndef HARPE_SERVER_API_API_INTERNAL_H
#define HARPE_SERVER_API_API_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "http/http.h"
#include "rights/tokens.h"
#include "server/api/api.h"
#include "server/fleet/steering.h"

/* ---- Routes ---------------------------------------------------------------------------------- */
/* One row per route. routes.c dispatches requests by these rows, and /openapi.json is made from
 * them. */

typedef enum harpe_page {
    HARPE_PAGE_NONE, /* the route is a call */
    HARPE_PAGE_INFO,
    HARPE_PAGE_HEALTH,
    HARPE_PAGE_METRICS,
    HARPE_PAGE_OPENAPI,
    HARPE_PAGE_EVENTS, /* the stream of one job, or of all jobs */
    HARPE_PAGE_AUDIT,
} harpe_page;

/* What a client must be allowed to do. */
typedef enum harpe_right {
    HARPE_RIGHT_ENTER, /* every token */
    HARPE_RIGHT_READ,
    HARPE_RIGHT_TRAIN, /* do what a training client does */
    HARPE_RIGHT_STEER,
    HARPE_RIGHT_OVERSEE, /* steer the whole fleet */
} harpe_right;

typedef struct harpe_route {
    const char *method, *path; /* "/schedule/{job_id}" */
    harpe_page page;
    harpe_call_kind call;
    int job_segment; /* index of the segment that is the job's id; -1: none */
    bool needs_rank, takes_round;
    const char *body_schema;   /* of the OpenAPI document; NULL: no body */
    const char *answer_schema; /* schema of a 200 answer; NULL: any JSON */
    const char *summary;
    size_t most_body; /* bytes; 0: the server's limit */
} harpe_route;

/* The greatest number of rows of the table, counting the last row, whose method is NULL. */
enum { HARPE_ROUTES_MAX = 48 };

extern const harpe_route harpe_route_table[];
/* Returns the right that the route needs. Unless route_table.c names another right, GET needs
 * HARPE_RIGHT_READ, and other methods need HARPE_RIGHT_STEER. */
harpe_right harpe_route_right(const harpe_route *route);
/* Returns true if requests of this route are written to the audit log. */
bool harpe_route_is_audited(const harpe_route *route);

/* Returns a JSON object with the members of a schema, by name; NULL: the schema has no members, or
 * memory ran out. The caller frees the object with json_decref(). */
json_t *harpe_openapi_members(const char *schema);
/* Returns the OpenAPI 3 document. Free it with free(). */
char *harpe_routes_openapi(void);

/* ---- Clients --------------------------------------------------------------------------------- */
/* Who makes a request, and what that client may do. Without a file of tokens, and for the token of
 * --token-file, every client may do everything. The file is read again when it changes. A server
 * that requires no token is open to every program of this machine or network. But even such a
 * server must refuse requests that web pages of other origins make through a browser there. */

typedef struct harpe_origin_rules {
    const char *listen;        /* the numeric address on which the server listens */
    const char *allowed_hosts; /* other names of the server, in the form of the setting */
    bool for_ranks;            /* the request comes from a training process and may be held */
} harpe_origin_rules;

/* Returns the reason why a request is refused if the browser says that a page of another origin has
 * made the request. Otherwise returns NULL. A page of another origin may only have a link to a page
 * of this server: `is_page` is true for a request for such a page. The function takes no
 * harpe_origin_rules, because it also holds for a server that requires tokens. */
const char *harpe_cross_site_fault(const harpe_http_request *request, bool is_page);
/* Returns the reason why a request is refused (one line), or NULL. For every client, the header
 * Host must have a name of this server: a web page can send any User-Agent, but cannot choose the
 * Host. Browsers must fulfil further conditions. */
const char *harpe_origin_fault(const harpe_http_request *request, harpe_origin_rules rules);

typedef struct harpe_access harpe_access;

/* Who makes a request. The texts are valid until the loop does something else. */
typedef struct harpe_client {
    const char *name; /* the name of its token; NULL: the client needs no token */
    harpe_role role;
    const char *scope; /* see rights/tokens.h */
    int64_t watts;     /* the most power of all members that it declares; negative: no limit */
} harpe_client;

/* Reads the file of tokens that the settings name, if they name one, and reads the file again when
 * it changes. Processes of `files` do this; if `files` is NULL, this thread reads the file now, and
 * workers do so later. `settings` must stay valid until harpe_access_free. Calls `has_changed` with
 * `user` on the loop after the tokens have changed. */
harpe_status harpe_access_new(harpe_loop *loop, harpe_workers *workers, harpe_file_processes *files,
                              const harpe_settings *settings, harpe_log log,
                              void (*has_changed)(void *user), void *user, harpe_access **out,
                              harpe_error *error);
/* Call it after harpe_workers_free, or if no worker runs. */
void harpe_access_free(harpe_access *access);
/* Returns true if the settings name a file of tokens. */
bool harpe_access_has_tokens(const harpe_access *access);
/* Returns true if the file of tokens has a token whose secret text is `text`. */
bool harpe_access_knows(const harpe_access *access, const char *text);
/* Writes to `*out` which client has made the request. Returns false if the token of the request was
 * removed after the request began. */
bool harpe_access_client(const harpe_access *access, const harpe_http_request *request,
                         harpe_client *out);
/* Returns true if the role of the client does not permit the route, and then writes one line that
 * says which role is needed. Does not compare the groups of the client. */
bool harpe_access_fault(const harpe_client *client, const harpe_route *route, char *line,
                        size_t size);

/* ---- The audit log --------------------------------------------------------------------------- */
/* The audit log says who asked for which change, and what the server answered. The log is a file of
 * JSON objects, one on each line, to which the server only appends. A request that steers is
 * answered when its record is on disk. The log is not a table of the store, because each of several
 * servers on one PostgreSQL has its own requests, some of which it refuses, and only the server
 * that leads may write to the store. */

/* Who asks for what. The texts belong to the note. */
typedef struct harpe_audit_note {
    char *who, *what, *body; /* NULL: none */
    const char *role;
    bool is_operator;
    char address[HARPE_HTTP_ADDRESS_SIZE];
} harpe_audit_note;

/* Describes a request whose body has come. Returns false if memory runs out. */
bool harpe_audit_note_take(harpe_audit_note *note, harpe_http_request *request,
                           const harpe_route *route, const harpe_client *client);
void harpe_audit_note_clear(harpe_audit_note *note);

typedef struct harpe_audit harpe_audit;

/* `path` must stay valid. Processes of `files` use the file; if `files` is NULL, the workers
 * themselves do. Returns NULL if memory runs out. */
harpe_audit *harpe_audit_new(harpe_workers *workers, harpe_file_processes *files, const char *path,
                             harpe_log log);
/* Calls each `done` that was not called yet. Call this function when no worker runs. `audit` may be
 * NULL. */
void harpe_audit_free(harpe_audit *audit);
/* Appends a record. `answer` is the JSON of the answer; a "detail" in it becomes part of the
 * record. Calls `done` on the loop when the record is on disk, or when that has failed. `done` may
 * be NULL. For each token, the rate of two kinds of records is limited: those of refused requests,
 * and those of requests of a token without the role operator. A record above the rate is left out,
 * and `done` is called at once. The next record of the token says in "left_out" how many were left
 * out. */
void harpe_audit_write(harpe_audit *audit, const harpe_audit_note *note, int http_status,
                       const char *answer, size_t length, void (*done)(void *user), void *user);
/* Returns true and writes a line if the last record could not be written, or if one has waited for
 * several seconds. */
bool harpe_audit_fault(harpe_audit *audit, char *line, size_t size);
/* Reads the newest `limit` records, and calls `done` on the loop with a JSON list of them, newest
 * first. `done` frees `json` with free(). `json` is NULL if this has failed; `error` then says
 * why. */
void harpe_audit_read(harpe_audit *audit, int limit,
                      void (*done)(void *user, char *json, const harpe_error *error), void *user);

/* ---- Metrics --------------------------------------------------------------------------------- */
/* The durations of requests are histograms: one for each route that the engine answers, and one
 * with longer buckets for schedules, whose ranks wait for one another. */

typedef struct harpe_latencies harpe_latencies;

harpe_latencies *harpe_latencies_new(void); /* NULL: out of memory */
void harpe_latencies_free(harpe_latencies *latencies);
/* Adds a duration. `route` is a row of harpe_route_table. */
void harpe_latencies_add(harpe_latencies *latencies, const harpe_route *route, int64_t duration_ns);

/* Returns the metrics in Prometheus' text format; free them with free(). `jobs` and `steering` are
 * NULL while another server leads, because that server counts the jobs. `http` may be NULL. If
 * `scope` is not NULL, the metrics of single jobs leave out jobs whose groups `scope` does not
 * cover, and the metrics of the fleet are left out. `is_healthy`: /healthz answers 200. */
char *harpe_metrics_format(const harpe_jobs *jobs, const harpe_steering *steering,
                           const char *scope, const harpe_store *store, const harpe_http *http,
                           const harpe_latencies *latencies, bool is_healthy);

/* ---- Streams --------------------------------------------------------------------------------- */
/* Server-sent events: each stream sends the changes among jobs to its client as they happen. A
 * stream is a response that does not end. It makes one call after another, and each call waits for
 * the next change. Streams do not delay training, because there are few of them and HTTP closes
 * them when connections run out. */

typedef struct harpe_events harpe_events;

/* `*lead` is NULL after harpe_routes_leave_engine. Returns NULL if memory runs out. */
harpe_events *harpe_events_new(harpe_loop *loop, harpe_lead *const *lead);
/* Frees the streams. Call it after harpe_http_free, which closes every stream. */
void harpe_events_free(harpe_events *events);
/* Opens a stream of one job, or of all jobs if `job_id` is NULL. Copies `job_id`. If no stream can
 * be opened, answers `request` at once. Otherwise the request's data belongs to the stream from
 * then on. */
void harpe_events_open(harpe_events *events, harpe_http_request *request, const char *job_id,
                       const char *scope);
/* Ends the streams for which `may_go_on` returns false. `may_go_on` gets the stream's request and
 * scope. */
void harpe_events_check(harpe_events *events,
                        bool (*may_go_on)(void *user, const harpe_http_request *request,
                                          const char *scope),
                        void *user);
/* Returns true if `data`, the data of a request, belongs to a stream. */
bool harpe_events_owns(const void *data);
/* The function `sent` of a harpe_http_handler. */
void harpe_events_sent(void *data);
void harpe_events_gone(void *data);

/* Answers that may be long: the list of all jobs, and a job with all of its ranks. Each call to the
 * engine makes one piece of an answer. Each piece is made after the client has taken the piece
 * before it. So the server never holds a whole long answer, and most of the loop's time is left for
 * clients that train. */
typedef struct harpe_long_answers harpe_long_answers;

/* `lead` is as for harpe_events_new. Returns NULL if memory runs out. */
harpe_long_answers *harpe_long_answers_new(harpe_loop *loop, harpe_lead *const *lead,
                                           harpe_latencies *latencies);
/* Frees the answers. Call it after harpe_http_free, which ends every answer. */
void harpe_long_answers_free(harpe_long_answers *answers);
/* Answers 503. */
void harpe_answer_out_of_memory(harpe_http_request *request);
/* Answers `request` with the data that `call` asks for: HARPE_CALL_LIST with a limit in `round`, or
 * HARPE_CALL_SHOW. Takes over the texts of `call`, and copies `scope`. The request's data belongs
 * to the answer from then on. */
void harpe_long_answers_begin(harpe_long_answers *answers, harpe_http_request *request,
                              const harpe_route *route, const char *scope, harpe_call *call);
/* Returns true if `data`, the data of a request, belongs to a long answer. */
bool harpe_long_answers_own(const void *data);
/* The function `sent` of a harpe_http_handler. */
void harpe_long_answers_sent(void *data);
void harpe_long_answers_gone(void *data);

/* ---- Pages ----------------------------------------------------------------------------------- */

/* The dashboard's pages: files of web/, compressed at build time and part of the program. They
 * contain no data of jobs, so they need no token. They request the data that they show from the
 * server, like any client. */

/* One file. Made by cmake/embed_web.cmake. */
typedef struct harpe_page_file {
    const char *path, *content_type;
    const char *etag;          /* with its quotes */
    const unsigned char *gzip; /* compressed_length bytes */
    size_t compressed_length, length;
} harpe_page_file;

/* The last row has a NULL path. */
extern const harpe_page_file harpe_page_files[];

#endif
