/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the models: the first byte chooses one (j, r, s, p; any other: p). For any bytes, the
 * result is a list of problems that can be sent as an answer, or a model that does not change when
 * it is written and read again. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pfo/metadata.h"
#include "pfo/models.h"
#include "pfo/result_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_problems(harpe_problems *problems) {
    char *text = harpe_problems_format(problems);
    require(text && harpe_problems_count(problems) > 0);
    json_t *answer = json_loads(text, JSON_ALLOW_NUL, NULL);
    require(json_is_array(json_object_get(answer, "detail")));
    json_decref(answer);
    free(text);
    harpe_error error;
    require(harpe_problems_status(problems, &error) == HARPE_INVALID_INPUT);
    require(!strpbrk(error.message, "\n\r\x1B"));
    harpe_problems_free(problems);
}

/* Defines the check of a model: writing, reading and copying must keep all values. MODEL is the
 * model's name in function names, and TYPE is its struct. */
#define DEFINE_CHECK(MODEL, TYPE) \
    static void check_written_##MODEL(const TYPE *model) { \
        char *json = NULL; \
        char *again_json = NULL; \
        TYPE again = {0}; \
        TYPE copy = {0}; \
        require(harpe_##MODEL##_format(model, &json, NULL) == HARPE_OK); \
        require(harpe_##MODEL##_parse(json, strlen(json), &again, NULL) == HARPE_OK); \
        require(harpe_##MODEL##_copy(&again, &copy, NULL) == HARPE_OK); \
        harpe_##MODEL##_free(&again); \
        require(harpe_##MODEL##_format(&copy, &again_json, NULL) == HARPE_OK); \
        require(strcmp(json, again_json) == 0); \
        harpe_##MODEL##_free(&copy); \
        free(json); \
        free(again_json); \
    }

DEFINE_CHECK(job_info, harpe_job_info)
DEFINE_CHECK(rank_info, harpe_rank_info)
DEFINE_CHECK(frequency_schedule, harpe_frequency_schedule)
DEFINE_CHECK(profiling_result, harpe_profiling_result)

static void check_job(const char *text, size_t length) {
    harpe_problems problems = {0};
    harpe_job_info job = {0};
    if (!harpe_job_info_decode(text, length, &job, &problems)) {
        require(!job.job_id);
        check_problems(&problems);
        return;
    }
    require(job.pp_degree >= 1 && job.dp_degree >= 1 && job.tp_degree >= 1);
    require((int64_t)job.pp_degree * job.dp_degree * job.tp_degree == job.world_size);
    char *id = harpe_job_id_make(&job, "S", 0, 2);
    require(id && harpe_job_id_is_valid(id));
    free(id);
    check_written_job_info(&job);
    harpe_job_info_free(&job);
}

static void check_rank(const char *text, size_t length) {
    harpe_problems problems = {0};
    harpe_rank_info rank = {0};
    if (!harpe_rank_info_decode(text, length, &rank, &problems)) {
        require(!rank.available_frequencies_mhz);
        check_problems(&problems);
        return;
    }
    require(rank.rank >= 0 && rank.dp_rank >= 0 && rank.pp_rank >= 0 && rank.tp_rank >= 0);
    check_written_rank_info(&rank);
    harpe_rank_info_free(&rank);
}

static void check_schedule(const char *text, size_t length) {
    harpe_frequency_schedule schedule = {0};
    harpe_error error;
    if (harpe_frequency_schedule_parse(text, length, &schedule, &error) != HARPE_OK) {
        require(error.status == HARPE_INVALID_INPUT && !schedule.instructions);
        require(!strpbrk(error.message, "\n\r\x1B"));
        return;
    }
    check_written_frequency_schedule(&schedule);
    harpe_frequency_schedule_free(&schedule);
}

static void check_breakdowns(const harpe_breakdown *breakdowns, size_t count) {
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < breakdowns[i].iteration_count; k++) {
            const double *values = breakdowns[i].values + breakdowns[i].offsets[k];
            for (size_t n = 0; n < breakdowns[i].counts[k]; n++)
                require(isfinite(values[n]));
        }
    }
}

/* A known conduct is possible, and does not change when it is written and read again. */
static void check_conduct(const char *text, size_t length) {
    harpe_conduct conduct = harpe_conduct_read(text, length);
    require(conduct.is_known || conduct.steps == 0);
    require(conduct.as_planned <= conduct.steps && conduct.misfits_measured <= conduct.misfits);
    require(isfinite(conduct.counter_j) && conduct.counter_j >= 0);
    char *json = strdup("{\"rank\":0,\"iter_time\":[],\"iter_energy\":[]}");
    require(json && harpe_conduct_append(&conduct, &json, NULL) == HARPE_OK);
    harpe_conduct again = harpe_conduct_read(json, strlen(json));
    require(again.is_known && again.steps == conduct.steps && again.left_out == conduct.left_out &&
            again.counter_j == conduct.counter_j);
    free(json);
}

static void check_result(const char *text, size_t length) {
    check_conduct(text, length);
    harpe_problems problems = {0};
    harpe_profiling_result result = {0};
    int rank = -1;
    bool is_plain = harpe_profiling_result_scan(text, length, &rank);
    if (!harpe_profiling_result_decode(text, length, &result, &problems)) {
        require(!is_plain);
        require(!result.iteration_time_s);
        check_problems(&problems);
        return;
    }
    require(!is_plain || result.rank == rank);
    check_breakdowns(result.time_breakdown, result.time_breakdown_count);
    check_breakdowns(result.energy_breakdown, result.energy_breakdown_count);
    check_written_profiling_result(&result);
    harpe_profiling_result_free(&result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    switch (data[0]) {
    case 'j': check_job(text, size - 1); break;
    case 'r': check_rank(text, size - 1); break;
    case 's': check_schedule(text, size - 1); break;
    default: check_result(text, size - 1); break;
    }
    return 0;
}
