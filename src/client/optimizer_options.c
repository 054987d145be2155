/* SPDX-License-Identifier: Apache-2.0 */
/* Checks, completes and copies the options of a pipeline frequency optimizer, and writes the two
 * registrations that it will send to the server. Here the ranks also agree on their job. Usually
 * they agree on a key, and each rank registers later with this key, so no rank waits for a server
 * at construction. If the ranks meet by a broadcast and the server answers rank 0 soon, they agree
 * on the job's id instead, because the published server does not know keys. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/number.h"
#include "base/platform.h"
#include "base/possible.h"
#include "base/text.h"
#include "base/token.h"
#include "client/optimizer_internal.h"
#include "pfo/metadata.h"

enum { DEFAULT_ITERATIONS = 5, DEFAULT_WARMUP_ITERATIONS = 1, ITERATIONS_MAX = 100000 };

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

harpe_status harpe_pipeline_take_options(harpe_pipeline *optimizer,
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

void harpe_pipeline_forget_options(harpe_pipeline *optimizer) {
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

static void make_up_key(char key[HARPE_JOB_KEY_SIZE]) {
    static const char digits[] = "0123456789abcdef";
    unsigned char random[(HARPE_JOB_KEY_SIZE - 1) / 2];
    /* Ignores the result, because the kernel always has this many random bytes. */
    (void)harpe_random(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++) {
        key[2 * i] = digits[random[i] >> 4];
        key[2 * i + 1] = digits[random[i] & 15];
    }
    key[HARPE_JOB_KEY_SIZE - 1] = '\0';
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
typedef char meeting[HARPE_MEETING_SIZE];
enum { MEETING_KEY = 'k', MEETING_JOB = 'j' };

/* Writes the data that rank 0 broadcasts: a key, or the job's id if the server answers at once. */
static harpe_status call_meeting(harpe_pipeline *optimizer, meeting text, harpe_error *error) {
    char key[HARPE_JOB_KEY_SIZE];
    make_up_key(key);
    harpe_status status = take_key(optimizer, key, error);
    if (status != HARPE_OK) return status;
    char job_id[sizeof optimizer->job_id] = "";
    if (optimizer->options.world_size > 1)
        harpe_pipeline_ask_for_job(optimizer, job_id, sizeof job_id);
    bool has_job = *job_id && strlen(job_id) + 1 < HARPE_MEETING_SIZE;
    text[0] = has_job ? MEETING_JOB : MEETING_KEY;
    const char *said = has_job ? job_id : key;
    memcpy(text + 1, said, strlen(said) + 1);
    return HARPE_OK;
}

/* Reads the data that rank 0 has broadcast. A job's id also serves as the key: if the server
 * forgets the job, all ranks register it again with this key. */
static harpe_status join_meeting(harpe_pipeline *optimizer, const meeting text,
                                 harpe_error *error) {
    size_t length = strnlen(text, HARPE_MEETING_SIZE);
    bool is_job = text[0] == MEETING_JOB;
    if (length < 2 || length == HARPE_MEETING_SIZE || (!is_job && text[0] != MEETING_KEY)) {
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
    harpe_status status =
        options->broadcast(options->broadcast_user, text, HARPE_MEETING_SIZE, &reason);
    if (status == HARPE_OK) return HARPE_OK;
    return harpe_fail(error, status, "pipeline frequency: broadcast failed: %.900s",
                      reason.message);
}

void harpe_pipeline_miss_meeting(const harpe_pipeline_frequency_options *options) {
    meeting nothing = "";
    harpe_error ignored;
    if (options->broadcast && !options->job_key) (void)broadcast(options, nothing, &ignored);
}

harpe_status harpe_pipeline_agree_on_job(harpe_pipeline *optimizer, harpe_error *error) {
    harpe_pipeline_frequency_options *own = &optimizer->options;
    if (own->job_key) return take_key(optimizer, own->job_key, error);
    if (!own->broadcast) {
        /* A job of one rank also has a key: if the registration is repeated, the server finds the
         * same job. */
        char key[HARPE_JOB_KEY_SIZE];
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

harpe_status harpe_pipeline_format_rank(harpe_pipeline *optimizer, harpe_error *error) {
    const harpe_pipeline_frequency_options *own = &optimizer->options;
    harpe_rank_info rank = {.rank = own->rank,
                            .dp_rank = own->dp_rank,
                            .pp_rank = own->pp_rank,
                            .tp_rank = own->tp_rank,
                            .available_frequencies_mhz = optimizer->clocks_mhz,
                            .available_frequency_count = optimizer->clock_count};
    return harpe_rank_info_format(&rank, &optimizer->rank_body, error);
}
