/* SPDX-License-Identifier: Apache-2.0 */
/* Writes plans of replicas as plan files, with one list for each GPU. */
#include <harpe/replicas.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

static void append_gpu(harpe_text *text, const harpe_replica_plans *plans, int replica, int rank,
                       int peer) {
    size_t count = 0;
    const int *mhz = harpe_replica_plans_frequencies(plans, replica, rank, peer, &count);
    harpe_text_printf(text, "[");
    for (size_t i = 0; i < count; i++)
        harpe_text_printf(text, "%s('%s', %d)", i > 0 ? ", " : "",
                          harpe_replica_plans_instruction_name(plans, rank, i), mhz[i]);
    harpe_text_printf(text, "],\n");
}

static void append_replica(harpe_text *text, const harpe_replica_plans *plans, int replica) {
    harpe_replica_job job = harpe_replica_plans_job(plans);
    for (int rank = 0; rank < job.rank_count; rank++)
        for (int peer = 0; peer < job.peer_count; peer++)
            append_gpu(text, plans, replica, rank, peer);
}

static harpe_status write_replicas(const harpe_replica_plans *plans, int first, int end,
                                   const char *path, harpe_error *error) {
    harpe_text text = {0};
    harpe_text_printf(&text, "[\n");
    for (int replica = first; replica < end; replica++)
        append_replica(&text, plans, replica);
    harpe_text_printf(&text, "]\n");
    harpe_status status = text.failed
                              ? harpe_fail_memory(error)
                              : harpe_file_write_one_of_many(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}

harpe_status harpe_replica_plans_write(const harpe_replica_plans *plans, const char *path,
                                       harpe_error *error) {
    return write_replicas(plans, 0, harpe_replica_plans_job(plans).replica_count, path, error);
}

harpe_status harpe_replica_plans_write_one(const harpe_replica_plans *plans, int replica,
                                           const char *path, harpe_error *error) {
    if (!harpe_replica_plans_at(plans, replica))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "there is no replica %d", replica);
    return write_replicas(plans, replica, replica + 1, path, error);
}
