/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the role of a client's token with the right that a route needs. A timer looks at the
 * file of tokens every second. A worker lets a file process read it, because it may be on a file
 * server that does not answer. If a changed file cannot be read, the tokens stay as they were, the
 * log says why, and each later look tries again. */
#include "server/api/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "rights/scope.h"
#include "rights/tokens_file.h"
#include "server/engine/engine.h"

enum { LOOK_EVERY_MS = 1000 };

struct harpe_access {
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_file_processes *files;
    const char *path; /* NULL: no file of tokens */
    harpe_log log;
    void (*has_changed)(void *user);
    void *user;
    harpe_timer *timer;
    harpe_tokens tokens;
    harpe_work work;
    char told[HARPE_ERROR_MESSAGE_SIZE]; /* why the last look failed; "": it did not fail */

    /* Only the worker uses these while it runs. */
    harpe_tokens_stamp stamp; /* of the file whose tokens were read last */
    bool is_changed;          /* the file is another one than before */
    harpe_status status;
    harpe_tokens fresh;
    harpe_error error;
};

/* ---- Reading the file again ------------------------------------------------------------------ */

static void look_later(harpe_access *access);

static void look(void *user) {
    harpe_access *access = user;
    access->status =
        harpe_tokens_file_read_changed(access->files, access->path, "tokens", &access->fresh,
                                       &access->stamp, &access->is_changed, &access->error);
}

static void has_looked(void *user) {
    harpe_access *access = user;
    bool has_failed = access->is_changed && access->status != HARPE_OK;
    if (has_failed && strcmp(access->told, access->error.message) != 0)
        harpe_log_line(&access->log, HARPE_LOG_ERROR,
                       "%s; the tokens that were read before stay valid", access->error.message);
    (void)snprintf(access->told, sizeof access->told, "%s",
                   has_failed ? access->error.message : "");
    if (access->is_changed && access->status == HARPE_OK) {
        harpe_tokens_free(&access->tokens);
        access->tokens = access->fresh;
        access->fresh = (harpe_tokens){0};
        harpe_log_line(&access->log, HARPE_LOG_INFO, "read %zu tokens from %.300s",
                       access->tokens.count, access->path);
        access->has_changed(access->user);
    }
    look_later(access);
}

static void begin_to_look(void *user) {
    harpe_access *access = user;
    access->timer = NULL;
    access->work = (harpe_work){.work = look,
                                .done = has_looked,
                                .user = access,
                                .pool = HARPE_POOL_TOKENS,
                                .subject = access->path};
    harpe_workers_submit(access->workers, &access->work);
}

static void look_later(harpe_access *access) {
    /* Without memory for a timer, the next look begins at once, so that the looks do not end. */
    if (harpe_loop_after(access->loop, LOOK_EVERY_MS, begin_to_look, access, &access->timer, NULL))
        begin_to_look(access);
}

/* ---- Life ------------------------------------------------------------------------------------ */

harpe_status harpe_access_new(harpe_loop *loop, harpe_workers *workers, harpe_file_processes *files,
                              const harpe_settings *settings, harpe_log log,
                              void (*has_changed)(void *user), void *user, harpe_access **out,
                              harpe_error *error) {
    harpe_access *access = harpe_calloc(1, sizeof *access);
    if (!access) return harpe_fail_memory(error);
    access->loop = loop;
    access->workers = workers;
    access->files = files;
    access->log = log;
    access->has_changed = has_changed;
    access->user = user;
    access->path = *settings->tokens ? settings->tokens : NULL;
    harpe_status status = HARPE_OK;
    if (access->path) {
        access->stamp = HARPE_TOKENS_NO_STAMP;
        status = harpe_tokens_file_read_changed(files, access->path, "tokens", &access->tokens,
                                                &access->stamp, &access->is_changed, error);
        if (status == HARPE_OK) look_later(access);
    }
    if (status != HARPE_OK) {
        harpe_access_free(access);
        return status;
    }
    *out = access;
    return HARPE_OK;
}

void harpe_access_free(harpe_access *access) {
    if (!access) return;
    harpe_timer_cancel(access->timer);
    harpe_tokens_free(&access->tokens);
    harpe_tokens_free(&access->fresh);
    free(access);
}

/* ---- Clients --------------------------------------------------------------------------------- */

bool harpe_access_has_tokens(const harpe_access *access) { return access->path != NULL; }

bool harpe_access_knows(const harpe_access *access, const char *text) {
    return harpe_tokens_find(&access->tokens, text) != NULL;
}

bool harpe_access_client(const harpe_access *access, const harpe_http_request *request,
                         harpe_client *out) {
    bool has_own = harpe_http_has_own_token(request);
    *out = (harpe_client){
        .name = has_own ? "token file" : NULL, .role = HARPE_ROLE_OPERATOR, .watts = -1};
    if (has_own || !access->path) return true;
    const char *text = harpe_http_bearer(request);
    const harpe_named_token *token = text ? harpe_tokens_find(&access->tokens, text) : NULL;
    if (!token) return false;
    *out = (harpe_client){token->name, token->role, token->scope, harpe_token_claim_w(token)};
    return true;
}

bool harpe_access_fault(const harpe_client *client, const harpe_route *route, char *line,
                        size_t size) {
    static const char *const needed[] = {
        [HARPE_RIGHT_ENTER] = "a token",
        [HARPE_RIGHT_READ] = "the role viewer or operator",
        [HARPE_RIGHT_TRAIN] = "the role job or operator",
        [HARPE_RIGHT_STEER] = "the role operator",
        [HARPE_RIGHT_OVERSEE] = "the role operator for the whole fleet",
    };
    static const harpe_right lent[][2] = {
        [HARPE_ROLE_VIEWER] = {HARPE_RIGHT_ENTER, HARPE_RIGHT_READ},
        [HARPE_ROLE_JOB] = {HARPE_RIGHT_ENTER, HARPE_RIGHT_TRAIN},
    };
    harpe_right right = harpe_route_right(route);
    bool may = client->role == HARPE_ROLE_OPERATOR
                   ? right != HARPE_RIGHT_OVERSEE || !client->scope
                   : right == lent[client->role][0] || right == lent[client->role][1];
    if (may) return false;
    char words[256];
    (void)snprintf(line, size, "this needs %s; the token '%s' has the role %s for %s",
                   needed[right], client->name, harpe_role_name(client->role),
                   harpe_scope_words(client->scope, words, sizeof words));
    return true;
}
