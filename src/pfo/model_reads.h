/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that read a model from an object of a JSON tree, and functions that append a model to a
 * text. The code for single models and for the lists in files uses them. Private to src/pfo. */
#ifndef HARPE_PFO_MODEL_READS_H
#define HARPE_PFO_MODEL_READS_H

#include "base/text.h"
#include "pfo/fields.h"

/* All are harpe_model_read. */
void harpe_rank_info_read(harpe_fields *fields, size_t object, const harpe_place *place, void *out);
void harpe_frequency_schedule_read(harpe_fields *fields, size_t object, const harpe_place *place,
                                   void *out);
void harpe_profiling_result_read(harpe_fields *fields, size_t object, const harpe_place *place,
                                 void *out);
void harpe_offline_profiling_result_read(harpe_fields *fields, size_t object,
                                         const harpe_place *place, void *out);

void harpe_rank_info_write(harpe_text *text, const void *model);
void harpe_frequency_schedule_write(harpe_text *text, const void *model);
void harpe_profiling_result_write(harpe_text *text, const void *model);
void harpe_offline_profiling_result_write(harpe_text *text, const void *model);

#endif
