/* SPDX-License-Identifier: Apache-2.0 */
/* The process of the guard of power limits. */
#ifndef HARPE_POWERLIMIT_GUARD_PROCESS_H
#define HARPE_POWERLIMIT_GUARD_PROCESS_H

/* Runs the guard process and returns its exit code. */
int harpe_power_limit_guard_main(int argc, char **argv);

#endif
