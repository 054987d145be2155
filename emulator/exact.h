/* SPDX-License-Identifier: Apache-2.0 */
/* Functions whose results are the same on every machine, because they only add, multiply and
 * divide. Those of the C library differ in the last digit between versions and processors, and
 * such a digit may decide when a work ends. */
#ifndef HARPE_EMULATOR_EXACT_H
#define HARPE_EMULATOR_EXACT_H

/* The exponential function, with a relative error below 1e-15, from -700 to 700. Below that it is
 * 0, and above infinite. */
double emulator_exp(double x);
/* The natural logarithm of a positive normal number, with an error below 1e-15 times the larger of
 * 1 and the result. */
double emulator_log(double x);

#endif
