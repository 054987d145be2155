/* SPDX-License-Identifier: Apache-2.0 */
/* The table of jobs. The table finds a job by its id in constant time, and lists jobs in the order
 * of their registration. An evicted job stays in the table while work uses it. Then only its id
 * stays (evicted_jobs.c). */
#include "server/engine/job_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/platform.h"
#include "server/engine/job.h"

enum { FIRST_BUCKET_COUNT = 64 };

/* Computes an FNV-1a hash. Clients can choose parts of an id. The random seed prevents clients from
 * choosing ids that all fall into one bucket. */
static uint64_t hash_of(const harpe_job_table *table, const char *id) {
    uint64_t hash = table->seed ^ 0xCBF29CE484222325U;
    for (const char *c = id; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001B3U;
    return hash ^ hash >> 32;
}

static size_t bucket_of(const harpe_job_table *table, const char *id) {
    return (size_t)hash_of(table, id) & (table->bucket_count - 1);
}

static bool grow(harpe_job_table *table) {
    size_t old_count = table->bucket_count;
    harpe_job **old = table->buckets;
    size_t count = old_count > 0 ? 2 * old_count : FIRST_BUCKET_COUNT;
    harpe_job **buckets = harpe_calloc(count, sizeof *buckets);
    if (!buckets) return false;
    if (!old && !harpe_random_now(&table->seed, sizeof table->seed)) table->seed = 0;
    table->buckets = buckets;
    table->bucket_count = count;
    for (size_t b = 0; old && b < old_count; b++) {
        for (harpe_job *job = old[b], *next; job; job = next) {
            next = job->same_bucket;
            harpe_job **bucket = &buckets[bucket_of(table, job->id)];
            job->same_bucket = *bucket;
            *bucket = job;
        }
    }
    free(old);
    return true;
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

static void take_out_of_bucket(harpe_job_table *table, const harpe_job *job) {
    harpe_job **place = &table->buckets[bucket_of(table, job->id)];
    while (*place != job)
        place = &(*place)->same_bucket;
    *place = job->same_bucket;
    table->count--;
}

/* ---- Evicted jobs ---------------------------------------------------------------------------- */

static bool is_in_use(const harpe_job *job) {
    return job->operations > 0 || job->users > 0 || job->turn || job->is_marked;
}

/* Frees the evicted jobs that no work uses any more, and keeps their ids. */
static void free_unused(harpe_job_table *table) {
    for (harpe_job **place = &table->leaving, *job; (job = *place);) {
        if (is_in_use(job) ||
            !harpe_evicted_jobs_add(&table->evicted, job->id, hash_of(table, job->id), job->group,
                                    job->version)) {
            place = &job->older;
            continue;
        }
        *place = job->older;
        take_out_of_bucket(table, job);
        harpe_job_free(job);
    }
}

bool harpe_job_table_add_evicted(harpe_job_table *table, const char *id) {
    return (table->buckets || grow(table)) &&
           harpe_evicted_jobs_add(&table->evicted, id, hash_of(table, id), NULL, 0);
}

bool harpe_job_table_has_evicted(const harpe_job_table *table, const char *id) {
    return harpe_evicted_jobs_have(&table->evicted, id, hash_of(table, id));
}

/* ---- All jobs -------------------------------------------------------------------------------- */

bool harpe_job_table_add(harpe_job_table *table, harpe_job *job) {
    if (table->count >= table->bucket_count && !grow(table)) return false;
    harpe_job **bucket = &table->buckets[bucket_of(table, job->id)];
    job->same_bucket = *bucket;
    *bucket = job;
    table->count++;
    link_newest(table, job);
    return true;
}

harpe_job *harpe_job_table_find(const harpe_job_table *table, const char *id) {
    if (table->bucket_count == 0) return NULL;
    harpe_job *job = table->buckets[bucket_of(table, id)];
    while (job && strcmp(job->id, id) != 0)
        job = job->same_bucket;
    return job;
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
    take_out_of_bucket(table, job);
    unlink_living(table, job);
}

void harpe_job_table_free(harpe_job_table *table) {
    for (size_t b = 0; b < table->bucket_count; b++) {
        for (harpe_job *job = table->buckets[b], *next; job; job = next) {
            next = job->same_bucket;
            harpe_job_free(job);
        }
    }
    free(table->buckets);
    harpe_evicted_jobs_free(&table->evicted);
    *table = (harpe_job_table){0};
}
