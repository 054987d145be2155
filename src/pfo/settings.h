/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the server: one table of names, defaults and checks, filled from defaults, then the
 * environment (PERSEUS_NAME, then ZEUS_PFO_NAME over it, then HARPE_NAME for those that only Harpe
 * has), then a configuration file, then flags. The later wins. Not thread-safe while being filled.
 */
#ifndef HARPE_PFO_SETTINGS_H
#define HARPE_PFO_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/callback.h>
#include <harpe/status.h>

/* Where a value came from, for --print-settings and messages. */
typedef enum harpe_settings_origin {
    HARPE_FROM_DEFAULT,
    HARPE_FROM_ENVIRONMENT,
    HARPE_FROM_FILE,
    HARPE_FROM_FLAG,
} harpe_settings_origin;

enum { HARPE_SETTINGS_MAX = 32 };

/* Texts are owned by the settings; "" where nothing is set. */
typedef struct harpe_settings {
    /* The published ones. */
    char *scheduler;             /* a name, a path, python: or program:; Perseus, or PointSolution
                                  * where its arguments name a plan (harpe_settings_complete) */
    char *scheduler_args;        /* a JSON object; {} */
    harpe_log_level log_level;   /* debug, info, warning, error, critical in any case; debug */
    bool dump_data;              /* true */
    char *dump_dir;              /* STATE_DIR/dump */
    int64_t max_job_idle_time_s; /* 604800 */

    /* Harpe's own. */
    char *listen;    /* 127.0.0.1 */
    int port;        /* 7787; 0: any free one */
    char *state_dir; /* where store and dump_dir are unless they are set */
    char *store;     /* a file, "sqlite:FILE", "postgresql://..." or "memory"; STATE_DIR/harpe.db */
    char *store_password_file; /* a file whose first line is the password for PostgreSQL */
    char *token_file;          /* a file whose first line is the bearer token */
    char *tls_cert, *tls_key;
    char *allowed_hosts;          /* names in Host beside those of the address; "a,.b.example" */
    bool insecure;                /* serve all who reach the address, without a token */
    int64_t scheduler_timeout_s;  /* an answer of a scheduler program; 60 */
    int64_t max_body_bytes;       /* 64 MiB */
    int64_t max_header_bytes;     /* 16 KiB */
    int64_t max_jobs;             /* 10000 */
    int64_t max_ranks_per_job;    /* 65536 */
    int64_t max_connections;      /* 65536; lowered to what the system allows */
    int64_t request_timeout_s;    /* to send a whole request; 30 */
    int64_t keep_alive_timeout_s; /* idle between requests; 300 */
    int worker_threads;           /* 0: number of processors, at least 2 */
    int scheduler_threads;        /* schedulers that run at a time; 64 */
    int64_t work_deadline_s;      /* of decoding, a read or a dump; 30 */
    bool log_is_json;             /* log_format: text, or json: an object a line */

    /* Returns `store` without its secrets, to be freed with free(), or NULL when out of memory.
     * This is not a setting. If the pointer is NULL, only the scheme is shown. */
    char *(*show_store)(const char *store);

    harpe_settings_origin origins[HARPE_SETTINGS_MAX]; /* in the order of harpe_settings_name_at */
} harpe_settings;

/* The defaults. */
harpe_status harpe_settings_init(harpe_settings *settings, harpe_error *error);
void harpe_settings_free(harpe_settings *settings);

/* `environment` is a NULL-terminated list of NAME=value (environ); names in any case. One with our
 * prefixes that is no setting gets a warning with the closest known one. */
harpe_status harpe_settings_from_environment(harpe_settings *settings,
                                             const char *const *environment, harpe_log log,
                                             harpe_error *error);
/* A file of NAME=value lines (names without prefix, in any case; lines that begin with # are
 * comments; values may be in single or double quotes). Errors have file:line. At most 1 MiB. */
harpe_status harpe_settings_from_file(harpe_settings *settings, const char *path,
                                      harpe_error *error);
harpe_status harpe_settings_from_text(harpe_settings *settings, const char *text, size_t length,
                                      const char *name, harpe_error *error);
/* One value by name, as a flag gives it; `where` ("--port") begins the message of a refusal. */
harpe_status harpe_settings_set(harpe_settings *settings, const char *name, const char *value,
                                harpe_settings_origin origin, const char *where,
                                harpe_error *error);
/* Fills in the defaults that depend on other settings or on who runs the server; to be called once
 * after all sources. state_dir is $STATE_DIRECTORY (systemd's), $XDG_STATE_HOME/harpe, for root
 * /var/lib/harpe, for others $HOME/.local/state/harpe; without any of them it stays "". */
harpe_status harpe_settings_complete(harpe_settings *settings, const char *const *environment,
                                     bool is_root, harpe_error *error);
/* True if anything is kept below state_dir. */
bool harpe_settings_use_state_dir(const harpe_settings *settings);
/* True if `listen` is a loopback address. */
bool harpe_settings_on_loopback(const harpe_settings *settings);
/* True for a loopback address without token and without `insecure`: then the server serves its own
 * user and root only. */
bool harpe_settings_own_user_only(const harpe_settings *settings);
/* What only all together can tell: an address without token, half a TLS pair, a scheduler_args
 * that is no object. */
harpe_status harpe_settings_check(const harpe_settings *settings, harpe_error *error);

/* NAME=value lines, each below a comment that says what it is and where the value came from;
 * harpe_settings_from_file reads them back. Holds no secret (token_file is a path; a password in
 * `store` is masked by show_store). To be freed with free(); NULL when out of memory. */
char *harpe_settings_format(const harpe_settings *settings);
/* The same as a JSON object, names in lower case. */
char *harpe_settings_format_json(const harpe_settings *settings);

/* Names, for help texts: index from 0, NULL past the last. */
const char *harpe_settings_name_at(int index);
const char *harpe_settings_help_at(int index);
/* How much of an unknown setting's name a message may show, because the rest may be a value. */
int harpe_settings_name_length(const char *name);

#endif
