/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes models from request bodies, lists every invalid field, and checks that models fit their
 * job. harpe/pfo.h is the public part. May be called on any thread. */
#ifndef HARPE_PFO_MODELS_H
#define HARPE_PFO_MODELS_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/pfo.h>

#include "base/text.h"
#include "pfo/fields.h"

/* Each function decodes a request body with at most 64 levels. On success it fills `*out` and
 * returns true. On failure it returns false, leaves `*out` unchanged, and adds problems whose
 * locations begin with "body". */
bool harpe_job_info_decode(const char *body, size_t length, harpe_job_info *out,
                           harpe_problems *problems);
bool harpe_rank_info_decode(const char *body, size_t length, harpe_rank_info *out,
                            harpe_problems *problems);
bool harpe_profiling_result_decode(const char *body, size_t length, harpe_profiling_result *out,
                                   harpe_problems *problems);

/* Returns true if `rank` is possible in `job`: the rank is below the world size, and each
 * coordinate is below its degree. Otherwise adds a problem of type assertion_error. */
bool harpe_rank_info_fits(const harpe_rank_info *rank, const harpe_job_info *job,
                          harpe_problems *problems);
/* Returns true if `a` and `b` are equal, including the order of their frequencies. */
bool harpe_rank_info_equal(const harpe_rank_info *a, const harpe_rank_info *b);

/* Appends what harpe_ranks_save writes. */
void harpe_ranks_format(const harpe_rank_info *ranks, size_t count, harpe_text *text);

/* Returns the JSON schemas of the models that clients send and receive, by name, as OpenAPI has
 * them. The caller frees them with json_decref. */
json_t *harpe_model_schemas(void);

#endif
