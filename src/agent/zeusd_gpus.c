/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes GPUs for requests. Each GPU has one piece of work for reads and one for writes,
 * so a GPU whose driver call hangs occupies at most one thread of each pool. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/zeusd_internal.h"
#include "base/clock.h"
#include "base/log.h"

#define TELL_NS INT64_C(1000000000) /* between two log lines about failed writes of one GPU */
#define LOOK_AGAIN_NS INT64_C(1000000000)

harpe_zeusd_gpu *harpe_zeusd_gpu_find(harpe_zeusd_server *server, uint64_t id) {
    for (size_t i = 0; i < server->gpu_count; i++)
        if ((uint64_t)server->gpu[i].id == id) return &server->gpu[i];
    return NULL;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* On a worker. */
static void read_gpu(void *user) {
    harpe_zeusd_gpu *gpu = user;
    harpe_gpus *gpus = gpu->server->gpus;
    harpe_zeusd_result *out = &gpu->read_result;
    uint32_t one = 0, other = 0;
    bool is_on = false;
    *out = (harpe_zeusd_result){.status = HARPE_OK};
    switch (gpu->reads) {
    case HARPE_ZEUSD_READ_ENERGY:
        out->status =
            harpe_counter_read_energy(&gpu->counter, gpus, gpu->gpu, &out->values[0], &out->error);
        return;
    case HARPE_ZEUSD_READ_POWER:
        out->status = harpe_gpu_instant_power(gpus, gpu->gpu, &one, &out->error);
        break;
    case HARPE_ZEUSD_READ_LIMIT:
        out->status = harpe_gpu_power_limit(gpus, gpu->gpu, &one, &out->error);
        break;
    case HARPE_ZEUSD_READ_CONSTRAINTS:
        out->status = harpe_gpu_power_limit_range(gpus, gpu->gpu, &one, &other, &out->error);
        break;
    default:
        out->status = harpe_gpu_persistence_mode(gpus, gpu->gpu, &is_on, &out->error);
        one = is_on;
        break;
    }
    out->values[0] = one;
    out->values[1] = other;
}

static void end_reading(void *user) {
    harpe_zeusd_gpu *gpu = user;
    const harpe_zeusd_result *result = &gpu->read_result;
    gpu->is_reading = false;
    if (gpu->server->is_ending) return;
    for (harpe_zeusd_part *part; (part = gpu->being_read.first);)
        harpe_zeusd_part_end(part, result->status, &result->error, result->values);
    if (gpu->polls && result->status == HARPE_OK)
        harpe_zeusd_streams_gpu(gpu, (uint32_t)result->values[0]);
    gpu->polls = false;
    harpe_zeusd_gpu_read(gpu);
}

/* Returns the next kind of reading for which a request waits, or HARPE_ZEUSD_READS if there is
 * none. The kinds take turns. */
static harpe_zeusd_read next_read(const harpe_zeusd_gpu *gpu) {
    for (int step = 1; step <= HARPE_ZEUSD_READS; step++) {
        harpe_zeusd_read read = (harpe_zeusd_read)(((int)gpu->reads + step) % HARPE_ZEUSD_READS);
        bool is_polled = read == HARPE_ZEUSD_READ_POWER && gpu->is_polled;
        if (gpu->waiting[read].first || is_polled) return read;
    }
    return HARPE_ZEUSD_READS;
}

void harpe_zeusd_gpu_read(harpe_zeusd_gpu *gpu) {
    harpe_zeusd_read read = next_read(gpu);
    if (gpu->is_reading || gpu->server->is_ending || read == HARPE_ZEUSD_READS) return;
    gpu->is_reading = true;
    gpu->reads = read;
    harpe_zeusd_parts_move(&gpu->waiting[read], &gpu->being_read);
    if (read == HARPE_ZEUSD_READ_POWER) {
        gpu->polls = gpu->is_polled;
        gpu->is_polled = false;
    }
    gpu->read_work = (harpe_work){.work = read_gpu,
                                  .done = end_reading,
                                  .user = gpu,
                                  .pool = gpu->server->options.read_pool,
                                  .subject = gpu->subject};
    harpe_workers_submit(gpu->server->workers, &gpu->read_work);
}

/* ---- Clients --------------------------------------------------------------------------------- */

harpe_zeusd_client *harpe_zeusd_client_new(const harpe_zeusd_transport *transport,
                                           const harpe_http_request *request,
                                           const harpe_zeusd_claims *claims) {
    harpe_zeusd_client *client = calloc(1, sizeof *client);
    harpe_http_peer peer;
    if (!client) return NULL;
    client->uses = 1;
    client->holder = (harpe_zeusd_holder){.is_tcp = transport->is_tcp, .pidfd = -1};
    if (claims) {
        memcpy(client->subject, claims->subject, sizeof client->subject);
        client->holder.subject = client->subject;
    }
    if (!transport->is_tcp && harpe_http_peer_of(request, &peer)) {
        client->holder.process = peer.process;
        client->holder.uid = peer.uid;
        client->holder.gid = peer.gid;
        client->holder.pidfd = harpe_http_peer_pidfd(request);
    }
    return client;
}

void harpe_zeusd_client_leave(harpe_zeusd_client *client) {
    if (!client || --client->uses > 0) return;
    if (client->holder.pidfd >= 0) close(client->holder.pidfd);
    free(client);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* On a worker. */
static void write_gpu(void *user) {
    harpe_zeusd_gpu *gpu = user;
    const harpe_zeusd_ops *ops = &gpu->server->ops;
    const harpe_zeusd_write *write = &gpu->being_written;
    const harpe_zeusd_holder *holder = &write->client->holder;
    harpe_error *error = &gpu->write_error;
    harpe_status status;
    switch (gpu->writes) {
    case HARPE_ZEUSD_PERSISTENCE:
        status = ops->set_persistence(ops->user, holder, gpu->gpu, write->values[0] != 0, error);
        break;
    case HARPE_ZEUSD_POWER_LIMIT:
        status = ops->set_power_limit(ops->user, holder, gpu->gpu, write->values[0], error);
        break;
    case HARPE_ZEUSD_GRAPHICS_CLOCKS:
        status = write->is_reset ? ops->reset_graphics(ops->user, holder, gpu->gpu, error)
                                 : ops->lock_graphics(ops->user, holder, gpu->gpu, write->values[0],
                                                      write->values[1], error);
        break;
    default:
        status = write->is_reset ? ops->reset_memory(ops->user, holder, gpu->gpu, error)
                                 : ops->lock_memory(ops->user, holder, gpu->gpu, write->values[0],
                                                    write->values[1], error);
        break;
    }
    gpu->write_status = status;
}

static void tell_failure(harpe_zeusd_gpu *gpu) {
    harpe_zeusd_server *server = gpu->server;
    const harpe_zeusd_holder *holder = &gpu->being_written.client->holder;
    int64_t now_ns = harpe_clock_ns();
    server->counts.failed_writes++;
    if (gpu->told_ns != 0 && now_ns - gpu->told_ns < TELL_NS) return;
    gpu->told_ns = now_ns;
    if (holder->is_tcp)
        harpe_log_line(&server->options.log, HARPE_LOG_WARNING, "zeusd: a client of TCP: %s",
                       gpu->write_error.message);
    else
        harpe_log_line(&server->options.log, HARPE_LOG_WARNING, "zeusd: process %ld of uid %lu: %s",
                       (long)holder->process, (unsigned long)holder->uid, gpu->write_error.message);
}

/* Returns the write that has waited longest, or NULL if no write waits. */
static harpe_zeusd_write *oldest_write(harpe_zeusd_gpu *gpu) {
    harpe_zeusd_write *oldest = NULL;
    for (int i = 0; i < HARPE_ZEUSD_SETTINGS; i++) {
        harpe_zeusd_write *write = &gpu->queued[i];
        if (write->client && (!oldest || write->number < oldest->number)) oldest = write;
    }
    return oldest;
}

static void begin_writing(harpe_zeusd_gpu *gpu);

static void end_writing(void *user) {
    harpe_zeusd_gpu *gpu = user;
    gpu->is_writing = false;
    if (!gpu->server->is_ending) {
        if (gpu->write_status != HARPE_OK) tell_failure(gpu);
        for (harpe_zeusd_part *part; (part = gpu->being_written.parts.first);)
            harpe_zeusd_part_end(part, gpu->write_status, &gpu->write_error, NULL);
    }
    harpe_zeusd_client_leave(gpu->being_written.client);
    gpu->being_written.client = NULL;
    begin_writing(gpu);
}

/* Submits the write that has waited longest. */
static void submit_write(harpe_zeusd_gpu *gpu) {
    harpe_zeusd_write *next = oldest_write(gpu);
    gpu->writes = (harpe_zeusd_setting)(next - gpu->queued);
    gpu->being_written.client = next->client;
    gpu->being_written.is_reset = next->is_reset;
    memcpy(gpu->being_written.values, next->values, sizeof next->values);
    next->client = NULL;
    harpe_zeusd_parts_move(&next->parts, &gpu->being_written.parts);
    gpu->write_work = (harpe_work){.work = write_gpu,
                                   .done = end_writing,
                                   .user = gpu,
                                   .pool = gpu->server->options.write_pool,
                                   .subject = gpu->subject};
    harpe_workers_submit(gpu->server->workers, &gpu->write_work);
}

static void have_looked(void *user) {
    harpe_zeusd_gpu *gpu = user;
    gpu->server->looked_ns = harpe_clock_ns();
    submit_write(gpu);
}

static void begin_writing(harpe_zeusd_gpu *gpu) {
    harpe_zeusd_server *server = gpu->server;
    if (gpu->is_writing || server->is_ending || !oldest_write(gpu)) return;
    gpu->is_writing = true;
    bool is_lately = server->looked_ns != 0 && harpe_clock_ns() - server->looked_ns < LOOK_AGAIN_NS;
    if (is_lately || !server->options.samples) {
        submit_write(gpu);
        return;
    }
    gpu->look = (harpe_sample_wait){.done = have_looked, .user = gpu};
    harpe_agent_samples_ask(server->options.samples, &gpu->look);
}

void harpe_zeusd_gpu_write(harpe_zeusd_gpu *gpu, harpe_zeusd_setting setting, bool is_reset,
                           const uint32_t values[2], harpe_zeusd_client *client,
                           harpe_zeusd_part *part) {
    harpe_zeusd_server *server = gpu->server;
    harpe_zeusd_write *write = &gpu->queued[setting];
    server->counts.writes++;
    if (write->client)
        server->counts.replaced_writes++;
    else
        write->number = ++server->write_number;
    harpe_zeusd_client_leave(write->client);
    client->uses++;
    write->client = client;
    write->is_reset = is_reset;
    memcpy(write->values, values, sizeof write->values);
    if (part) harpe_zeusd_part_wait(part, &write->parts);
    begin_writing(gpu);
}

void harpe_zeusd_gpus_free(harpe_zeusd_server *server) {
    for (size_t i = 0; i < server->gpu_count; i++) {
        pthread_mutex_destroy(&server->gpu[i].counter.lock);
        harpe_agent_samples_leave(&server->gpu[i].look);
        harpe_zeusd_client_leave(server->gpu[i].being_written.client);
        for (int setting = 0; setting < HARPE_ZEUSD_SETTINGS; setting++)
            harpe_zeusd_client_leave(server->gpu[i].queued[setting].client);
    }
    free(server->gpu);
}
