/* SPDX-License-Identifier: Apache-2.0 */
/* Contains the version of the library as built. A program compares this version with
 * HARPE_VERSION_STRING of its header, and so detects a libharpe for which it was not compiled. */
#include <harpe/version.h>

const char *harpe_version(void) { return HARPE_VERSION_STRING; }
