/* SPDX-License-Identifier: Apache-2.0 */
/* The version of the library as built. A program compares it with the header's
 * HARPE_VERSION_STRING to notice that it runs with another libharpe than it was compiled for. */
#include <harpe/version.h>

const char *harpe_version(void) { return HARPE_VERSION_STRING; }
