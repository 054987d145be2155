/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of power readings (server-sent events). Devices are polled only while a stream wants
 * them. A stream keeps only the newest reading of each device, so a client that reads slowly misses
 * readings and costs no memory. */
#include <inttypes.h>
#include <stdlib.h>

#include "agent/zeusd_internal.h"
#include "base/array.h"
#include "base/text.h"

/* ---- Sending --------------------------------------------------------------------------------- */

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

/* ---- Polling --------------------------------------------------------------------------------- */

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

void harpe_zeusd_streams_gpu(harpe_zeusd_gpu *gpu, uint32_t power_mw) {
    bool has_changed = !gpu->has_last_power || gpu->last_power_mw != power_mw;
    harpe_zeusd_source reading = {
        .id = gpu->id, .time_ms = harpe_zeusd_time_ms(), .values = {power_mw, 0}};
    gpu->has_last_power = true;
    gpu->last_power_mw = power_mw;
    tell(gpu->server, false, has_changed, &reading);
}

static uint64_t power_mw(uint64_t from_uj, uint64_t to_uj, int64_t duration_ns) {
    if (to_uj < from_uj || duration_ns <= 0) return 0;
    return (uint64_t)((double)(to_uj - from_uj) * 1e6 / (double)duration_ns);
}

void harpe_zeusd_streams_cpus(harpe_zeusd_server *server) {
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

/* ---- Beginning and end ----------------------------------------------------------------------- */

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
