/* SPDX-License-Identifier: Apache-2.0 */
/* Starts zeusd's routes, and checks each change against the rules of the agent. */
#include "agent/zeusd_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "gpu/saved_settings.h"

enum {
    SHORTEST_KEY = 32,
    LARGEST_KEY = 65536,
    MOST_HELD = 128,
};

struct harpe_agent_zeusd {
    harpe_agent *agent;
    harpe_zeusd_settings *settings;
    harpe_zeusd_server *server;
    harpe_zeusd_ops inner; /* the functions of `settings` */
};

/* ---- Rules ----------------------------------------------------------------------------------- */

static harpe_status may_set(void *user, const harpe_zeusd_holder *holder, int gpu,
                            harpe_setting setting, harpe_error *error) {
    const harpe_agent_zeusd *zeusd = user;
    (void)gpu;
    (void)setting;
    if (holder->is_tcp || harpe_agent_policy_allows_zeusd(&zeusd->agent->policy, holder->uid))
        return HARPE_OK; /* a TCP client has sent a token with the scope gpu-control */
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "the node agent's rule zeusd_users does not name the user with uid %lu",
                      (unsigned long)holder->uid);
}

static harpe_lease_terms terms_of(const harpe_agent_zeusd *zeusd, int gpu) {
    return harpe_agent_policy_terms(&zeusd->agent->policy,
                                    harpe_gpu_info_at(zeusd->agent->gpus, gpu));
}

static harpe_default_locks default_locks(void *user, int gpu) { return terms_of(user, gpu).locks; }

/* A reset gives the GPU the lock of the administrator, if there is one. */
static harpe_status set(void *user, const harpe_zeusd_change *asked, harpe_error *error) {
    harpe_agent_zeusd *zeusd = user;
    harpe_lease_terms terms = terms_of(zeusd, asked->gpu);
    const harpe_default_locks *locks = &terms.locks;
    bool is_memory = asked->setting == HARPE_SET_MEMORY_CLOCKS;
    uint32_t minimum_mhz = is_memory ? locks->memory_minimum_mhz : locks->graphics_minimum_mhz;
    uint32_t maximum_mhz = is_memory ? locks->memory_maximum_mhz : locks->graphics_maximum_mhz;
    harpe_zeusd_change change = *asked;
    harpe_status status = HARPE_OK;
    if (asked->setting == HARPE_SET_POWER_LIMIT)
        status = harpe_lease_terms_check(&terms, asked->setting, asked->values[0], error);
    else if (asked->setting == HARPE_SET_GRAPHICS_CLOCKS && !asked->is_reset)
        status = harpe_lease_terms_check(&terms, asked->setting, asked->values[1], error);
    if (status != HARPE_OK) return status;
    if (change.is_reset && maximum_mhz > 0) {
        change.is_reset = false;
        change.values[0] = minimum_mhz;
        change.values[1] = maximum_mhz;
    }
    return zeusd->inner.set(zeusd->inner.user, &change, error);
}

/* ---- Holders --------------------------------------------------------------------------------- */

/* Copies the holders. Returns their number; at most MOST_HELD. */
static size_t list_holders(harpe_agent_zeusd *zeusd, harpe_zeusd_held held[MOST_HELD]) {
    size_t count = zeusd ? harpe_zeusd_settings_list(zeusd->settings, held, MOST_HELD) : 0;
    return count < MOST_HELD ? count : MOST_HELD;
}

harpe_status harpe_agent_zeusd_check_free(harpe_agent_zeusd *zeusd, int gpu,
                                          harpe_saved_settings_kind control, harpe_error *error) {
    harpe_zeusd_held held[MOST_HELD];
    size_t count = list_holders(zeusd, held);
    for (size_t i = 0; i < count; i++) {
        if (held[i].gpu != gpu || held[i].kind != control) continue;
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "GPU %d: its %s is set by process %ld (uid %lu) through zeusd's routes",
                          harpe_gpu_info_at(zeusd->agent->gpus, gpu)->driver_index,
                          control == HARPE_SAVED_CLOCKS ? "clock" : "power limit",
                          (long)held[i].process, (unsigned long)held[i].uid);
    }
    return HARPE_OK;
}

int harpe_agent_zeusd_end(harpe_agent_zeusd *zeusd, int gpu) {
    return zeusd ? harpe_zeusd_settings_end(zeusd->settings, gpu) : 0;
}

json_t *harpe_agent_zeusd_show(harpe_agent_zeusd *zeusd, int64_t user) {
    harpe_zeusd_held held[MOST_HELD];
    size_t count = list_holders(zeusd, held);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        char restores[160];
        if (user >= 0 && held[i].uid != user) continue;
        harpe_saved_settings_describe(&held[i].before, restores, sizeof restores);
        (void)json_array_append_new(
            list,
            json_pack("{s:i,s:s,s:s,s:s,s:i,s:I,s:s}", "gpu",
                      harpe_gpu_info_at(zeusd->agent->gpus, held[i].gpu)->driver_index, "uuid",
                      harpe_gpu_info_at(zeusd->agent->gpus, held[i].gpu)->uuid, "state",
                      held[i].is_ending ? "ending" : "held", "control",
                      harpe_saved_settings_kind_name(held[i].kind), "process", (int)held[i].process,
                      "uid", (json_int_t)held[i].uid, "restores", restores));
    }
    return list;
}

/* ---- Start and end --------------------------------------------------------------------------- */

/* Warns of a key that is easy to guess or that other users can read. */
static void warn_of_key(const harpe_agent_options *options, size_t length) {
    struct stat status;
    if (length < SHORTEST_KEY)
        harpe_log_line(&options->log, HARPE_LOG_WARNING,
                       "--zeusd-key: the key in '%s' has %zu bytes; RFC 7518 requires at least %d",
                       options->zeusd_key, length, SHORTEST_KEY);
    if (stat(options->zeusd_key, &status) == 0 && (status.st_mode & (S_IRGRP | S_IROTH)))
        harpe_log_line(&options->log, HARPE_LOG_WARNING,
                       "--zeusd-key: other users can read '%s': make its mode 600",
                       options->zeusd_key);
}

static harpe_status start_server(harpe_agent_zeusd *zeusd, harpe_error *error) {
    harpe_agent *agent = zeusd->agent;
    const harpe_agent_options *options = &agent->options;
    harpe_zeusd_options how = {.unix_socket = options->zeusd_socket,
                               .drop = harpe_agent_drop_socket,
                               .drop_user = agent,
                               .tcp_address = options->zeusd_address,
                               .tcp_port = options->zeusd_port,
                               .read_pool = HARPE_AGENT_READ_POOL,
                               .write_pool = HARPE_AGENT_WRITE_POOL,
                               .samples = agent->samples,
                               .log = options->log};
    harpe_zeusd_ops ops = {.may_set = may_set, .set = set, .user = zeusd};
    char *key = NULL;
    harpe_status status = HARPE_OK;
    if (options->zeusd_key) {
        status =
            harpe_file_read(options->zeusd_key, LARGEST_KEY, &key, &how.signing_key_length, error);
        how.signing_key = key;
    }
    if (key) warn_of_key(options, how.signing_key_length);
    if (status == HARPE_OK)
        status = harpe_zeusd_server_new(agent->loop, agent->workers, agent->gpus, &how, &ops,
                                        &zeusd->server, error);
    if (status == HARPE_OK && options->zeusd_address)
        harpe_log_line(&options->log, HARPE_LOG_INFO, "zeusd's routes: port %d of %s",
                       harpe_zeusd_server_port(zeusd->server), options->zeusd_address);
    if (key) explicit_bzero(key, how.signing_key_length);
    free(key);
    return status;
}

harpe_status harpe_agent_zeusd_start(harpe_agent *agent, harpe_error *error) {
    const harpe_agent_options *options = &agent->options;
    if (!options->zeusd_socket && !options->zeusd_address) return HARPE_OK;
    harpe_agent_zeusd *zeusd = harpe_calloc(1, sizeof *zeusd);
    if (!zeusd) return harpe_fail_memory(error);
    zeusd->agent = agent;
    harpe_zeusd_settings_options how = {.no_restore = options->zeusd_no_restore,
                                        .default_locks = default_locks,
                                        .user = zeusd,
                                        .pool = HARPE_AGENT_RESTORE_POOL,
                                        .log = options->log};
    harpe_status status = harpe_zeusd_settings_new(agent->loop, agent->workers, agent->gpus, &how,
                                                   &zeusd->settings, error);
    if (status == HARPE_OK) {
        zeusd->inner = harpe_zeusd_settings_ops(zeusd->settings);
        status = start_server(zeusd, error);
    }
    if (status == HARPE_OK)
        agent->zeusd = zeusd;
    else
        harpe_agent_zeusd_free(zeusd);
    return status;
}

void harpe_agent_zeusd_recover_after(harpe_agent_zeusd *zeusd, const harpe_saved_settings *state) {
    if (zeusd) harpe_zeusd_settings_recover_after(zeusd->settings, state);
}

void harpe_agent_zeusd_stop_accepting(harpe_agent_zeusd *zeusd) {
    if (zeusd) harpe_zeusd_server_stop_accepting(zeusd->server);
}

harpe_status harpe_agent_zeusd_put_back(harpe_agent_zeusd *zeusd, harpe_error *error) {
    return zeusd ? harpe_zeusd_settings_put_back(zeusd->settings, error) : HARPE_OK;
}

void harpe_agent_zeusd_free(harpe_agent_zeusd *zeusd) {
    if (!zeusd) return;
    harpe_zeusd_server_free(zeusd->server);
    harpe_zeusd_settings_free(zeusd->settings);
    free(zeusd);
}
