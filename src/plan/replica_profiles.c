/* SPDX-License-Identifier: Apache-2.0 */
/* The profile of each GPU of a job: makes, copies, compares and writes them.
 * replica_profiles_csv.c reads files. */
#include "plan/replica_profiles.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

/* ---- Making ---------------------------------------------------------------------------------- */

harpe_status harpe_replica_profiles_begin(int replica_count, int peer_count,
                                          harpe_replica_profiles **out, harpe_error *error) {
    if (replica_count < 1 || replica_count > HARPE_REPLICAS_MAX || peer_count < 1 ||
        peer_count > HARPE_REPLICAS_MAX)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "a job has 1 to %d replicas, and each stage 1 to %d GPUs; not %d and %d",
                          HARPE_REPLICAS_MAX, HARPE_REPLICAS_MAX, replica_count, peer_count);
    size_t count = (size_t)replica_count * (size_t)peer_count;
    if (count > HARPE_REPLICA_GPUS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%zu GPUs in each stage of all replicas, at most %zu are possible", count,
                          HARPE_REPLICA_GPUS_MAX);
    harpe_replica_profiles *profiles = harpe_calloc(1, sizeof *profiles);
    if (!profiles) return harpe_fail_memory(error);
    profiles->replica_count = replica_count;
    profiles->peer_count = peer_count;
    profiles->gpus = harpe_calloc(count, sizeof(harpe_profile *));
    if (!profiles->gpus) {
        free(profiles);
        return harpe_fail_memory(error);
    }
    *out = profiles;
    return HARPE_OK;
}

harpe_status harpe_replica_profiles_check(const harpe_replica_profiles *profiles, const char *name,
                                          harpe_error *error) {
    const harpe_profile *first = profiles->gpus[0];
    size_t entries = harpe_profile_entry_count(first);
    size_t count = (size_t)profiles->replica_count * (size_t)profiles->peer_count;
    for (size_t g = 1; g < count; g++) {
        const harpe_profile *other = profiles->gpus[g];
        /* Whichever of the two has an entry more lends it to the message. */
        bool has_more = harpe_profile_entry_count(other) > entries;
        const harpe_profile *from = has_more ? other : first, *in = has_more ? first : other;
        for (size_t e = 0; e < harpe_profile_entry_count(from); e++) {
            const harpe_profile_entry *entry = harpe_profile_entry_at(from, e);
            if (harpe_profile_find(in, entry->stage, entry->instruction)) continue;
            size_t lacking = has_more ? 0 : g, having = has_more ? g : 0;
            size_t peers = (size_t)profiles->peer_count;
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s%sgpu %zu of replica %zu has no '%s' for stage %d, but gpu %zu of "
                              "replica %zu has: measure it on every GPU",
                              name ? name : "", name ? ": " : "", lacking % peers, lacking / peers,
                              entry->instruction, entry->stage, having % peers, having / peers);
        }
    }
    return HARPE_OK;
}

harpe_status harpe_replica_profile_copy(const harpe_profile *from,
                                        void (*change)(void *user, harpe_measurement *row),
                                        void *user, harpe_profile **out, harpe_error *error) {
    size_t count = 0, at = 0;
    for (size_t e = 0; e < harpe_profile_entry_count(from); e++)
        count += harpe_profile_entry_at(from, e)->point_count;
    harpe_measurement *rows = harpe_calloc(count, sizeof *rows);
    if (!rows) return harpe_fail_memory(error);
    for (size_t e = 0; e < harpe_profile_entry_count(from); e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(from, e);
        for (size_t p = 0; p < entry->point_count; p++, at++) {
            rows[at] = (harpe_measurement){
                .stage = entry->stage,
                .rank = -1,
                .instruction = entry->instruction,
                .frequency_mhz = entry->points[p].frequency_mhz,
                .time_s = entry->points[p].time_s,
                .energy_j = entry->points[p].energy_j,
                .blocking_power_w = harpe_profile_blocking_power_w(from, entry->stage),
            };
            if (change) change(user, &rows[at]);
        }
    }
    harpe_status status = harpe_profile_new(rows, count, out, error);
    free(rows);
    return status;
}

static harpe_status check_one_gpu(const harpe_profile *profile, size_t index, harpe_error *error) {
    for (int stage = 0; stage < harpe_profile_stage_count(profile); stage++)
        if (harpe_profile_gpu_count(profile, stage) != 1)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "profile %zu has %d GPUs in stage %d: give each GPU a profile of its "
                              "own",
                              index, harpe_profile_gpu_count(profile, stage), stage);
    return HARPE_OK;
}

harpe_status harpe_replica_profiles_new(const harpe_profile *const *profiles, int replica_count,
                                        int peer_count, harpe_replica_profiles **out,
                                        harpe_error *error) {
    if (!profiles || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "profiles of replicas need profiles and a place for the result");
    harpe_replica_profiles *made = NULL;
    harpe_status status = harpe_replica_profiles_begin(replica_count, peer_count, &made, error);
    if (status != HARPE_OK) return status;
    size_t count = (size_t)replica_count * (size_t)peer_count;
    for (size_t g = 0; g < count && status == HARPE_OK; g++) {
        status = check_one_gpu(profiles[g], g, error);
        if (status == HARPE_OK)
            status = harpe_replica_profile_copy(profiles[g], NULL, NULL, &made->gpus[g], error);
    }
    if (status == HARPE_OK) status = harpe_replica_profiles_check(made, NULL, error);
    if (status != HARPE_OK) {
        harpe_replica_profiles_free(made);
        return status;
    }
    *out = made;
    return HARPE_OK;
}

void harpe_replica_profiles_free(harpe_replica_profiles *profiles) {
    if (!profiles) return;
    size_t count = (size_t)profiles->replica_count * (size_t)profiles->peer_count;
    for (size_t g = 0; g < count; g++)
        harpe_profile_free(profiles->gpus[g]);
    free(profiles->gpus);
    free(profiles);
}

/* ---- Reading --------------------------------------------------------------------------------- */

int harpe_replica_profiles_replica_count(const harpe_replica_profiles *profiles) {
    return profiles->replica_count;
}

int harpe_replica_profiles_peer_count(const harpe_replica_profiles *profiles) {
    return profiles->peer_count;
}

const harpe_profile *harpe_replica_profiles_at(const harpe_replica_profiles *profiles, int replica,
                                               int peer) {
    if (replica < 0 || replica >= profiles->replica_count || peer < 0 ||
        peer >= profiles->peer_count)
        return NULL;
    return profiles->gpus[(size_t)replica * (size_t)profiles->peer_count + (size_t)peer];
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static bool are_equal(double a, double b) { return !(a < b) && !(a > b); }

static bool is_same_gpu(const harpe_profile *one, const harpe_profile *other) {
    size_t entries = harpe_profile_entry_count(one);
    if (entries != harpe_profile_entry_count(other)) return false;
    for (size_t e = 0; e < entries; e++) {
        const harpe_profile_entry *a = harpe_profile_entry_at(one, e);
        const harpe_profile_entry *b = harpe_profile_entry_at(other, e);
        if (a->stage != b->stage || strcmp(a->instruction, b->instruction) != 0 ||
            a->point_count != b->point_count ||
            !are_equal(harpe_profile_blocking_power_w(one, a->stage),
                       harpe_profile_blocking_power_w(other, a->stage)))
            return false;
        for (size_t p = 0; p < a->point_count; p++)
            if (a->points[p].frequency_mhz != b->points[p].frequency_mhz ||
                !are_equal(a->points[p].time_s, b->points[p].time_s) ||
                !are_equal(a->points[p].energy_j, b->points[p].energy_j))
                return false;
    }
    return true;
}

bool harpe_replica_profiles_are_same(const harpe_replica_profiles *profiles, int one, int other) {
    for (int peer = 0; peer < profiles->peer_count; peer++)
        if (!is_same_gpu(harpe_replica_profiles_at(profiles, one, peer),
                         harpe_replica_profiles_at(profiles, other, peer)))
            return false;
    return true;
}

/* FNV-1a over the bits of a number. */
static uint64_t hash_number(uint64_t hash, double number) {
    unsigned char bytes[sizeof number];
    memcpy(bytes, &number, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        hash = (hash ^ bytes[i]) * 1099511628211U;
    return hash;
}

uint64_t harpe_replica_profiles_hash(const harpe_replica_profiles *profiles, int replica) {
    uint64_t hash = 14695981039346656037U;
    for (int peer = 0; peer < profiles->peer_count; peer++) {
        const harpe_profile *gpu = harpe_replica_profiles_at(profiles, replica, peer);
        for (size_t e = 0; e < harpe_profile_entry_count(gpu); e++) {
            const harpe_profile_entry *entry = harpe_profile_entry_at(gpu, e);
            for (size_t p = 0; p < entry->point_count; p++) {
                hash = hash_number(hash, entry->points[p].time_s);
                hash = hash_number(hash, entry->points[p].energy_j);
            }
        }
    }
    return hash;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static bool has_blocking_powers(const harpe_replica_profiles *profiles) {
    size_t count = (size_t)profiles->replica_count * (size_t)profiles->peer_count;
    for (size_t g = 0; g < count; g++)
        for (int s = 0; s < harpe_profile_stage_count(profiles->gpus[g]); s++)
            if (harpe_profile_blocking_power_w(profiles->gpus[g], s) <= 0) return false;
    return true;
}

static void print_gpu(const harpe_profile *gpu, int replica, int peer, bool with_power,
                      harpe_text *text) {
    for (size_t e = 0; e < harpe_profile_entry_count(gpu); e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(gpu, e);
        for (size_t p = 0; p < entry->point_count; p++) {
            harpe_text_printf(text, "%d,%d,%d,%s,%d,", replica, peer, entry->stage,
                              entry->instruction, entry->points[p].frequency_mhz);
            harpe_text_number(text, entry->points[p].time_s);
            harpe_text_append(text, ",", 1);
            harpe_text_number(text, entry->points[p].energy_j);
            if (with_power) {
                harpe_text_append(text, ",", 1);
                harpe_text_number(text, harpe_profile_blocking_power_w(gpu, entry->stage));
            }
            harpe_text_append(text, "\n", 1);
        }
    }
}

harpe_status harpe_replica_profiles_write_csv(const harpe_replica_profiles *profiles,
                                              const char *path, harpe_error *error) {
    if (!profiles || !path)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "writing the profiles of replicas needs profiles and a path");
    harpe_text text = {0};
    bool with_power = has_blocking_powers(profiles);
    harpe_text_printf(&text, "replica,gpu,stage,instruction,frequency,time,energy%s\n",
                      with_power ? ",blocking_power" : "");
    for (int r = 0; r < profiles->replica_count; r++)
        for (int peer = 0; peer < profiles->peer_count; peer++)
            print_gpu(harpe_replica_profiles_at(profiles, r, peer), r, peer, with_power, &text);
    harpe_status status = text.failed ? harpe_fail_memory(error)
                                      : harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}
