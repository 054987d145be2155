/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a job as JSON: how far its figures can be trusted. */
#ifndef HARPE_SERVER_ENGINE_JOB_REPORT_H
#define HARPE_SERVER_ENGINE_JOB_REPORT_H

#include "base/text.h"
#include "server/engine/job_state.h"

/* Appends a JSON object. */
void harpe_job_append_report(harpe_text *text, const harpe_job *job);

#endif
