/* SPDX-License-Identifier: Apache-2.0 */
/* The version of this header and of the library it came with. */
#ifndef HARPE_VERSION_H
#define HARPE_VERSION_H

#include <harpe/api.h>

HARPE_BEGIN_DECLS

#define HARPE_VERSION_MAJOR 0
#define HARPE_VERSION_MINOR 1
#define HARPE_VERSION_PATCH 0
#define HARPE_VERSION_STRING "0.1.0"

/* The version of the library that is loaded, for example "0.1.0". Static storage; any thread. */
HARPE_API const char *harpe_version(void);

HARPE_END_DECLS

#endif
