/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the fonts that belong to the program. The wheel has them in its own directories; Debian's
 * package depends on the system's. */
#include "draw/fonts.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void harpe_fonts_prepare(void) {
    static bool is_done;
    char program[4096];
    if (is_done) return;
    is_done = true;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return;
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash) return;
    *slash = '\0';
    char path[sizeof program + 64];
    snprintf(path, sizeof path, "%s/../share/harpe/fonts/fonts.conf", program);
    if (access(path, R_OK) == 0) (void)setenv("FONTCONFIG_FILE", path, 0);
}
