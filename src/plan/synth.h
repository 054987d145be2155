/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of the synthetic GPUs, for programs that emulate them. */
#ifndef HARPE_PLAN_SYNTH_H
#define HARPE_PLAN_SYNTH_H

#include <stdbool.h>

/* Returns true if the frequency is one of the graphics clocks of the model. Returns false for an
 * unknown model. */
bool harpe_synth_offers_clock(const char *model_name, int frequency_mhz);

#endif
