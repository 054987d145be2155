/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest program that uses an installed libharpe: includes every header, calls the library
 * and compares versions. Built by install.sh through pkg-config and through find_package. */
#include <stdio.h>
#include <string.h>

#include <harpe/plan.h>
#include <harpe/profile.h>
#include <harpe/schedule.h>
#include <harpe/version.h>

int main(void) {
    if (strcmp(harpe_version(), HARPE_VERSION_STRING) != 0) {
        fprintf(stderr, "header %s, library %s\n", HARPE_VERSION_STRING, harpe_version());
        return 1;
    }
    return puts(harpe_version()) < 0;
}
