/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs, their ranks, and the table of all jobs. This file makes and frees them, finds them, and
 * derives the state of a job and of its ranks from their members. Other files change these members,
 * above all rounds.c. */
#include "server/engine/engine_internal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/platform.h"

/* ---- Ranks ----------------------------------------------------------------------------------- */

/* The ranks of one job. The memory grows with the number of ranks that requests have named, and not
 * with the world_size of the job, because a client can announce millions of ranks. A tree finds a
 * rank by its number. The leaves of the tree are small blocks of ranks. A block is made when its
 * first rank is needed. The address of a rank never changes. */

enum {
    LEAF_BITS = 4, /* a block holds 16 ranks */
    NODE_BITS = 6, /* a node has 64 children */
    LEAF_RANKS = 1 << LEAF_BITS,
    NODE_CHILDREN = 1 << NODE_BITS,
};

/* Returns how many bits of a rank's number the levels below the root use. */
static int root_shift(int world_size) {
    int shift = LEAF_BITS;
    while (((world_size - 1) >> shift) > 0)
        shift += NODE_BITS;
    return shift;
}

static void *new_node(int shift) {
    return shift > LEAF_BITS ? harpe_calloc(NODE_CHILDREN, sizeof(void *))
                             : harpe_calloc(LEAF_RANKS, sizeof(harpe_rank));
}

/* Returns the number of the rank's child in a node whose shift is `shift`. */
static int child_of(int rank, int shift) { return (rank >> (shift - NODE_BITS)) % NODE_CHILDREN; }

harpe_rank *harpe_job_rank(const harpe_job *job, int rank) {
    if (rank < 0 || rank >= job->info.world_size) return NULL;
    void *node = job->ranks;
    for (int shift = root_shift(job->info.world_size); node && shift > LEAF_BITS;
         shift -= NODE_BITS)
        node = ((void **)node)[child_of(rank, shift)];
    return node ? (harpe_rank *)node + rank % LEAF_RANKS : NULL;
}

harpe_rank *harpe_job_make_rank(harpe_job *job, int rank) {
    if (rank < 0 || rank >= job->info.world_size) return NULL;
    void **place = &job->ranks;
    for (int shift = root_shift(job->info.world_size);; shift -= NODE_BITS) {
        if (!*place) *place = new_node(shift);
        if (!*place) return NULL;
        if (shift <= LEAF_BITS) return (harpe_rank *)*place + rank % LEAF_RANKS;
        place = (void **)*place + child_of(rank, shift);
    }
}

harpe_rank *harpe_job_next_rank(const harpe_job *job, int *rank) {
    int size = job->info.world_size;
    int top = root_shift(size);
    while (*rank < size) {
        void *node = job->ranks;
        int shift = top;
        for (; node && shift > LEAF_BITS; shift -= NODE_BITS)
            node = ((void **)node)[child_of(*rank, shift)];
        if (node) return (harpe_rank *)node + *rank % LEAF_RANKS;
        /* This part of the tree has no ranks. Continue with the next part. */
        int64_t next = (((int64_t)*rank >> shift) + 1) << shift;
        *rank = next < size ? (int)next : size;
    }
    return NULL;
}

harpe_rank_info *harpe_job_rank_infos(const harpe_job *job) {
    int size = job->info.world_size;
    harpe_rank_info *infos = harpe_calloc((size_t)size, sizeof *infos);
    const harpe_rank *slot;
    for (int r = 0; infos && (slot = harpe_job_next_rank(job, &r)); r++)
        infos[r] = slot->info;
    return infos;
}

static void free_node(void *node, int shift) {
    if (!node) return;
    for (int i = 0; shift > LEAF_BITS && i < NODE_CHILDREN; i++)
        free_node(((void **)node)[i], shift - NODE_BITS);
    for (int i = 0; shift <= LEAF_BITS && i < LEAF_RANKS; i++)
        harpe_rank_info_free(&((harpe_rank *)node)[i].info);
    free(node);
}

static void job_free_ranks(harpe_job *job) {
    free_node(job->ranks, root_shift(job->info.world_size));
    job->ranks = NULL;
}

size_t harpe_job_coordinate(const harpe_job *job, const harpe_rank_info *rank) {
    const harpe_job_info *info = &job->info;
    return ((size_t)rank->dp_rank * (size_t)info->pp_degree + (size_t)rank->pp_rank) *
               (size_t)info->tp_degree +
           (size_t)rank->tp_rank;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

harpe_job *harpe_job_new(harpe_jobs *jobs, char *id, harpe_job_info *info) {
    harpe_job *job = harpe_calloc(1, sizeof *job);
    if (!job || (info && !harpe_metadata_group(info->job_metadata, &job->group))) {
        free(job);
        return NULL;
    }
    job->jobs = jobs;
    job->id = id;
    job->round = job->sums_from = -1;
    job->figures.is_known = true;
    job->dumps.end = &job->dumps.first;
    job->profiles.end = &job->profiles.first;
    if (info) {
        job->info = *info;
        if (!harpe_job_read_words(job)) {
            job->info = (harpe_job_info){0};
            job->id = NULL;
            harpe_job_free(job);
            return NULL;
        }
        *info = (harpe_job_info){0};
    }
    return job;
}

void harpe_job_release(harpe_job *job) {
    job_free_ranks(job);
    harpe_round_results_unref(job->results);
    harpe_round_text_unref(job->current);
    harpe_round_text_unref(job->next);
    harpe_job_end_scheduler(job);
    free(job->state_text);
    free(job->requests);
    free(job->failure);
    harpe_job_info_free(&job->info);
    job->results = NULL;
    job->current = job->next = NULL;
    job->scheduler = NULL;
    job->state_text = NULL;
    job->requests = NULL;
    job->failure = NULL;
}

void harpe_job_free(harpe_job *job) {
    harpe_job_release(job);
    free(job->id);
    free(job->group);
    for (int w = 0; w < HARPE_WORDS; w++)
        free(job->words[w]);
    free(job);
}

/* ---- States ---------------------------------------------------------------------------------- */

bool harpe_job_round_is_over(const harpe_job *job) {
    return job->round < 0 || job->reported == job->info.world_size;
}

bool harpe_job_has_ended(const harpe_job *job) {
    return job->info.world_size > 0 && job->ended == job->info.world_size && !job->failure &&
           !job->is_evicted;
}

harpe_job_state harpe_job_state_of(const harpe_job *job) {
    if (job->is_evicted) return HARPE_JOB_EVICTED;
    if (job->failure) return HARPE_JOB_FAILED;
    if (job->registered < job->info.world_size) return HARPE_JOB_REGISTERING;
    if (harpe_job_has_ended(job)) return HARPE_JOB_ENDED;
    if (!harpe_job_round_is_over(job)) return HARPE_JOB_RUNNING;
    if (!job->is_ready) return HARPE_JOB_PREPARING;
    return job->next ? HARPE_JOB_GATHERING : HARPE_JOB_OBSERVING;
}

const char *harpe_job_state_name(harpe_job_state state) {
    static const char *const names[] = {
        [HARPE_JOB_REGISTERING] = "registering", [HARPE_JOB_PREPARING] = "preparing",
        [HARPE_JOB_GATHERING] = "gathering",     [HARPE_JOB_RUNNING] = "running",
        [HARPE_JOB_OBSERVING] = "observing",     [HARPE_JOB_ENDED] = "ended",
        [HARPE_JOB_FAILED] = "failed",           [HARPE_JOB_EVICTED] = "evicted",
    };
    return names[state];
}

const char *harpe_rank_state_name(const harpe_job *job, int rank) {
    const harpe_rank *slot = harpe_job_rank(job, rank);
    if (slot && slot->asking) return "asking";
    if (!slot || !slot->is_registered) return "unknown";
    if (slot->has_ended) return "ended";
    if (job->round < 0) return "registered";
    return slot->has_reported ? "reported" : "served";
}

/* ---- The table ------------------------------------------------------------------------------- */

/* The table of jobs. The table finds a job by its id in constant time, and lists jobs in the order
 * of their registration. An evicted job stays in the table while work uses it. Then only its id,
 * its group and its version stay. */

enum { FIRST_BUCKET_COUNT = 64 };

/* Computes an FNV-1a hash. Clients can choose parts of an id. The random seed prevents clients from
 * choosing ids that all fall into one bucket. */
static harpe_table_entry **bucket_of(const harpe_job_table *table, const char *id) {
    uint64_t hash = table->seed ^ 0xCBF29CE484222325U;
    for (const char *c = id; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001B3U;
    return &table->buckets[(hash ^ hash >> 32) & (table->bucket_count - 1)];
}

static void put(const harpe_job_table *table, harpe_table_entry *entry) {
    harpe_table_entry **bucket = bucket_of(table, entry->id);
    entry->same_bucket = *bucket;
    *bucket = entry;
}

static bool grow(harpe_job_table *table) {
    size_t old_count = table->bucket_count;
    harpe_table_entry **old = table->buckets;
    size_t count = old_count > 0 ? 2 * old_count : FIRST_BUCKET_COUNT;
    harpe_table_entry **buckets = harpe_calloc(count, sizeof *buckets);
    if (!buckets) return false;
    if (!old && !harpe_random_now(&table->seed, sizeof table->seed)) table->seed = 0;
    table->buckets = buckets;
    table->bucket_count = count;
    for (size_t b = 0; old && b < old_count; b++) {
        for (harpe_table_entry *entry = old[b], *next; entry; entry = next) {
            next = entry->same_bucket;
            put(table, entry);
        }
    }
    free(old);
    return true;
}

static bool put_new(harpe_job_table *table, harpe_table_entry *entry) {
    if (table->count >= table->bucket_count && !grow(table)) return false;
    put(table, entry);
    table->count++;
    return true;
}

static void take_out(harpe_job_table *table, const harpe_table_entry *entry) {
    harpe_table_entry **place = bucket_of(table, entry->id);
    while (*place != entry)
        place = &(*place)->same_bucket;
    *place = entry->same_bucket;
    table->count--;
}

/* Returns NULL if no entry of the kind has this id. */
static harpe_table_entry *find(const harpe_job_table *table, const char *id, bool is_evicted) {
    harpe_table_entry *entry = table->buckets ? *bucket_of(table, id) : NULL;
    while (entry && (entry->is_evicted != is_evicted || strcmp(entry->id, id) != 0))
        entry = entry->same_bucket;
    return entry;
}

/* Adds the job as the newest one. Jobs are added in the order of their registration, also when they
 * are read from the store. Their times of registration are not compared, because the wall clock may
 * have been set back. */
static void link_newest(harpe_job_table *table, harpe_job *job) {
    job->serial = ++table->last_serial;
    job->older = table->newest;
    job->newer = NULL;
    if (job->older) job->older->newer = job;
    table->newest = job;
}

/* ---- Evicted jobs in the table --------------------------------------------------------------- */

static void forget_oldest(harpe_job_table *table) {
    harpe_evicted_job *job = table->oldest_evicted;
    take_out(table, &job->entry);
    table->oldest_evicted = job->newer;
    job->newer->older = NULL;
    table->evicted_count--;
    free(job);
}

/* Remembers a job; `group` may be NULL. Returns false if memory runs out. */
static bool add_evicted(harpe_job_table *table, const char *id, const char *group,
                        int64_t version) {
    size_t id_size = strlen(id) + 1, group_size = group ? strlen(group) + 1 : 0;
    harpe_evicted_job *job = harpe_calloc(1, sizeof *job + id_size + group_size);
    if (!job) return false;
    job->entry = (harpe_table_entry){.id = memcpy(job->text, id, id_size), .is_evicted = true};
    if (group) job->group = memcpy(job->text + id_size, group, group_size);
    if (!put_new(table, &job->entry)) {
        free(job);
        return false;
    }
    job->older = table->newest_evicted;
    job->version = job->older && job->older->version > version ? job->older->version : version;
    if (job->older)
        job->older->newer = job;
    else
        table->oldest_evicted = job;
    table->newest_evicted = job;
    if (++table->evicted_count > HARPE_EVICTED_KEPT) forget_oldest(table);
    return true;
}

static bool is_in_use(const harpe_job *job) { return job->operations > 0 || job->is_marked; }

/* Frees the evicted jobs that no work uses any more, and keeps their ids. */
static void free_unused(harpe_job_table *table) {
    for (harpe_job **place = &table->leaving, *job; (job = *place);) {
        if (is_in_use(job) || !add_evicted(table, job->id, job->group, job->version)) {
            place = &job->older;
            continue;
        }
        *place = job->older;
        take_out(table, &job->entry);
        harpe_job_free(job);
    }
}

bool harpe_job_table_add_evicted(harpe_job_table *table, const char *id) {
    return add_evicted(table, id, NULL, 0);
}

bool harpe_job_table_has_evicted(const harpe_job_table *table, const char *id) {
    return find(table, id, true) != NULL;
}

/* ---- Jobs in the table ----------------------------------------------------------------------- */

bool harpe_job_table_add(harpe_job_table *table, harpe_job *job) {
    job->entry.id = job->id;
    if (!put_new(table, &job->entry)) return false;
    link_newest(table, job);
    return true;
}

harpe_job *harpe_job_table_find(const harpe_job_table *table, const char *id) {
    return (harpe_job *)find(table, id, false);
}

static bool is_same(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

harpe_job *harpe_job_table_find_key(const harpe_job_table *table, const char *key,
                                    const char *group) {
    harpe_job *job = table->newest;
    while (job && !(is_same(job->info.job_key, key) && is_same(job->group, group)))
        job = job->older;
    return job;
}

static void unlink_living(harpe_job_table *table, harpe_job *job) {
    if (job->older) job->older->newer = job->newer;
    if (job->newer)
        job->newer->older = job->older;
    else
        table->newest = job->older;
    job->older = job->newer = NULL;
}

void harpe_job_table_retire(harpe_job_table *table, harpe_job *job) {
    unlink_living(table, job);
    free_unused(table);
    job->older = table->leaving;
    table->leaving = job;
}

void harpe_job_table_remove(harpe_job_table *table, harpe_job *job) {
    take_out(table, &job->entry);
    unlink_living(table, job);
}

void harpe_job_table_free(harpe_job_table *table) {
    for (size_t b = 0; b < table->bucket_count; b++) {
        for (harpe_table_entry *entry = table->buckets[b], *next; entry; entry = next) {
            next = entry->same_bucket;
            if (entry->is_evicted)
                free(entry);
            else
                harpe_job_free((harpe_job *)entry);
        }
    }
    free(table->buckets);
    *table = (harpe_job_table){0};
}
