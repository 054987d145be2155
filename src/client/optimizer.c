/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees the pipeline frequency optimizer, and returns its status. This file checks,
 * completes and copies the options, and lets the ranks agree on their job. Other files do the work:
 * optimizer_training.c follows a schedule on the training thread, optimizer_thread.c talks to the
 * server, optimizer_gpu.c keeps the GPU's controller alive, and the instruction profiler
 * measures. */
#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "base/platform.h"
#include "base/possible.h"
#include "base/text.h"
#include "base/token.h"
#include "base/wait.h"
#include "client/optimizer_internal.h"
#include "pfo/metadata.h"

#define JOB_KEY_SIZE 33  /* size of a generated key: hexadecimal digits and a NUL */
#define MEETING_SIZE 256 /* length of the data that rank 0 broadcasts */

enum { DEFAULT_ITERATIONS = 5, DEFAULT_WARMUP_ITERATIONS = 1, ITERATIONS_MAX = 100000 };

const harpe_pipeline_timeouts harpe_pipeline_usual_timeouts = {.trial_alone_s = 10,
                                                               .trial_stagnant_s = 600,
                                                               .held_s = 600,
                                                               .answer_s = 30,
                                                               .report_s = 20,
                                                               .meeting_s = 3,
                                                               .end_notice_s = 1,
                                                               .first_pause_s = 0.1,
                                                               .longest_pause_s = 5,
                                                               .first_controller_pause_s = 1,
                                                               .measuring_period_s = 0.02};

void harpe_pipeline_say(const harpe_pipeline *optimizer, harpe_log_level level, const char *format,
                        ...) {
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix,
                   "pipeline frequency optimizer, rank %d: ", optimizer->options.rank);
    va_list arguments;
    va_start(arguments, format);
    harpe_log_prefixed_line(&optimizer->options.log, level, prefix, format, arguments);
    va_end(arguments);
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static harpe_status check_place(const char *what, int rank, const char *degree_name, int degree,
                                harpe_error *error) {
    if (degree < 1) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: %s must be at least 1, not %d", degree_name, degree);
    }
    if (rank < 0 || rank >= degree) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: %s must be from 0 to %d (%s - 1), not %d", what,
                          degree - 1, degree_name, rank);
    }
    return HARPE_OK;
}

static harpe_status check_places(const harpe_pipeline_frequency_options *options,
                                 harpe_error *error) {
    const struct {
        const char *rank_name, *degree_name;
        int rank, degree;
    } places[] = {{"pp_rank", "pp_degree", options->pp_rank, options->pp_degree},
                  {"dp_rank", "dp_degree", options->dp_rank, options->dp_degree},
                  {"tp_rank", "tp_degree", options->tp_rank, options->tp_degree},
                  {"rank", "world_size", options->rank, options->world_size}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        harpe_status status = check_place(places[i].rank_name, places[i].rank,
                                          places[i].degree_name, places[i].degree, error);
        if (status != HARPE_OK) return status;
    }
    /* The product of three ints may exceed an int64_t. */
    int64_t product = (int64_t)options->pp_degree * options->dp_degree;
    if (product > options->world_size ||
        product * options->tp_degree != (int64_t)options->world_size) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: world_size must be pp_degree * dp_degree * "
                          "tp_degree, but %d is not %d * %d * %d",
                          options->world_size, options->pp_degree, options->dp_degree,
                          options->tp_degree);
    }
    return HARPE_OK;
}

static harpe_status check_key(const harpe_pipeline_frequency_options *options, harpe_error *error) {
    const char *key = options->job_key;
    if (key && (!*key || strlen(key) > 256)) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: job_key must have 1 to 256 bytes, not %zu",
                          strlen(key));
    }
    if (key || options->broadcast || options->world_size == 1) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "pipeline frequency: %d ranks must find each other: give all of them the "
                      "same job_key, or a broadcast (<harpe/mpi.h> has one)",
                      options->world_size);
}

/* Takes the lowest clock from the options or, if they have none, from the environment. */
static harpe_status take_lowest_clock(harpe_pipeline_frequency_options *own, harpe_error *error) {
    char number[16];
    const char *name = "lowest_clock_mhz", *text = number;
    int64_t mhz = own->lowest_clock_mhz;
    (void)snprintf(number, sizeof number, "%d", own->lowest_clock_mhz);
    const char *variable = mhz == 0 ? secure_getenv("HARPE_LOWEST_CLOCK_MHZ") : NULL;
    if (variable && *variable) {
        name = "HARPE_LOWEST_CLOCK_MHZ";
        text = variable;
        if (!harpe_parse_int(text, strlen(text), &mhz) || mhz == 0) mhz = -1;
    }
    if (mhz < 0 || mhz > HARPE_CLOCK_HIGHEST_MHZ)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: %s must be from 1 to %d MHz, found '%.40s'", name,
                          HARPE_CLOCK_HIGHEST_MHZ, text);
    own->lowest_clock_mhz = (int)mhz;
    return HARPE_OK;
}

static harpe_status check_options(const harpe_pipeline_frequency_options *options,
                                  harpe_error *error) {
    harpe_status status = check_places(options, error);
    if (status == HARPE_OK)
        status = harpe_server_url_check("server_url", options->server_url, error);
    if (status == HARPE_OK) status = check_key(options, error);
    if (status != HARPE_OK) return status;
    if (options->device_id < 0) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: device_id must not be below 0, found %d",
                          options->device_id);
    }
    if (options->iterations < 0 || options->iterations > ITERATIONS_MAX) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: iterations must be from 1 to %d (0: %d), not %d",
                          ITERATIONS_MAX, DEFAULT_ITERATIONS, options->iterations);
    }
    if ((int)options->mark < HARPE_MARK_HOST || options->mark > HARPE_MARK_SYNCHRONIZED) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "pipeline frequency: no such mark: %d",
                          (int)options->mark);
    }
    if (options->mark == HARPE_MARK_SYNCHRONIZED && !options->synchronize) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: HARPE_MARK_SYNCHRONIZED needs `synchronize`");
    }
    return HARPE_OK;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static bool copy(const char **text) {
    if (!*text) return true;
    *text = strdup(*text);
    return *text != NULL;
}

/* ---- Who runs the job, and where ------------------------------------------------------------- */

/* Appends " NAME=VALUE" to the metadata, unless it has a word NAME or there is no value. Unusual
 * characters of the value become '_'. */
static void add_word(harpe_text *metadata, const char *name, const char *value) {
    const char *place = metadata->data ? metadata->data : "";
    size_t length;
    if (!value || !*value || harpe_metadata_next(&place, name, &length)) return;
    harpe_text_printf(metadata, "%s%s=", metadata->length > 0 ? " " : "", name);
    for (size_t i = 0; value[i] && i < 64; i++) {
        bool is_usual = isalnum((unsigned char)value[i]) || strchr("._-@", value[i]);
        harpe_text_append(metadata, is_usual ? value + i : "_", 1);
    }
}

/* Adds the words by which people find the job in lists. An object of JSON stays as it is. */
static harpe_status complete_metadata(harpe_pipeline_frequency_options *own, harpe_error *error) {
    char node[HOST_NAME_MAX + 1] = "";
    const char *user = secure_getenv("SLURM_JOB_USER");
    if (own->job_metadata && *own->job_metadata == '{') return HARPE_OK;
    if (!user) user = secure_getenv("USER");
    if (!user) user = secure_getenv("LOGNAME");
    if (gethostname(node, sizeof node - 1) != 0) *node = '\0';
    harpe_text text = {0};
    if (own->job_metadata) harpe_text_printf(&text, "%s", own->job_metadata);
    add_word(&text, harpe_word_names[HARPE_WORD_USER], user);
    add_word(&text, harpe_word_names[HARPE_WORD_SLURM_JOB], secure_getenv("SLURM_JOB_ID"));
    add_word(&text, harpe_word_names[HARPE_WORD_NODE], node);
    add_word(&text, harpe_word_names[HARPE_WORD_NODES], secure_getenv("SLURM_JOB_NUM_NODES"));
    if (text.failed) {
        harpe_text_free(&text);
        return harpe_fail_memory(error);
    }
    free((char *)own->job_metadata);
    own->job_metadata = text.data;
    return HARPE_OK;
}

static harpe_status take_options(harpe_pipeline *optimizer,
                                 const harpe_pipeline_frequency_options *options,
                                 harpe_error *error) {
    char *token = NULL;
    harpe_pipeline_frequency_options given = *options;
    harpe_status status = check_options(options, error);
    if (status == HARPE_OK) status = take_lowest_clock(&given, error);
    if (status == HARPE_OK)
        status = options->token
                     ? harpe_token_take(options->token, "the option token", &token, error)
                     : harpe_token_take(secure_getenv("HARPE_TOKEN"), "HARPE_TOKEN", &token, error);
    if (status != HARPE_OK) return status;
    harpe_pipeline_frequency_options *own = &optimizer->options;
    *own = given;
    if (own->iterations == 0) own->iterations = DEFAULT_ITERATIONS;
    if (own->warmup_iterations < 0)
        own->warmup_iterations = 0;
    else if (own->warmup_iterations == 0)
        own->warmup_iterations = DEFAULT_WARMUP_ITERATIONS;
    const char **texts[] = {&own->server_url, &own->job_metadata, &own->job_key, &own->ca_file,
                            &own->controller.zeusd_socket};
    bool ok = true;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (!ok) *texts[i] = NULL;
        if (!copy(texts[i])) ok = false;
    }
    own->token = token;
    return ok ? complete_metadata(own, error) : harpe_fail_memory(error);
}

static void forget_options(harpe_pipeline *optimizer) {
    harpe_pipeline_frequency_options *own = &optimizer->options;
    free((char *)own->server_url);
    free((char *)own->job_metadata);
    free((char *)own->job_key);
    free((char *)own->token);
    free((char *)own->ca_file);
    free((char *)own->controller.zeusd_socket);
    free(optimizer->job_body);
    free(optimizer->rank_body);
}

/* ---- Registrations --------------------------------------------------------------------------- */

/* Usually the ranks agree on a key, and each rank registers later with this key, so no rank waits
 * for a server at construction. If the ranks meet by a broadcast and the server answers rank 0
 * soon, they agree on the job's id instead, because the published server does not know keys. */

static bool is_soon(void *user) {
    const double *end_s = user;
    return harpe_clock_s() < *end_s;
}

/* Registers the job, within `meeting_s`: the only request of an optimizer during its construction.
 * `job_id` becomes "" if the server does not answer correctly; the optimizer's own thread then asks
 * again later. */
static void ask_for_job(const harpe_pipeline *optimizer, char *job_id, size_t size) {
    double within_s = optimizer->timeouts.meeting_s;
    double end_s = harpe_clock_s() + within_s;
    harpe_connection_options how = {.server_url = optimizer->options.server_url,
                                    .token = optimizer->options.token,
                                    .ca_file = optimizer->options.ca_file,
                                    .held_s = within_s,
                                    .go_on = is_soon,
                                    .user = &end_s};
    harpe_connection *connection = NULL;
    harpe_reply reply;
    job_id[0] = '\0';
    if (harpe_connection_new(&how, &connection, NULL) != HARPE_OK) return;
    harpe_reply_to_registration(connection, optimizer->job_body, job_id, size, &reply);
    if (reply.outcome != HARPE_REPLY_ANSWERED) job_id[0] = '\0';
    harpe_connection_free(connection);
}

static void make_up_key(char key[JOB_KEY_SIZE]) {
    static const char digits[] = "0123456789abcdef";
    unsigned char random[(JOB_KEY_SIZE - 1) / 2];
    /* Ignores the result, because the kernel always has this many random bytes. */
    (void)harpe_random(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++) {
        key[2 * i] = digits[random[i] >> 4];
        key[2 * i + 1] = digits[random[i] & 15];
    }
    key[JOB_KEY_SIZE - 1] = '\0';
}

static harpe_status take_key(harpe_pipeline *optimizer, const char *key, harpe_error *error) {
    harpe_pipeline_frequency_options *own = &optimizer->options;
    char *copied = strdup(key);
    if (!copied) return harpe_fail_memory(error);
    free((char *)own->job_key);
    own->job_key = copied;
    harpe_job_info job = {.job_id = "",
                          .pp_degree = own->pp_degree,
                          .dp_degree = own->dp_degree,
                          .tp_degree = own->tp_degree,
                          .world_size = own->world_size,
                          .job_metadata = own->job_metadata,
                          .job_key = own->job_key};
    free(optimizer->job_body);
    optimizer->job_body = NULL;
    return harpe_job_info_format(&job, &optimizer->job_body, error);
}

/* The data that rank 0 broadcasts: a text whose first character gives the kind of the rest. All
 * kinds have the same size, so a failure of rank 0 alone does not block the other ranks. */
typedef char meeting[MEETING_SIZE];
enum { MEETING_KEY = 'k', MEETING_JOB = 'j' };

/* Writes the data that rank 0 broadcasts: a key, or the job's id if the server answers at once. */
static harpe_status call_meeting(harpe_pipeline *optimizer, meeting text, harpe_error *error) {
    char key[JOB_KEY_SIZE];
    make_up_key(key);
    harpe_status status = take_key(optimizer, key, error);
    if (status != HARPE_OK) return status;
    char job_id[sizeof optimizer->job_id] = "";
    if (optimizer->options.world_size > 1) ask_for_job(optimizer, job_id, sizeof job_id);
    bool has_job = *job_id && strlen(job_id) + 1 < MEETING_SIZE;
    text[0] = has_job ? MEETING_JOB : MEETING_KEY;
    const char *said = has_job ? job_id : key;
    memcpy(text + 1, said, strlen(said) + 1);
    return HARPE_OK;
}

/* Reads the data that rank 0 has broadcast. A job's id also serves as the key: if the server
 * forgets the job, all ranks register it again with this key. */
static harpe_status join_meeting(harpe_pipeline *optimizer, const meeting text,
                                 harpe_error *error) {
    size_t length = strnlen(text, MEETING_SIZE);
    bool is_job = text[0] == MEETING_JOB;
    if (length < 2 || length == MEETING_SIZE || (!is_job && text[0] != MEETING_KEY)) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "pipeline frequency: broadcast brought no key of rank 0: did rank 0 "
                          "fail, do all ranks take part in it, and is its first one rank 0 of the "
                          "job?");
    }
    if (is_job) memcpy(optimizer->job_id, text + 1, length);
    return take_key(optimizer, text + 1, error);
}

static harpe_status broadcast(const harpe_pipeline_frequency_options *options, meeting text,
                              harpe_error *error) {
    harpe_error reason = {.message = ""};
    harpe_status status = options->broadcast(options->broadcast_user, text, MEETING_SIZE, &reason);
    if (status == HARPE_OK) return HARPE_OK;
    return harpe_fail(error, status, "pipeline frequency: broadcast failed: %.900s",
                      reason.message);
}

/* Takes part in the broadcast for a rank that has failed before the broadcast, because the other
 * ranks wait there. */
static void miss_meeting(const harpe_pipeline_frequency_options *options) {
    meeting nothing = "";
    harpe_error ignored;
    if (options->broadcast && !options->job_key) (void)broadcast(options, nothing, &ignored);
}

static harpe_status agree_on_job(harpe_pipeline *optimizer, harpe_error *error) {
    harpe_pipeline_frequency_options *own = &optimizer->options;
    if (own->job_key) return take_key(optimizer, own->job_key, error);
    if (!own->broadcast) {
        /* A job of one rank also has a key: if the registration is repeated, the server finds the
         * same job. */
        char key[JOB_KEY_SIZE];
        make_up_key(key);
        return take_key(optimizer, key, error);
    }
    meeting text = "";
    harpe_error failed;
    harpe_status failure = own->rank == 0 ? call_meeting(optimizer, text, &failed) : HARPE_OK;
    harpe_status status = broadcast(own, text, error);
    if (failure) return harpe_fail(error, failure, "%s", failed.message);
    return status != HARPE_OK ? status : join_meeting(optimizer, text, error);
}

static harpe_status format_rank(harpe_pipeline *optimizer, harpe_error *error) {
    const harpe_pipeline_frequency_options *own = &optimizer->options;
    harpe_rank_info rank = {.rank = own->rank,
                            .dp_rank = own->dp_rank,
                            .pp_rank = own->pp_rank,
                            .tp_rank = own->tp_rank,
                            .available_frequencies_mhz = optimizer->clocks_mhz,
                            .available_frequency_count = optimizer->clock_count};
    return harpe_rank_info_format(&rank, &optimizer->rank_body, error);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Makes a page of memory that becomes zero in a forked child, so that the child recognises itself
 * without a system call. Kernels before 4.14 do not support such pages; there, a child that calls
 * the optimizer is treated like its parent. */
static harpe_status make_here(harpe_pipeline *optimizer, harpe_error *error) {
    unsigned char *page =
        mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return harpe_fail_memory(error);
    (void)madvise(page, page_size(), MADV_WIPEONFORK);
    *page = 1;
    optimizer->here = page;
    return HARPE_OK;
}

/* Opens the GPU. In strict mode a GPU that is missing or cannot be controlled is an error;
 * otherwise it is logged. */
static harpe_status take_gpu(harpe_pipeline *optimizer, harpe_error *error) {
    bool wants_clocks = !optimizer->options.leave_clocks_alone;
    harpe_error reason;
    harpe_status status = harpe_pipeline_find_gpu(optimizer, &reason);
    if (status == HARPE_OK && wants_clocks) {
        status = harpe_pipeline_start_controller(optimizer, &reason);
        optimizer->care.is_wanted = true;
    }
    if (status == HARPE_OK) return HARPE_OK;
    if (optimizer->options.is_strict)
        return harpe_fail(error, status, "pipeline frequency: %.900s", reason.message);
    optimizer->care.told = status;
    harpe_pipeline_plan_next_start(optimizer);
    harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                       "clocks are not controlled, training continues: %s", reason.message);
    return HARPE_OK;
}

/* Makes the profiler. If energy cannot be measured, the profiler measures only times. */
static harpe_status make_profiler(harpe_pipeline *optimizer, harpe_error *error) {
    harpe_instruction_profiler_options how = {.gpus = optimizer->gpus,
                                              .gpu = optimizer->options.device_id,
                                              .sample_period_s =
                                                  optimizer->timeouts.sample_period_s,
                                              .event_capacity = optimizer->timeouts.event_capacity,
                                              .log = optimizer->options.log};
    harpe_error reason;
    harpe_status status = harpe_instruction_profiler_new(&how, &optimizer->profiler, &reason);
    if (status == HARPE_OK) return HARPE_OK;
    if (!how.gpus || optimizer->options.is_strict)
        return harpe_fail(error, status, "pipeline frequency: %.900s", reason.message);
    harpe_pipeline_say(optimizer, HARPE_LOG_WARNING, "only times are measured, without energy: %s",
                       reason.message);
    how.gpus = NULL;
    return harpe_instruction_profiler_new(&how, &optimizer->profiler, error);
}

static void make_stream_events(harpe_pipeline *optimizer) {
    if (optimizer->options.mark != HARPE_MARK_STREAM) return;
    optimizer->stream_events = harpe_stream_events_new(optimizer->options.cuda_stream,
                                                       harpe_pipeline_carry_out, optimizer);
    if (!optimizer->stream_events) {
        harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                           "this process has not loaded CUDA: instructions are marked when they "
                           "are enqueued");
    }
}

static harpe_status start_thread(harpe_pipeline *optimizer, harpe_error *error) {
    int code = harpe_thread_start(&optimizer->thread, "harpe-pfo", harpe_pipeline_run, optimizer);
    if (code) return harpe_fail_errno(error, code, "pipeline frequency: starting a thread");
    optimizer->has_thread = true;
    return HARPE_OK;
}

static harpe_status build(harpe_pipeline *optimizer,
                          const harpe_pipeline_frequency_options *options, harpe_error *error) {
    harpe_status status = take_options(optimizer, options, error);
    if (status == HARPE_OK) status = make_here(optimizer, error);
    if (status != HARPE_OK) {
        miss_meeting(options);
        return status;
    }
    /* This comes before any step that may fail on one rank alone, because the other ranks wait in
     * the broadcast. */
    status = agree_on_job(optimizer, error);
    if (status == HARPE_OK) status = take_gpu(optimizer, error);
    if (status == HARPE_OK) status = format_rank(optimizer, error);
    if (status == HARPE_OK) status = make_profiler(optimizer, error);
    if (status != HARPE_OK) return status;
    make_stream_events(optimizer);
    harpe_connection_options how = {.server_url = optimizer->options.server_url,
                                    .token = optimizer->options.token,
                                    .ca_file = optimizer->options.ca_file,
                                    .answer_limit_s = optimizer->timeouts.answer_s,
                                    .held_s = optimizer->timeouts.held_s,
                                    .go_on = harpe_pipeline_go_on,
                                    .user = optimizer};
    status = harpe_connection_new(&how, &optimizer->conversation.connection, error);
    return status != HARPE_OK ? status : start_thread(optimizer, error);
}

static harpe_pipeline *make_empty(void) {
    harpe_pipeline *optimizer = harpe_calloc(1, sizeof *optimizer);
    if (!optimizer) return NULL;
    (void)pthread_cond_init(&optimizer->changed, NULL);
    (void)pthread_mutex_init(&optimizer->lock, NULL);
    optimizer->round = optimizer->conversation.round = -1;
    optimizer->measured_series = -1;
    return optimizer;
}

harpe_status harpe_pipeline_new_with(const harpe_pipeline_frequency_options *options,
                                     const harpe_pipeline_timeouts *timeouts, harpe_pipeline **out,
                                     harpe_error *error) {
    if (!options || !out) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: no options were given");
    }
    harpe_pipeline *optimizer = make_empty();
    if (!optimizer) return harpe_fail_memory(error);
    optimizer->timeouts = *timeouts;
    harpe_status status = build(optimizer, options, error);
    if (status != HARPE_OK) {
        harpe_pipeline_frequency_free(optimizer);
        return status;
    }
    *out = optimizer;
    return HARPE_OK;
}

harpe_status harpe_pipeline_frequency_new(const harpe_pipeline_frequency_options *options,
                                          harpe_pipeline_frequency_optimizer **out,
                                          harpe_error *error) {
    return harpe_pipeline_new_with(options, &harpe_pipeline_usual_timeouts, out, error);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void end_thread(harpe_pipeline *optimizer) {
    if (!optimizer->has_thread) return;
    harpe_lock(&optimizer->lock);
    atomic_store(&optimizer->is_stopping, true);
    harpe_broadcast(&optimizer->changed);
    harpe_unlock(&optimizer->lock);
    harpe_connection_wake(optimizer->conversation.connection);
    harpe_thread_join(optimizer->thread);
}

void harpe_pipeline_frequency_free(harpe_pipeline_frequency_optimizer *optimizer) {
    /* A child has neither the threads nor the right to use the GPU. Its memory is freed when it
     * ends. */
    if (!optimizer || (optimizer->here && !*optimizer->here)) return;
    end_thread(optimizer);
    harpe_stream_events_free(optimizer->stream_events);
    harpe_frequency_controller_stop(atomic_load(&optimizer->controller));
    harpe_instruction_profiler_free(optimizer->profiler);
    harpe_connection_free(optimizer->conversation.connection);
    if (optimizer->owns_gpus) harpe_gpus_close(optimizer->gpus);
    harpe_schedule_exchange_clear(&optimizer->exchange);
    harpe_followed_schedule_free(optimizer->training.follower.schedule);
    free(optimizer->conversation.report);
    free(optimizer->clocks_mhz);
    forget_options(optimizer);
    if (optimizer->here) (void)munmap((void *)optimizer->here, page_size());
    (void)pthread_cond_destroy(&optimizer->changed);
    (void)pthread_mutex_destroy(&optimizer->lock);
    free(optimizer);
}

/* ---- Status ---------------------------------------------------------------------------------- */

harpe_pipeline_frequency_status
harpe_pipeline_frequency_get_status(harpe_pipeline_frequency_optimizer *optimizer) {
    harpe_pipeline_frequency_status status = {.state = HARPE_PFO_OFF, .round = -1};
    if (harpe_pipeline_is_elsewhere(optimizer)) return status;
    harpe_lock(&optimizer->lock);
    status.state = optimizer->state;
    status.round = optimizer->round;
    status.reconnects = optimizer->reconnects;
    memcpy(status.job_id, optimizer->job_id, sizeof status.job_id);
    harpe_unlock(&optimizer->lock);
    status.steps = atomic_load_explicit(&optimizer->steps, memory_order_relaxed);
    status.misfits = atomic_load_explicit(&optimizer->mismatches, memory_order_relaxed);
    const harpe_frequency_controller *controller =
        atomic_load_explicit(&optimizer->controller, memory_order_acquire);
    if (controller) status.controller = harpe_frequency_controller_count(controller);
    return status;
}

uint64_t
harpe_pipeline_frequency_spoiled_steps(const harpe_pipeline_frequency_optimizer *optimizer) {
    if (harpe_pipeline_is_elsewhere(optimizer)) return 0;
    return atomic_load_explicit(&optimizer->spoiled_steps, memory_order_relaxed);
}

harpe_status
harpe_pipeline_frequency_set_tokens_per_step(harpe_pipeline_frequency_optimizer *optimizer,
                                             int64_t tokens, harpe_error *error) {
    if (tokens < 0 || tokens > HARPE_TOKENS_MAX) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "tokens per step: expected 1 to %d, or 0 for not known",
                          HARPE_TOKENS_MAX);
    }
    if (harpe_pipeline_is_elsewhere(optimizer)) return HARPE_OK;
    atomic_store_explicit(&optimizer->tokens_per_step, tokens, memory_order_relaxed);
    return HARPE_OK;
}

harpe_pipeline_frequency_status
harpe_pipeline_frequency_look(harpe_pipeline_frequency_optimizer *optimizer) {
    return harpe_pipeline_frequency_get_status(optimizer);
}

static harpe_status wait_for_round(harpe_pipeline *optimizer, int64_t round, int64_t until_ns) {
    harpe_status status = HARPE_OK;
    harpe_lock(&optimizer->lock);
    while (status == HARPE_OK && optimizer->round < round) {
        bool is_over = optimizer->state == HARPE_PFO_OFF ||
                       !harpe_wait_until(&optimizer->changed, &optimizer->lock, until_ns);
        if (is_over && optimizer->round < round) status = HARPE_UNAVAILABLE;
    }
    harpe_unlock(&optimizer->lock);
    return status;
}

harpe_status harpe_pipeline_frequency_wait_for_round(harpe_pipeline_frequency_optimizer *optimizer,
                                                     int64_t round, double at_most_s,
                                                     harpe_error *error) {
    if (harpe_pipeline_is_elsewhere(optimizer) || !(at_most_s >= 0)) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline frequency: no optimizer, or a negative time to wait");
    }
    double longest_s = 1e9; /* some 30 years; a larger value could overflow */
    int64_t until_ns =
        harpe_clock_ns() + (int64_t)((at_most_s < longest_s ? at_most_s : longest_s) * 1e9);
    if (wait_for_round(optimizer, round, until_ns) == HARPE_OK) return HARPE_OK;
    return harpe_fail(error, HARPE_UNAVAILABLE,
                      "pipeline frequency: rank %d has no schedule of round %lld yet: have all "
                      "ranks started, and does the log say anything of the server?",
                      optimizer->options.rank, (long long)round);
}
