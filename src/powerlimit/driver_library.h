/* SPDX-License-Identifier: Apache-2.0 */
/* Which driver library this process reaches a GPU through, so that the guard, another process, can
 * open the same. Private to src/powerlimit. */
#ifndef HARPE_POWERLIMIT_DRIVER_LIBRARY_H
#define HARPE_POWERLIMIT_DRIVER_LIBRARY_H

#include <limits.h>

/* The path of the library, loaded and started in this process, that knows the GPU of this UUID, or
 * "" when none is found: then the usual search must do. */
void harpe_driver_library_of(const char *uuid, char path[PATH_MAX]);

#endif
