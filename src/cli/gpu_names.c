/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a user's name of a GPU into a GPU. When a GPU is lost, the GPUs after it get lower numbers
 * in every process that starts later. So a number is refused if a GPU before the one that it means
 * is lost, or is new. */
#include <strings.h>

#include <harpe/profile.h>

#include "cli/cli.h"
#include "gpu/gpus.h"
#include "gpu/visible.h"
#include "lease/lease.h"

enum { ANSWER_MS = 10000 };

/* ---- The agent's GPUs ------------------------------------------------------------------------ */

harpe_status harpe_gpu_names_ask_status(const char *socket, int limit_ms, json_t **answer,
                                        harpe_error *error) {
    json_t *request = json_pack("{s:i,s:s}", "version", HARPE_LEASE_VERSION, "request", "status");
    return harpe_lease_ask(socket, request, limit_ms, answer, error);
}

harpe_gpu_names harpe_gpu_names_ask(const harpe_gpus *gpus, const char *socket) {
    harpe_gpu_names names = {.gpus = gpus};
    char path[HARPE_LEASE_SOCKET_SIZE];
    json_t *answer = NULL;
    if (!socket && !harpe_lease_find_agent(gpus, path)) return names;
    if (harpe_gpu_names_ask_status(socket ? socket : path, ANSWER_MS, &answer, NULL) == HARPE_OK)
        names.lent = json_incref(json_object_get(answer, "gpus"));
    json_decref(answer);
    return names;
}

void harpe_gpu_names_free(harpe_gpu_names *names) {
    json_decref(names->lent);
    names->lent = NULL;
}

static const char *uuid_of(const json_t *lent) {
    const char *uuid = json_string_value(json_object_get(lent, "uuid"));
    return uuid ? uuid : "";
}

const json_t *harpe_gpu_names_lent(const json_t *list, const char *uuid) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(uuid_of(json_array_get(list, i)), uuid) == 0) return json_array_get(list, i);
    return NULL;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

bool harpe_gpu_name_is_number(const char *name) {
    return *name && name[strspn(name, "0123456789")] == '\0';
}

bool harpe_gpu_name_means(const char *name, const char *uuid, const char *pci_bus_id) {
    return strcasecmp(name, uuid) == 0 || harpe_pci_address_matches(name, pci_bus_id);
}

int harpe_gpu_number_of(const harpe_gpus *gpus, const char *uuid) {
    for (int gpu = 0; gpus && gpu < harpe_gpus_count(gpus); gpu++)
        if (strcmp(harpe_gpu_info_at(gpus, gpu)->uuid, uuid) == 0) return gpu;
    return -1;
}

/* Writes what has changed before this GPU, such that its number was another one. Returns false if
 * nothing has. */
static bool has_moved(const harpe_gpu_names *names, int gpu, char *what, size_t size) {
    const harpe_gpu_info *info = harpe_gpu_info_at(names->gpus, gpu);
    int lost = harpe_gpus_first_lost(names->gpus);
    if (lost < info->driver_index) {
        (void)snprintf(what, size, "the driver's GPU %d is lost", lost);
        return true;
    }
    bool is_lent = harpe_gpu_names_lent(names->lent, info->uuid);
    for (size_t i = 0; is_lent && i < json_array_size(names->lent); i++) {
        const json_t *before = json_array_get(names->lent, i);
        if (strcmp(uuid_of(before), info->uuid) == 0) break;
        if (!json_is_true(json_object_get(before, "was_lost"))) continue;
        (void)snprintf(what, size, "%.95s was lost", uuid_of(before));
        return true;
    }
    for (int before = 0; names->lent && before < gpu; before++) {
        const char *uuid = harpe_gpu_info_at(names->gpus, before)->uuid;
        if (harpe_gpu_names_lent(names->lent, uuid)) continue;
        (void)snprintf(what, size, "the node agent, which started earlier, has not seen %.95s",
                       uuid);
        return true;
    }
    return false;
}

/* ---- Names ----------------------------------------------------------------------------------- */

static harpe_status find_number(const harpe_gpu_names *names, const char *flag, const char *name,
                                int *gpu, harpe_error *error) {
    int count = names->gpus ? harpe_gpus_count(names->gpus) : 0;
    char what[192];
    int64_t number = INT64_MAX;
    (void)harpe_parse_int(name, strlen(name), &number);
    if (number >= count)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%s: there is no GPU %.20s; this process sees %d", flag, name, count);
    if (has_moved(names, (int)number, what, sizeof what)) {
        const harpe_gpu_info *info = harpe_gpu_info_at(names->gpus, (int)number);
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%s: the number %s may have meant another GPU before, because %s; it is "
                          "now the GPU at %s: name the GPU that you mean by its UUID, here %s %s",
                          flag, name, what, info->pci_bus_id, flag, info->uuid);
    }
    *gpu = (int)number;
    return HARPE_OK;
}

harpe_status harpe_gpu_names_find(const harpe_gpu_names *names, const char *flag, const char *name,
                                  int *gpu, harpe_error *error) {
    if (harpe_gpu_name_is_number(name)) return find_number(names, flag, name, gpu, error);
    for (int i = 0; names->gpus && i < harpe_gpus_count(names->gpus); i++) {
        const harpe_gpu_info *info = harpe_gpu_info_at(names->gpus, i);
        if (!harpe_gpu_name_means(name, info->uuid, info->pci_bus_id)) continue;
        *gpu = i;
        return HARPE_OK;
    }
    bool is_mig = strncmp(name, "MIG-", 4) == 0;
    return harpe_fail(
        error, HARPE_INVALID_ARGUMENT, "%s: %s '%.100s'%s", flag,
        is_mig ? "a GPU is meant, and not the MIG instance" : "this process sees no GPU", name,
        is_mig ? ", which has no clocks or power limit of its own"
               : " (a number, a UUID or a PCI address, as harpe gpus shows them)");
}

void harpe_gpu_models_help(harpe_text *text) {
    harpe_text_printf(text, "GPU models:");
    for (const char *const *model = harpe_synth_gpu_models(); *model; model++)
        harpe_text_printf(text, " %s", *model);
}

void harpe_gpu_model_read(void *into, struct argp_state *state, const char *flag, char *text) {
    const char *const *models = harpe_synth_gpu_models();
    *(const char **)into = models[harpe_flag_choice(state, flag, text, models)];
}
