/* SPDX-License-Identifier: Apache-2.0 */
/* Reads settings from the environment and from files. */
#ifndef HARPE_PFO_SETTINGS_SOURCES_H
#define HARPE_PFO_SETTINGS_SOURCES_H

#include <stddef.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "pfo/settings.h"

/* Reads `environment`, a NULL-terminated list of NAME=value (environ); names may be in upper or
 * lower case. If a name has one of the prefixes but is not a setting, a warning is logged and the
 * variable is ignored. */
harpe_status harpe_settings_from_environment(harpe_settings *settings,
                                             const char *const *environment, harpe_log log,
                                             harpe_error *error);
/* Reads a file of NAME=value lines. Names have no prefix and may be in upper or lower case. Lines
 * that begin with # are comments. Values may be in single or double quotes. Errors contain
 * file:line. The file has at most 1 MiB. */
harpe_status harpe_settings_from_file(harpe_settings *settings, const char *path,
                                      harpe_error *error);
harpe_status harpe_settings_from_text(harpe_settings *settings, const char *text, size_t length,
                                      const char *name, harpe_error *error);
/* Reads the file named by the flag --config. In the form "-FILE", which systemd also uses, the
 * file may be missing. */
harpe_status harpe_settings_from_config(harpe_settings *settings, const char *path,
                                        harpe_error *error);

#endif
