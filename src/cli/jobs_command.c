/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe jobs`: lists the jobs of a coordination server, shows, watches or evicts one of them, and
 * prints the address of the dashboard. The jobs are read page by page, so that only one page is in
 * memory at a time. jobs_view.c makes the texts. */
#include <limits.h>
#include <time.h>

#include "base/clock.h"
#include "base/token.h"
#include "base/wait.h"
#include "cli/cli.h"

/* Set `client`, and `query` and `limit` if needed, and leave the other members 0. */
typedef struct job_pages {
    harpe_server_client *client;
    bool is_finished;  /* final reports of evicted jobs, instead of jobs */
    const char *query; /* a part of the URL's query that sorts and searches; NULL: none */
    size_t limit;      /* the most jobs of all pages together; 0: any number */
    json_t *answer;    /* the current page; the caller releases the last one */
    char after[128];   /* the place where the next page begins; "": not known */
    size_t shown;      /* number of jobs of all pages so far */
    bool is_over;
} job_pages;

enum { PAGE_JOBS = 1000, POLL_MS = 500 };

/* ---- Pages ----------------------------------------------------------------------------------- */

static bool is_list(const json_t *jobs) {
    size_t index;
    const json_t *job;
    bool is_good = json_is_array(jobs);
    json_array_foreach(jobs, index, job) is_good &= json_is_string(json_object_get(job, "job_id"));
    return is_good;
}

/* Returns the number of all jobs according to the current page. */
static json_int_t count_all(const job_pages *pages) {
    return json_integer_value(json_object_get(pages->answer, "count"));
}

/* Stores the place of the next page. Older servers do not send it: a request to them instead
 * contains the number of jobs already shown. */
static harpe_status look_ahead(job_pages *pages, size_t count, harpe_error *error) {
    const json_t *next = pages->query ? NULL : json_object_get(pages->answer, "next");
    const char *place = json_string_value(next);
    pages->shown += count;
    pages->is_over = count == 0 || (next && !place) ||
                     (!next && count_all(pages) <= (json_int_t)pages->shown) ||
                     (pages->limit > 0 && pages->shown >= pages->limit);
    if (pages->query && !json_object_get(pages->answer, "all"))
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "the server cannot sort and search: it has an older version");
    if (place && strlen(place) >= sizeof pages->after)
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "the answer's \"next\" is too long: is harpe serve running at the address?");
    (void)snprintf(pages->after, sizeof pages->after, "%s", place ? place : "");
    return HARPE_OK;
}

/* Asks for at most `limit` jobs after those that were shown. */
static harpe_status ask_page(job_pages *pages, size_t limit, harpe_error *error) {
    harpe_text path = {0};
    char number[24];
    (void)snprintf(number, sizeof number, "%zu", pages->shown);
    harpe_text_printf(&path, "%s?limit=%zu%s&%s=", pages->is_finished ? "/finished" : "/jobs",
                      limit, pages->query ? pages->query : "", *pages->after ? "after" : "offset");
    harpe_request request = {.path = path.data, .segment = *pages->after ? pages->after : number};
    harpe_status status =
        path.failed ? harpe_fail_memory(error)
                    : harpe_server_client_request(pages->client, &request, &pages->answer, error);
    harpe_text_free(&path);
    return status;
}

/* Gets the jobs of the next page, newest first. Each is an object with a "job_id". `*jobs` becomes
 * NULL after the last page. The jobs are valid until the next call. A server without jobs has one
 * empty page. */
static harpe_status next_page(job_pages *pages, const json_t **jobs, harpe_error *error) {
    json_decref(pages->answer);
    pages->answer = NULL;
    *jobs = NULL;
    if (pages->is_over) return HARPE_OK;
    size_t left = pages->limit > 0 ? pages->limit - pages->shown : PAGE_JOBS;
    harpe_status status = ask_page(pages, left < PAGE_JOBS ? left : PAGE_JOBS, error);
    if (status != HARPE_OK) return status;
    *jobs = json_object_get(pages->answer, "jobs");
    if (!is_list(*jobs))
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "the answer is not a list of jobs: is harpe serve running at the address?");
    return look_ahead(pages, json_array_size(*jobs), error);
}

/* ---- Finding a job --------------------------------------------------------------------------- */

typedef struct search {
    const char *id;
    json_t *match;   /* the first id that begins with `id`, or `id` itself */
    json_t *fitting; /* the first id of which `id` may be the shortened form */
    json_t *closest; /* the id most similar to `id`, if there is no match */
    size_t matches, fits;
    bool is_exact;
} search;

/* Returns true if `shown` may be a table's shortened form of `name`: a beginning and an end of it,
 * with some characters left out in between. */
static bool is_shortened(const char *shown, const char *name) {
    size_t length = strlen(name);
    const char *gap = shown;
    while ((gap = strstr(gap, HARPE_JOB_ID_GAP))) {
        const char *end = gap + strlen(HARPE_JOB_ID_GAP);
        size_t head = (size_t)(gap - shown), tail = strlen(end);
        if (head > 0 && tail > 0 && head + tail < length && strncmp(shown, name, head) == 0 &&
            strcmp(name + length - tail, end) == 0)
            return true;
        gap++;
    }
    return false;
}

static void keep(json_t **kept, json_t *id) {
    json_decref(*kept);
    *kept = json_incref(id);
}

/* Stores the id that is most similar to the requested one, among all pages so far. */
static harpe_status note_closest(search *self, const json_t *jobs, harpe_error *error) {
    size_t count = json_array_size(jobs);
    const char **names = harpe_calloc(count + 2, sizeof *names);
    if (!names) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        names[i] = json_string_value(json_object_get(json_array_get(jobs, i), "job_id"));
    names[count] = json_string_value(self->closest);
    const char *closest = harpe_closest_name(self->id, names);
    for (size_t i = 0; closest && i < count; i++)
        if (names[i] == closest)
            keep(&self->closest, json_object_get(json_array_get(jobs, i), "job_id"));
    free(names);
    return HARPE_OK;
}

static harpe_status search_page(search *self, const json_t *jobs, harpe_error *error) {
    size_t index;
    const json_t *job;
    json_array_foreach(jobs, index, job) {
        json_t *id = json_object_get(job, "job_id");
        const char *name = json_string_value(id);
        if (is_shortened(self->id, name) && self->fits++ == 0) keep(&self->fitting, id);
        if (strncmp(name, self->id, strlen(self->id)) != 0) continue;
        self->is_exact = strcmp(name, self->id) == 0;
        if (self->matches++ == 0 || self->is_exact) keep(&self->match, id);
        if (self->is_exact) return HARPE_OK;
    }
    return self->matches == 0 ? note_closest(self, jobs, error) : HARPE_OK;
}

static harpe_status tell_found(const search *self, const char *lister, json_t **found,
                               harpe_error *error) {
    if (self->matches == 0 && self->fits > 1)
        return harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "%zu jobs fit '%.200s'; give more of the id (%s --quiet prints whole ids)", self->fits,
            self->id, lister);
    if (self->matches == 0 && self->fits == 0 && self->closest)
        return harpe_fail(error, HARPE_NOT_FOUND, "there is no job '%.200s'; did you mean '%s'?",
                          self->id, json_string_value(self->closest));
    if (self->matches == 0 && self->fits == 0)
        return harpe_fail(error, HARPE_NOT_FOUND, "there is no job '%.200s'; %s lists them",
                          self->id, lister);
    if (self->matches > 1 && !self->is_exact)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%zu jobs begin with '%.200s'; give more of the id", self->matches,
                          self->id);
    *found = json_incref(self->matches == 0 ? self->fitting : self->match);
    return HARPE_OK;
}

/* Finds the job `id`, or the only job whose id begins with `id`, or the only job whose shortened
 * form `id` may be. The caller releases `*found`. Returns HARPE_NOT_FOUND if there is no
 * such job; the message names a similar id. Returns HARPE_INVALID_ARGUMENT if there are several
 * such jobs. */
static harpe_status find_job(harpe_server_client *client, bool is_finished, const char *id,
                             json_t **found, harpe_error *error) {
    job_pages pages = {.client = client, .is_finished = is_finished};
    search self = {.id = id};
    const json_t *jobs;
    harpe_status status;
    do {
        status = next_page(&pages, &jobs, error);
        if (status == HARPE_OK && jobs) status = search_page(&self, jobs, error);
    } while (status == HARPE_OK && jobs && !self.is_exact);
    if (status == HARPE_OK)
        status =
            tell_found(&self, is_finished ? "harpe jobs finished" : "harpe jobs", found, error);
    json_decref(pages.answer);
    json_decref(self.match);
    json_decref(self.fitting);
    json_decref(self.closest);
    return status;
}

typedef enum jobs_action {
    ACTION_LIST,
    ACTION_LINK,
    ACTION_SHOW,
    ACTION_WATCH,
    ACTION_EVICT,
    ACTION_FINISHED,
} jobs_action;
static const char *const action_names[] = {"list",  "link",     "show", "watch",
                                           "evict", "finished", NULL};

typedef struct jobs_arguments {
    harpe_server_client_options client;
    jobs_action action;
    const char *id; /* or the beginning of an id */
    const char *sort, *search;
    int limit; /* 0: all */
    bool json;
    bool quiet;
    bool yes;
} jobs_arguments;

/* ---- Flags ----------------------------------------------------------------------------------- */

static const harpe_flag words[] = {
    {"ACTION", HARPE_INTO(jobs_arguments, action), .names = action_names},
    {"ID", HARPE_INTO(jobs_arguments, id)},
    {0},
};

static const harpe_flag flags[] = {
    {"sort", 0, "KEY",
     "Sort by start, seen, name, state, user, group, node, slurm_job, gpus, round, power, "
     "power_cap, energy, saved or time_lost; -KEY reverses the order (list)",
     2, HARPE_INTO(jobs_arguments, sort)},
    {"search", 0, "WORDS", "Only jobs in which every word occurs (list)", 2,
     HARPE_INTO(jobs_arguments, search)},
    {"limit", 0, "N", "Only the first N jobs (list, finished)", 2,
     HARPE_INTO(jobs_arguments, limit), 1, INT_MAX},
    {"json", 'j', NULL, "Print JSON", 2, HARPE_INTO(jobs_arguments, json)},
    {"quiet", 'q', NULL,
     "Print only ids (list, finished), the state (show, watch), nothing (evict)", 2,
     HARPE_INTO(jobs_arguments, quiet)},
    {"yes", 'y', NULL, "Evict without a question", 2, HARPE_INTO(jobs_arguments, yes)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags},
              {.flags = harpe_server_client_flags,
               .at = offsetof(jobs_arguments, client),
               .group = 1}},
    .words = words,
    .forms = "[list]\nlink\nshow ID\nwatch ID\nevict ID\nfinished [ID]",
    .about =
        "Show the jobs of a coordination server (harpe serve), or evict a job. link prints the "
        "dashboard's address. finished lists the final reports of evicted jobs, or shows one. ID "
        "may be the beginning of an id if only one id begins with it.\v"
        "Examples:\n  harpe jobs --server http://head-node:7787\n  harpe jobs show 2026-01-31\n\n"
        "See also: man harpe-jobs",
};

static void check_usage(const jobs_arguments *arguments, const struct argp_state *state) {
    const char *name = action_names[arguments->action];
    if (arguments->action == ACTION_LIST && arguments->id)
        harpe_flag_fail(state, "list takes no job, got '%s'; see one with show", arguments->id);
    if (arguments->action == ACTION_LINK && arguments->id)
        harpe_flag_fail(state, "link takes no job, got '%s'", arguments->id);
    if (arguments->action > ACTION_LINK && arguments->action != ACTION_FINISHED && !arguments->id)
        harpe_flag_fail(state, "%s needs a job's id, or its beginning; harpe jobs lists them",
                        name);
    if ((arguments->sort || arguments->search) && arguments->action != ACTION_LIST)
        harpe_flag_fail(state, "--sort and --search are for list, and this is %s", name);
    if (arguments->limit > 0 && arguments->action != ACTION_LIST &&
        (arguments->action != ACTION_FINISHED || arguments->id))
        harpe_flag_fail(state, "--limit is for a list, and this is %s", name);
    if (arguments->yes && arguments->action != ACTION_EVICT)
        harpe_flag_fail(state, "--yes is for evict, and this is %s", name);
}

/* ---- Printing -------------------------------------------------------------------------------- */

/* Prints without delay, so that the reader of a pipe sees the text at once. A closed pipe ends the
 * watch. */
static harpe_status print_text(harpe_text *text, harpe_error *error) {
    harpe_status status = harpe_command_write(NULL, text, error);
    return status == HARPE_OK ? harpe_command_flush(error) : status;
}

/* ---- List, show, evict ----------------------------------------------------------------------- */

static harpe_status print_pages(const jobs_arguments *arguments, job_pages pages,
                                harpe_error *error) {
    harpe_jobs_table table = {.quiet = arguments->quiet, .columns = harpe_command_columns()};
    json_int_t count = 0;
    const json_t *jobs;
    harpe_status status = next_page(&pages, &jobs, error);
    for (bool is_first = true; status == HARPE_OK && jobs; is_first = false) {
        count = count_all(&pages);
        harpe_text text = {0};
        if (!arguments->json) harpe_jobs_view_page(&table, jobs, &text);
        status = arguments->json ? harpe_command_print_json_rows("jobs", jobs, is_first, error)
                                 : print_text(&text, error);
        if (status == HARPE_OK) status = next_page(&pages, &jobs, error);
    }
    if (status == HARPE_OK && arguments->json)
        status = harpe_command_print_json_end(json_pack("{s:I}", "count", count), error);
    if (status == HARPE_OK && !arguments->json && !arguments->quiet && !table.has_head)
        printf(arguments->action == ACTION_FINISHED ? "No final reports.\n" : "No jobs.\n");
    json_decref(pages.answer);
    return status;
}

/* Prints each page when it arrives, because the number of jobs is unlimited. */
static harpe_status list(const jobs_arguments *arguments, harpe_server_client *client,
                         harpe_error *error) {
    harpe_text query = {0};
    if (arguments->sort || arguments->search) {
        harpe_text_printf(&query, "&sort=");
        harpe_url_append(&query, arguments->sort ? arguments->sort : "-start");
        harpe_text_printf(&query, "&search=");
        harpe_url_append(&query, arguments->search ? arguments->search : "");
    }
    job_pages pages = {.client = client,
                       .is_finished = arguments->action == ACTION_FINISHED,
                       .query = query.data,
                       .limit = (size_t)arguments->limit};
    harpe_status status =
        query.failed ? harpe_fail_memory(error) : print_pages(arguments, pages, error);
    harpe_text_free(&query);
    return status;
}

/* Sends a request about one job. Returns HARPE_NOT_FOUND if the server does not have the job, or no
 * longer has it, and HARPE_UNAVAILABLE if no answer came or the server has failed. */
static harpe_status call(harpe_server_client *client, const char *method, const char *path,
                         const char *id, json_t **answer, harpe_error *error) {
    harpe_request request = {.method = method, .path = path, .segment = id};
    return harpe_server_client_request(client, &request, answer, error);
}

static harpe_status show(const jobs_arguments *arguments, harpe_server_client *client,
                         const char *id, harpe_error *error) {
    json_t *job;
    const char *path = arguments->action == ACTION_FINISHED ? "/finished/" : "/jobs/";
    harpe_status status = call(client, "GET", path, id, &job, error);
    if (status != HARPE_OK) return status;
    if (arguments->json) return harpe_command_print_json(job, error);
    harpe_text text = {0};
    if (arguments->quiet) {
        harpe_jobs_view_progress(job, true, &text);
        harpe_text_printf(&text, "\n");
    } else {
        harpe_jobs_view_job(job, &text);
    }
    json_decref(job);
    return print_text(&text, error);
}

static bool is_confirmed(const char *id) {
    char answer[16];
    fprintf(stderr, "Evict %s? Its ranks will be refused. [y/N] ", id);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static harpe_status evict(const jobs_arguments *arguments, harpe_server_client *client,
                          const char *id, harpe_error *error) {
    if (!arguments->yes && isatty(STDIN_FILENO) && !is_confirmed(id))
        return harpe_fail(error, HARPE_PERMISSION_DENIED, "not confirmed; %s stays", id);
    json_t *answer;
    harpe_status status = call(client, "DELETE", "/jobs/", id, &answer, error);
    if (status != HARPE_OK) return status;
    json_decref(answer);
    if (arguments->json)
        return harpe_command_print_json(json_pack("{s:s, s:b}", "job_id", id, "evicted", 1), error);
    if (!arguments->quiet) printf("evicted %s\n", id);
    return HARPE_OK;
}

/* ---- Watch ----------------------------------------------------------------------------------- */

typedef struct watching {
    const jobs_arguments *arguments;
    harpe_text before; /* the last progress printed */
    int frame_lines;   /* lines of the frame on the terminal */
    bool is_display;
    bool was_seen;
} watching;

static void append_time(harpe_text *text) {
    char when[16];
    struct tm local;
    time_t now = harpe_clock_wall_whole_s();
    if (localtime_r(&now, &local) && strftime(when, sizeof when, "%H:%M:%S", &local) > 0)
        harpe_text_printf(text, "%s ", when);
}

/* Draws over the previous frame. A line that is too wide is cut. If it were wrapped, the frame
 * would have more lines than the function has counted. */
static harpe_status draw(watching *watch, const json_t *job, harpe_error *error) {
    harpe_text text = {0};
    if (watch->frame_lines > 0) harpe_text_printf(&text, "\033[%dA\r\033[J", watch->frame_lines);
    harpe_text_printf(&text, "\033[?7l");
    harpe_jobs_view_job(job, &text);
    harpe_text_printf(&text, "\033[?7h");
    watch->frame_lines = 0;
    for (const char *c = text.data; !text.failed && *c; c++)
        watch->frame_lines += *c == '\n';
    return print_text(&text, error);
}

/* Prints a line if `news` differs from the text printed last. */
static harpe_status tell(watching *watch, const char *news, const json_t *job, harpe_error *error) {
    if (watch->before.data && strcmp(watch->before.data, news) == 0) return HARPE_OK;
    watch->before.length = 0;
    harpe_text_append(&watch->before, news, strlen(news));
    harpe_text text = {0};
    if (watch->arguments->json) {
        if (job) harpe_command_append_json_line(&text, job);
    } else {
        if (!watch->arguments->quiet) append_time(&text);
        harpe_text_printf(&text, "%s\n", news);
    }
    watch->frame_lines = 0; /* the next frame starts below */
    return print_text(&text, error);
}

static harpe_status show_progress(watching *watch, const json_t *job, harpe_error *error) {
    watch->was_seen = true;
    if (watch->is_display) return draw(watch, job, error);
    harpe_text news = {0};
    harpe_jobs_view_progress(job, watch->arguments->quiet, &news);
    harpe_status status =
        news.failed ? harpe_fail_memory(error) : tell(watch, news.data, job, error);
    harpe_text_free(&news);
    return status;
}

/* Waits until the next request is due. Returns false if a signal has ended the wait. */
static bool wait_for_next(void) {
    for (int waited_ms = 0; waited_ms < POLL_MS; waited_ms += 50) {
        if (harpe_terminal_progress_signal()) return false;
        harpe_sleep_ns(50000000);
    }
    return !harpe_terminal_progress_signal();
}

/* Returns true if the job has ended or failed, so that the watch ends. If the job has failed,
 * `*status` becomes a failure. */
static bool is_over(watching *watch, const json_t *job, harpe_status *status, harpe_error *error) {
    const char *state = json_string_value(json_object_get(job, "state"));
    const char *failure = json_string_value(json_object_get(job, "failure"));
    const char *id = json_string_value(json_object_get(job, "job_id"));
    if (state && strcmp(state, "failed") == 0) {
        *status = harpe_fail(error, HARPE_INFEASIBLE, "%.200s has failed: %.700s", id ? id : "-",
                             failure ? failure : "the server gives no reason");
        return true;
    }
    if (!state || strcmp(state, "ended") != 0) return false;
    if (!watch->arguments->quiet) *status = tell(watch, "the job has ended", NULL, error);
    return true;
}

/* Watches a job. If the server stops after the job was seen, waits until the server runs again. */
static harpe_status follow(watching *watch, harpe_server_client *client, const char *id,
                           harpe_error *error) {
    do {
        json_t *job;
        harpe_status status = call(client, "GET", "/jobs/", id, &job, error);
        if (status == HARPE_OK) {
            status = show_progress(watch, job, error);
            bool ends = status == HARPE_OK && is_over(watch, job, &status, error);
            json_decref(job);
            if (ends) return status;
        } else if (status == HARPE_INTERRUPTED) {
            return HARPE_OK;
        } else if (status == HARPE_NOT_FOUND && watch->was_seen) {
            return tell(watch, "the job is gone", NULL, error);
        } else if (status == HARPE_UNAVAILABLE && watch->was_seen) {
            status = tell(watch, "the server does not answer; trying again", NULL, error);
        }
        if (status != HARPE_OK) return status;
    } while (wait_for_next());
    return HARPE_OK;
}

static harpe_status watch(const jobs_arguments *arguments, harpe_server_client *client,
                          const char *id, harpe_error *error) {
    const char *terminal = getenv("TERM");
    bool is_capable = isatty(STDOUT_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
    watching watch = {.arguments = arguments,
                      .is_display = is_capable && !arguments->json && !arguments->quiet};
    harpe_command_catch_signals();
    harpe_status status = follow(&watch, client, id, error);
    harpe_text_free(&watch.before);
    return status;
}

/* Appends the address of the dashboard, for a browser. It ends in "#token=TOKEN" if the client has
 * a token. Browsers do not send the part after "#". */
static harpe_status append_link(const harpe_server_client *client, harpe_text *link,
                                harpe_error *error) {
    char *of_machine = client->token ? NULL : harpe_token_of_machine(client->server);
    const char *token = client->token ? client->token : of_machine;
    harpe_text_printf(link, "%s/", client->server);
    if (token) {
        harpe_text_printf(link, "#token=");
        harpe_url_append(link, token);
    }
    free(of_machine);
    return link->failed ? harpe_fail_memory(error) : HARPE_OK;
}

static harpe_status print_link(const jobs_arguments *arguments, harpe_server_client *client,
                               harpe_error *error) {
    harpe_text link = {0};
    harpe_status status = append_link(client, &link, error);
    if (status == HARPE_OK && arguments->json)
        status = harpe_command_print_json(json_pack("{s:s}", "link", link.data), error);
    else if (status == HARPE_OK)
        printf("%s\n", link.data);
    harpe_text_free(&link);
    return status;
}

/* ---- The command ----------------------------------------------------------------------------- */

static harpe_status run(const jobs_arguments *arguments, harpe_server_client *client,
                        harpe_error *error) {
    if (arguments->action == ACTION_LIST ||
        (arguments->action == ACTION_FINISHED && !arguments->id))
        return list(arguments, client, error);
    if (arguments->action == ACTION_LINK) return print_link(arguments, client, error);
    json_t *found = NULL;
    harpe_status status =
        find_job(client, arguments->action == ACTION_FINISHED, arguments->id, &found, error);
    if (status != HARPE_OK) return status;
    const char *id = json_string_value(found);
    if (arguments->action == ACTION_SHOW || arguments->action == ACTION_FINISHED)
        status = show(arguments, client, id, error);
    else if (arguments->action == ACTION_WATCH)
        status = watch(arguments, client, id, error);
    else
        status = evict(arguments, client, id, error);
    json_decref(found);
    return status;
}

int harpe_jobs_command(int argc, char **argv) {
    jobs_arguments arguments = {.client.server = harpe_server_client_default()};
    harpe_server_client client = {0};
    harpe_error error;
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    check_usage(&arguments, &state);
    harpe_status status = harpe_server_client_open(&arguments.client, &client, &error);
    if (status == HARPE_OK) status = run(&arguments, &client, &error);
    harpe_server_client_close(&client);
    return status != HARPE_OK ? harpe_command_fail("jobs", &error) : HARPE_EXIT_OK;
}
