/* SPDX-License-Identifier: Apache-2.0 */
/* The version of this header and of its library. */
#ifndef HARPE_VERSION_H
#define HARPE_VERSION_H

#include <harpe/api.h>

HARPE_BEGIN_DECLS

#define HARPE_VERSION_MAJOR 0
#define HARPE_VERSION_MINOR 1
#define HARPE_VERSION_PATCH 0
#define HARPE_VERSION_STRING "0.1.0"

/* Returns the version of the loaded library, for example "0.1.0". Static storage. Any thread may
 * call it. */
HARPE_API const char *harpe_version(void);

HARPE_END_DECLS

#endif
