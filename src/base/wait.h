/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeps. */
#ifndef HARPE_BASE_WAIT_H
#define HARPE_BASE_WAIT_H

#include <stdint.h>

/* Sleeps for a time. A signal handler ends the sleep early. */
void harpe_sleep_ns(int64_t duration_ns);

/* Sleeps until harpe_clock_ns() has reached a time. Continues after a signal handler. */
void harpe_sleep_until(int64_t until_ns);

#endif
