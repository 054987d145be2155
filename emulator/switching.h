/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of the graphics clock that take time. A call that sets a clock blocks for a while. After
 * its return, the old clock holds until the transition is over. The GPU makes one transition after
 * another. While one is in progress, only the newest request waits, so requests that come faster
 * than the GPU follows are merged. The state contains the moments of all transitions, so it does
 * not matter who reads it when, or whether the process that asked is still alive. */
#ifndef HARPE_EMULATOR_SWITCHING_H
#define HARPE_EMULATOR_SWITCHING_H

#include "physics.h"

/* Returns true if calls that set clocks take time, or if the new clock comes late. */
bool emulator_switches_late(const emulator_chip *chip);

/* Asks for a range of clocks by a call that begins at `called_ns`, which may be in the past.
 * Returns the emulated seconds for which the call blocks. If the change of clock is in the past,
 * the work in flight is computed again. */
double emulator_request_clocks(emulator_state *state, const emulator_chip *chip,
                               emulator_clock_range wanted, int64_t called_ns);

#endif
