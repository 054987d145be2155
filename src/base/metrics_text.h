/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus' text format: the parts of /metrics. A metric is a head followed by its samples. A
 * sample is "NAME{LABEL="VALUE",...} NUMBER". */
#ifndef HARPE_BASE_METRICS_TEXT_H
#define HARPE_BASE_METRICS_TEXT_H

#include "base/text.h"

#define HARPE_METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Appends the lines HELP and TYPE. `type` is "counter", "gauge" or "histogram". */
void harpe_metrics_text_head(harpe_text *text, const char *name, const char *type,
                             const char *help);
/* Appends NAME="VALUE". Escapes quotes, backslashes and line ends, and replaces bytes that are not
 * UTF-8, because Prometheus refuses a whole page with such a byte. */
void harpe_metrics_text_label(harpe_text *text, const char *name, const char *value);
/* Appends a space, the number and a line end. The number may be infinite. */
void harpe_metrics_text_value(harpe_text *text, double value);

#endif
