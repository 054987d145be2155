/* SPDX-License-Identifier: Apache-2.0 */
/* The version of this build. */
#ifndef HARPE_BASE_VERSION_H
#define HARPE_BASE_VERSION_H

/* Returns the version that the programs print. In packages and wheels of a commit after a release,
 * this version grows with the commits (packaging/version.sh). In other builds it is
 * harpe_version().
 */
const char *harpe_build_version(void);

#endif
