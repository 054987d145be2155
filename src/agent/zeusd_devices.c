/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes devices for requests and streams.
 *
 * Each GPU has one piece of work for reads and one for writes, so a GPU whose driver call hangs
 * occupies at most one thread of each pool. One piece of work reads the energy of all CPU packages
 * and their memory together; at most one runs at a time.
 *
 * Streams of power readings are server-sent events. Devices are polled only while a stream wants
 * them. A stream keeps only the newest reading of each device, so a client that reads slowly misses
 * readings and costs no memory. */
#include "agent/zeusd_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

/* ---- Streams: sending ------------------------------------------------------------------------ */

static void write_event(harpe_text *text, const harpe_zeusd_stream *stream,
                        const harpe_zeusd_source *source) {
    harpe_text_printf(text, "data: {\"timestamp_ms\":%" PRId64 ",", source->time_ms);
    if (!stream->is_of_cpus) {
        harpe_text_printf(text, "\"gpu_id\":%d,\"power_mw\":%" PRIu64 "}\n\n", source->id,
                          source->values[0]);
        return;
    }
    harpe_text_printf(text, "\"cpu_id\":%d,\"cpu_mw\":%" PRIu64 ",\"dram_mw\":", source->id,
                      source->values[0]);
    if (source->has_dram)
        harpe_text_printf(text, "%" PRIu64 "}\n\n", source->values[1]);
    else
        harpe_text_printf(text, "null}\n\n");
}

/* Sends new readings, unless the stream is still sending. */
static void flush(harpe_zeusd_stream *stream) {
    harpe_text text = {0};
    if (stream->is_sending) return;
    for (size_t i = 0; i < stream->count; i++) {
        harpe_zeusd_source *source = &stream->sources[i];
        if (!source->has_news) continue;
        write_event(&text, stream, source);
        source->has_news = false;
        source->has_sent = true;
    }
    if (text.failed || !text.data) {
        harpe_text_free(&text);
        return;
    }
    stream->is_sending = true;
    harpe_http_stream(stream->request, "text/event-stream", text.data, text.length, NULL);
}

void harpe_zeusd_stream_sent(harpe_zeusd_stream *stream) {
    stream->is_sending = false;
    flush(stream);
}

/* ---- Streams: polling ------------------------------------------------------------------------ */

static void poll_gpus(void *user);
static void poll_cpus(void *user);

/* Starts the timers for the devices that streams want. If memory runs out, the next stream starts
 * them. */
static void arm(harpe_zeusd_server *server) {
    bool wants_gpus = false;
    for (size_t i = 0; i < server->gpu_count; i++)
        wants_gpus = wants_gpus || server->gpu[i].subscribers > 0;
    if (wants_gpus && !server->gpu_poll)
        (void)harpe_loop_after(server->loop, server->options.gpu_poll_ms, poll_gpus, server,
                               &server->gpu_poll, NULL);
    if (server->cpus.subscribers > 0 && !server->cpu_poll)
        (void)harpe_loop_after(server->loop, server->options.cpu_poll_ms, poll_cpus, server,
                               &server->cpu_poll, NULL);
}

static void read_polled_gpus(harpe_zeusd_server *server) {
    for (size_t i = 0; i < server->gpu_count; i++) {
        harpe_zeusd_gpu *gpu = &server->gpu[i];
        gpu->is_polled = gpu->subscribers > 0;
        if (gpu->subscribers > 0)
            harpe_zeusd_gpu_read(gpu);
        else
            gpu->has_last_power = false;
    }
}

static void poll_gpus(void *user) {
    harpe_zeusd_server *server = user;
    server->gpu_poll = NULL;
    read_polled_gpus(server);
    arm(server);
}

static void read_polled_cpus(harpe_zeusd_server *server) {
    server->cpus.is_polled = server->cpus.subscribers > 0;
    if (server->cpus.subscribers > 0)
        harpe_zeusd_cpus_read(server);
    else
        server->cpus.has_last = false;
}

static void poll_cpus(void *user) {
    harpe_zeusd_server *server = user;
    server->cpu_poll = NULL;
    read_polled_cpus(server);
    arm(server);
}

/* Gives a reading to the streams that want the device. A stream that has not sent anything yet gets
 * the reading even if it is equal to the one before. */
static void tell(harpe_zeusd_server *server, bool is_of_cpus, bool has_changed,
                 const harpe_zeusd_source *reading) {
    for (harpe_zeusd_stream *next, *stream = server->streams; stream; stream = next) {
        next = stream->next;
        if (stream->is_of_cpus != is_of_cpus) continue;
        for (size_t i = 0; i < stream->count; i++) {
            harpe_zeusd_source *source = &stream->sources[i];
            if (source->id != reading->id || (!has_changed && source->has_sent)) continue;
            source->has_news = true;
            source->has_dram = reading->has_dram;
            source->time_ms = reading->time_ms;
            source->values[0] = reading->values[0];
            source->values[1] = reading->values[1];
        }
        flush(stream);
    }
}

/* Send a new reading to the streams that want it. */
static void tell_streams_of_gpu(harpe_zeusd_gpu *gpu, uint32_t power_mw) {
    bool has_changed = !gpu->has_last_power || gpu->last_power_mw != power_mw;
    harpe_zeusd_source reading = {
        .id = gpu->id, .time_ms = harpe_zeusd_time_ms(), .values = {power_mw, 0}};
    gpu->has_last_power = true;
    gpu->last_power_mw = power_mw;
    tell(gpu->server, false, has_changed, &reading);
}

/* Returns the power in mW. Returns 0 if the counter has restarted. */
static uint64_t power_mw(uint64_t from_uj, uint64_t to_uj, int64_t duration_ns) {
    if (to_uj < from_uj || duration_ns <= 0) return 0;
    return (uint64_t)((double)(to_uj - from_uj) * 1e6 / (double)duration_ns);
}

static void tell_streams_of_cpus(harpe_zeusd_server *server) {
    harpe_zeusd_cpus *cpus = &server->cpus;
    int64_t duration_ns = cpus->read_ns - cpus->last_ns;
    for (size_t cpu = 0; cpus->has_last && cpu < cpus->count; cpu++) {
        harpe_zeusd_source reading = {.id = (int)cpu,
                                      .time_ms = harpe_zeusd_time_ms(),
                                      .has_dram = harpe_rapl_has_dram(cpus->rapl, cpu)};
        reading.values[0] =
            power_mw(cpus->last.package_uj[cpu], cpus->reading.package_uj[cpu], duration_ns);
        reading.values[1] =
            power_mw(cpus->last.dram_uj[cpu], cpus->reading.dram_uj[cpu], duration_ns);
        bool has_changed = cpus->last_power_mw[cpu][0] != reading.values[0] ||
                           cpus->last_power_mw[cpu][1] != reading.values[1];
        if (cpus->last.package_restarts[cpu] != cpus->reading.package_restarts[cpu] ||
            cpus->last.dram_restarts[cpu] != cpus->reading.dram_restarts[cpu])
            continue; /* the energy since the last reading is not known */
        cpus->last_power_mw[cpu][0] = reading.values[0];
        cpus->last_power_mw[cpu][1] = reading.values[1];
        tell(server, true, has_changed, &reading);
    }
    cpus->last = cpus->reading;
    cpus->last_ns = cpus->read_ns;
    cpus->has_last = true;
}

/* ---- Streams: beginning and end -------------------------------------------------------------- */

static void subscribe(harpe_zeusd_stream *stream, int change) {
    harpe_zeusd_server *server = stream->server;
    if (stream->is_of_cpus) server->cpus.subscribers += change;
    for (size_t i = 0; !stream->is_of_cpus && i < stream->count; i++)
        harpe_zeusd_gpu_find(server, (uint64_t)stream->sources[i].id)->subscribers += change;
}

/* Returns true if the client may have one more stream. */
static bool has_room(const harpe_zeusd_server *server, bool has_user, uid_t uid) {
    int count = 0;
    if (server->counts.streams >= server->options.streams_max) return false;
    if (!has_user || uid == 0) return true;
    for (const harpe_zeusd_stream *one = server->streams; one; one = one->next)
        count += one->has_user && one->uid == uid;
    return count < server->options.user_streams_max;
}

void harpe_zeusd_stream_begin(harpe_zeusd_server *server, harpe_http_request *request,
                              const harpe_zeusd_route *route, const uint64_t *ids, size_t count) {
    static const harpe_http_header_field headers[] = {{"cache-control", "no-cache"}, {NULL, NULL}};
    harpe_http_peer peer = {.uid = 0};
    bool has_user = harpe_http_peer_of(request, &peer);
    if (!has_room(server, has_user, peer.uid)) {
        server->counts.refused++;
        harpe_zeusd_answer_error(request, 503,
                                 "the server has as many streams as it may: end one of them");
        return;
    }
    harpe_zeusd_stream *stream =
        harpe_calloc(1, sizeof *stream + count * sizeof stream->sources[0]);
    if (!stream) {
        harpe_zeusd_answer_error(request, 503, "out of memory");
        return;
    }
    stream->is_stream = stream->is_sending = true;
    stream->is_of_cpus = route->action == HARPE_ZEUSD_CPU_STREAM;
    stream->has_user = has_user;
    stream->uid = peer.uid;
    stream->server = server;
    stream->request = request;
    stream->count = count;
    for (size_t i = 0; i < count; i++)
        stream->sources[i].id = (int)ids[i];
    stream->next = server->streams;
    if (server->streams) server->streams->previous = stream;
    server->streams = stream;
    server->counts.streams++;
    subscribe(stream, 1);
    harpe_http_set_data(request, stream);
    harpe_http_stream(request, "text/event-stream", NULL, 0, headers);
    if (stream->is_of_cpus)
        read_polled_cpus(server);
    else
        read_polled_gpus(server);
    arm(server);
}

void harpe_zeusd_stream_free(harpe_zeusd_stream *stream) {
    harpe_zeusd_server *server = stream->server;
    subscribe(stream, -1);
    if (stream->next) stream->next->previous = stream->previous;
    if (stream->previous)
        stream->previous->next = stream->next;
    else
        server->streams = stream->next;
    server->counts.streams--;
    free(stream);
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

harpe_status harpe_zeusd_cpus_open(harpe_zeusd_server *server, harpe_error *error) {
    harpe_error told;
    harpe_status status = harpe_rapl_open(server->options.rapl_path, &server->cpus.rapl, &told);
    if (status == HARPE_OUT_OF_MEMORY) {
        if (error) *error = told;
        return status;
    }
    if (status != HARPE_OK)
        harpe_log_line(&server->options.log, HARPE_LOG_WARNING, "zeusd: no CPU is listed: %s",
                       told.message);
    server->cpus.count = harpe_rapl_package_count(server->cpus.rapl);
    return HARPE_OK;
}

/* ---- CPUs: reading --------------------------------------------------------------------------- */

/* Runs on a worker. */
static void read_counters(void *user) {
    harpe_zeusd_server *server = user;
    harpe_zeusd_cpus *cpus = &server->cpus;
    cpus->status = harpe_rapl_read(cpus->rapl, &cpus->reading, &cpus->error);
    cpus->read_ns = harpe_clock_ns();
}

static void read_again(void *user) {
    harpe_zeusd_ask *ask = user;
    ask->pause = NULL;
    harpe_zeusd_part_wait(&ask->parts[0], &ask->server->cpus.waiting);
    harpe_zeusd_cpus_read(ask->server);
}

/* Keeps the first of the two readings that give a power, and waits for the second. */
static bool keep_first(harpe_zeusd_part *part, const harpe_zeusd_cpus *cpus) {
    harpe_zeusd_ask *ask = part->ask;
    ask->first = malloc(sizeof *ask->first);
    if (!ask->first || harpe_loop_after(ask->server->loop, ask->server->options.cpu_poll_ms,
                                        read_again, ask, &ask->pause, NULL) != HARPE_OK)
        return false;
    *ask->first = cpus->reading;
    ask->first_ns = cpus->read_ns;
    return true;
}

static void end_cpu_reading(void *user) {
    harpe_zeusd_server *server = user;
    harpe_zeusd_cpus *cpus = &server->cpus;
    cpus->is_reading = false;
    if (server->is_ending) return;
    for (harpe_zeusd_part *part; (part = cpus->being_read.first);) {
        harpe_zeusd_ask *ask = part->ask;
        bool is_first = ask->route->action == HARPE_ZEUSD_CPU_POWER && !ask->first;
        if (cpus->status != HARPE_OK || !is_first)
            harpe_zeusd_part_end(part, cpus->status, &cpus->error, NULL);
        else if (keep_first(part, cpus))
            harpe_zeusd_part_leave(part);
        else
            harpe_zeusd_part_end(part, HARPE_OUT_OF_MEMORY, NULL, NULL);
    }
    if (cpus->polls && cpus->status == HARPE_OK) tell_streams_of_cpus(server);
    cpus->polls = false;
    harpe_zeusd_cpus_read(server);
}

void harpe_zeusd_cpus_read(harpe_zeusd_server *server) {
    harpe_zeusd_cpus *cpus = &server->cpus;
    if (cpus->is_reading || server->is_ending || (!cpus->waiting.first && !cpus->is_polled)) return;
    cpus->is_reading = true;
    cpus->polls = cpus->is_polled;
    cpus->is_polled = false;
    harpe_zeusd_parts_move(&cpus->waiting, &cpus->being_read);
    cpus->work = (harpe_work){.work = read_counters,
                              .done = end_cpu_reading,
                              .user = server,
                              .pool = server->options.read_pool,
                              .subject = "the CPUs"};
    harpe_workers_submit(server->workers, &cpus->work);
}

/* ---- CPUs: answers --------------------------------------------------------------------------- */

static void add(json_t *all, uint64_t id, json_t *value) {
    char name[24];
    (void)snprintf(name, sizeof name, "%llu", (unsigned long long)id);
    json_object_set_new(all, name, value);
}

json_t *harpe_zeusd_cpus_energy(const harpe_zeusd_ask *ask) {
    const harpe_zeusd_cpus *cpus = &ask->server->cpus;
    json_t *all = json_object();
    for (size_t i = 0; i < ask->cpu_count; i++) {
        size_t cpu = (size_t)ask->cpu_ids[i];
        bool has_dram = ask->wants_dram && harpe_rapl_has_dram(cpus->rapl, cpu);
        json_int_t package_uj = (json_int_t)cpus->reading.package_uj[cpu];
        json_int_t dram_uj = (json_int_t)cpus->reading.dram_uj[cpu];
        add(all, cpu,
            json_pack("{s:o,s:o}", "cpu_energy_uj",
                      ask->wants_cpu ? json_integer(package_uj) : json_null(), "dram_energy_uj",
                      has_dram ? json_integer(dram_uj) : json_null()));
    }
    return all;
}

json_t *harpe_zeusd_cpus_power(const harpe_zeusd_ask *ask) {
    const harpe_zeusd_cpus *cpus = &ask->server->cpus;
    int64_t duration_ns = cpus->read_ns - ask->first_ns;
    json_t *all = json_object();
    for (size_t i = 0; i < ask->cpu_count; i++) {
        size_t cpu = (size_t)ask->cpu_ids[i];
        bool has_dram = harpe_rapl_has_dram(cpus->rapl, cpu);
        uint64_t package_mw =
            power_mw(ask->first->package_uj[cpu], cpus->reading.package_uj[cpu], duration_ns);
        uint64_t dram_mw =
            power_mw(ask->first->dram_uj[cpu], cpus->reading.dram_uj[cpu], duration_ns);
        add(all, cpu,
            json_pack("{s:I,s:o}", "cpu_mw", (json_int_t)package_mw, "dram_mw",
                      has_dram ? json_integer((json_int_t)dram_mw) : json_null()));
    }
    return json_pack("{s:I,s:o}", "timestamp_ms", (json_int_t)harpe_zeusd_time_ms(), "power_mw",
                     all);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

#define TELL_NS INT64_C(1000000000) /* between two log lines about failed writes of one GPU */
#define LOOK_AGAIN_NS INT64_C(1000000000)

harpe_zeusd_gpu *harpe_zeusd_gpu_find(harpe_zeusd_server *server, uint64_t id) {
    for (size_t i = 0; i < server->gpu_count; i++)
        if ((uint64_t)server->gpu[i].id == id) return &server->gpu[i];
    return NULL;
}

/* ---- GPUs: reading --------------------------------------------------------------------------- */

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
        tell_streams_of_gpu(gpu, (uint32_t)result->values[0]);
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

/* ---- GPUs: the clients of writes ------------------------------------------------------------- */

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

/* ---- GPUs: writing --------------------------------------------------------------------------- */

/* On a worker. */
static void write_gpu(void *user) {
    harpe_zeusd_gpu *gpu = user;
    const harpe_zeusd_ops *ops = &gpu->server->ops;
    const harpe_zeusd_write *write = &gpu->being_written;
    harpe_zeusd_change change = {.holder = &write->client->holder,
                                 .gpu = gpu->gpu,
                                 .setting = gpu->writes,
                                 .is_reset = write->is_reset,
                                 .values = {write->values[0], write->values[1]}};
    gpu->write_status = ops->set(ops->user, &change, &gpu->write_error);
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
    for (int i = 0; i < HARPE_SETTINGS; i++) {
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
    gpu->writes = (harpe_setting)(next - gpu->queued);
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

void harpe_zeusd_gpu_write(harpe_zeusd_gpu *gpu, harpe_setting setting, bool is_reset,
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
        for (int setting = 0; setting < HARPE_SETTINGS; setting++)
            harpe_zeusd_client_leave(server->gpu[i].queued[setting].client);
    }
    free(server->gpu);
}
