/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the fonts that belong to the program. The wheel has them in its own directories; Debian's
 * package depends on the system's. */
#include "draw/fonts.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file_internal.h"

void harpe_fonts_prepare(void) {
    static bool is_done;
    if (is_done) return;
    is_done = true;
    char *program = realpath("/proc/self/exe", NULL);
    char *directory = program ? harpe_path_parent(program) : NULL;
    char *path =
        directory ? harpe_path_join(directory, "/", "../share/harpe/fonts/fonts.conf") : NULL;
    if (path && access(path, R_OK) == 0) (void)setenv("FONTCONFIG_FILE", path, 0);
    free(path);
    free(directory);
    free(program);
}
