/* SPDX-License-Identifier: Apache-2.0 */
/* What the made-up GPUs offer, for programs that emulate them. */
#ifndef HARPE_PLAN_SYNTH_H
#define HARPE_PLAN_SYNTH_H

#include <stdbool.h>

/* Is this one of the model's graphics clocks? False for a model that is not known. */
bool harpe_synth_offers_clock(const char *model_name, int frequency_mhz);

#endif
