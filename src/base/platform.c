/* SPDX-License-Identifier: Apache-2.0 */
#include "base/platform.h"

#include <sys/random.h>
#include <sys/types.h>

const harpe_platform *harpe_platform_in_use;

/* ---- Random numbers -------------------------------------------------------------------------- */

static bool draw(void *bytes, size_t size, unsigned flags) {
    if (!harpe_platform_in_use) return getrandom(bytes, size, flags) == (ssize_t)size;
    harpe_platform_in_use->random(bytes, size);
    return true;
}

bool harpe_random(void *bytes, size_t size) { return draw(bytes, size, 0); }

bool harpe_random_now(void *bytes, size_t size) { return draw(bytes, size, GRND_NONBLOCK); }
