/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the server: one table of names, defaults and checks. Values come from the defaults,
 * then the environment (PERSEUS_NAME, then ZEUS_PFO_NAME, then HARPE_PFO_NAME), then a
 * configuration file, then flags. A later source overrides an earlier source. Not thread-safe while
 * values are read. */
#ifndef HARPE_PFO_SETTINGS_H
#define HARPE_PFO_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/callback.h>
#include <harpe/status.h>

/* The source of a value, for --print-settings and messages. */
typedef enum harpe_settings_origin {
    HARPE_FROM_DEFAULT,
    HARPE_FROM_ENVIRONMENT,
    HARPE_FROM_FILE,
    HARPE_FROM_FLAG,
} harpe_settings_origin;

enum { HARPE_SETTINGS_MAX = 40 };

/* Values of settings. They own their texts. A text that is not set is "". The comments give the
 * defaults. */
typedef struct harpe_settings {
    /* The settings of the published server. */
    char *scheduler; /* a name, a path, python:... or program:...; Perseus, or PointSolution if the
                        arguments name a plan (harpe_settings_complete) */
    char *scheduler_args;        /* a JSON object; {} */
    harpe_log_level log_level;   /* debug, info, warning, error, critical in any case; info */
    bool dump_data;              /* true if dump_dir is set, otherwise false */
    char *dump_dir;              /* STATE_DIR/dump */
    int64_t max_job_idle_time_s; /* 604800 */

    /* Settings that only Harpe has. */
    int64_t max_dump_size_bytes;     /* on disk; 1 GiB */
    int64_t max_dump_time_s;         /* 7776000: 90 days */
    int64_t max_finished_jobs;       /* 1000 */
    int64_t max_finished_job_time_s; /* 7776000: 90 days */
    char *listen;                    /* 127.0.0.1 */
    int port;                        /* 7787; 0: any free port */
    char *state_dir;                 /* directory of store and dump_dir, unless these are set */
    char *store; /* a file, "sqlite:FILE", "postgresql://..." or "memory"; STATE_DIR/harpe.db */
    char *store_password_file; /* a file whose first line is the password for PostgreSQL */
    char *token_file;          /* a file whose first line is the bearer token */
    char *tokens; /* a file of tokens with names, roles and groups (src/rights/tokens.h) */
    char
        *audit_log; /* a file for records of requests that steer; STATE_DIR/audit.log with tokens */
    char *tls_cert, *tls_key;
    char *log_file;               /* "": standard error */
    char *allowed_hosts;          /* further host names that are accepted; "a,.b.example" */
    bool insecure;                /* serve every client that reaches the address, without a token */
    int64_t scheduler_timeout_s;  /* time for an answer of a scheduler program; 60 */
    int64_t max_body_bytes;       /* 64 MiB */
    int64_t max_header_bytes;     /* 16 KiB */
    int64_t max_jobs;             /* 10000 */
    int64_t max_ranks_per_job;    /* 65536 */
    int64_t max_connections;      /* 65536; lowered to the limit of the system */
    int64_t request_timeout_s;    /* time to receive a whole request; 30 */
    int64_t keep_alive_timeout_s; /* longest idle time between two requests; 300 */
    int worker_threads;           /* 0: number of processors, at least 2 */
    int scheduler_threads;        /* schedulers that may run at the same time; 64 */
    int64_t work_deadline_s;      /* time for decoding, a read or a dump; 30 */
    bool log_is_json;             /* log_format: text, or json (one object per line) */

    /* These are not settings. */
    bool follows_zeus; /* a variable of Zeus's server is set: its dump_data and log_level */
    /* The function returns `store` without its secrets, to be freed with
     * free(), or NULL when out of memory. If the pointer is NULL, only the scheme of `store` is
     * shown. */
    char *(*show_store)(const char *store);

    harpe_settings_origin origins[HARPE_SETTINGS_MAX]; /* in the order of harpe_settings_name_at */
} harpe_settings;

/* Sets all settings to their defaults. */
harpe_status harpe_settings_init(harpe_settings *settings, harpe_error *error);
void harpe_settings_free(harpe_settings *settings);

/* Sets one value by name, as a flag does. An error begins with `where` ("--port"). */
harpe_status harpe_settings_set(harpe_settings *settings, const char *name, const char *value,
                                harpe_settings_origin origin, const char *where,
                                harpe_error *error);
/* Fills in the defaults that depend on other settings or on the server's user. Call it once after
 * all sources. state_dir is $STATE_DIRECTORY (systemd's), $XDG_STATE_HOME/harpe, /var/lib/harpe
 * for root, or $HOME/.local/state/harpe for other users; without any of them it stays "". */
harpe_status harpe_settings_complete(harpe_settings *settings, const char *const *environment,
                                     bool is_root, harpe_error *error);
/* Returns true if any setting names a path below state_dir. */
bool harpe_settings_use_state_dir(const harpe_settings *settings);
/* Returns true if `listen` is a loopback address. */
bool harpe_settings_on_loopback(const harpe_settings *settings);
/* Returns true if clients need a token. */
bool harpe_settings_need_token(const harpe_settings *settings);
/* Returns true for a loopback address without token and without `insecure`. The server then serves
 * only its own user and root. */
bool harpe_settings_own_user_only(const harpe_settings *settings);
/* Checks the settings together. Refuses, for example, an address other than loopback without a
 * token file and without `insecure`, a TLS certificate without its key, a key without its
 * certificate, and scheduler_args that is not a JSON object. */
harpe_status harpe_settings_check(const harpe_settings *settings, harpe_error *error);

/* Returns NAME=value lines. A comment above each line describes the setting and names the source of
 * its value. harpe_settings_from_file can read the text. The text contains no secret: token_file is
 * a path, and show_store masks a password in `store`. The caller frees the text with free(); NULL
 * when out of memory. */
char *harpe_settings_format(const harpe_settings *settings);
/* Returns the same as a JSON object with names in lower case. */
char *harpe_settings_format_json(const harpe_settings *settings);

/* Returns the name of a setting, for help texts. Indices start at 0. Returns NULL after the last
 * setting. */
const char *harpe_settings_name_at(int index);
/* Returns how many bytes of an unknown setting's name a message may show, because the rest may be a
 * value. */
int harpe_settings_name_length(const char *name);

/* ---- Sources of values ----------------------------------------------------------------------- */

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
