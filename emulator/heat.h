/* SPDX-License-Identifier: Apache-2.0 */
/* The temperature of an emulated GPU, and what depends on it. While the power is constant, the
 * temperature approaches its final value exponentially. Leakage, times and thermal limits follow
 * the temperature in whole degrees, as the GPU's own sensor shows it. So they are constant between
 * two events, like everything else. The number of degrees changes when the temperature reaches the
 * next whole degree; it does not change back before the temperature has fallen by a whole degree.
 */
#ifndef HARPE_EMULATOR_HEAT_H
#define HARPE_EMULATOR_HEAT_H

#include "physics.h"

/* Returns true if something depends on the temperature. */
bool emulator_heat_matters(const emulator_effects *effects);
/* Returns the temperature that the GPU reaches at a constant power. */
double emulator_final_c(const emulator_chip *chip, double power_w);
/* Returns the temperature `span_s` later at a constant power. */
double emulator_temperature_c(const emulator_chip *chip, double from_c, double power_w,
                              double span_s);
/* Returns the seconds until the number of degrees changes at a constant power, or INFINITY. */
double emulator_next_degree_s(const emulator_state *state, const emulator_chip *chip,
                              double power_w);
/* Returns true if the number of degrees can change within `span_s` at a constant power. It takes no
 * logarithm. */
bool emulator_degree_is_near(const emulator_state *state, const emulator_chip *chip, double power_w,
                             double span_s);
/* Sets the number of degrees, and what depends on it alone. */
void emulator_set_degrees(emulator_state *state, const emulator_chip *chip, int32_t degrees_c);
/* Corrects the number of degrees after the temperature has changed. */
void emulator_count_degrees(emulator_state *state, const emulator_chip *chip);

/* Returns the power by which the GPU's leakage differs from that of its model at reference_c.
 * `static_w` is the static power in the present activity. */
double emulator_leakage_w(const emulator_state *state, const emulator_chip *chip, double static_w);
/* Returns the factor of the time of work at the present temperature. */
double emulator_drift(const emulator_state *state, const emulator_chip *chip);
/* Returns the number of steps by which a thermal limit lowers the clock. `*is_slowdown` is set if
 * the clock is halved. */
unsigned int emulator_thermal_steps(const emulator_state *state, const emulator_chip *chip,
                                    bool *is_slowdown);

#endif
