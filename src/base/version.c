/* SPDX-License-Identifier: Apache-2.0 */
/* Contains the version of the library as built. A program compares this version with
 * HARPE_VERSION_STRING of its header, and so detects a libharpe for which it was not compiled. */
#include "base/version.h"

#include <harpe/version.h>

const char *harpe_version(void) { return HARPE_VERSION_STRING; }

const char *harpe_build_version(void) { return HARPE_BUILD_VERSION; }
