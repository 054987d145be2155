/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of the synthetic GPUs, for programs that emulate them. */
#ifndef HARPE_PLAN_SYNTH_H
#define HARPE_PLAN_SYNTH_H

#include <stdbool.h>

/* True if this is one of the model's graphics clocks. False for an unknown model. */
bool harpe_synth_offers_clock(const char *model_name, int frequency_mhz);

#endif
