/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a job, found by number and in order, compared with a plain list of numbers, in jobs
 * of all depths of the tree. */
#include "test.h"

#include "server/engine/engine_internal.h"

enum { MOST = 1 << 24 };

static const int SIZES[] = {1,    2,     15,    16,    17,       1023, 1024,
                            1025, 65535, 65536, 65537, MOST - 1, MOST};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES, SPOKEN_MAX = 400 };

static harpe_job *job_of_size(int size) {
    harpe_job_info info = {.pp_degree = size, .dp_degree = 1, .tp_degree = 1, .world_size = size};
    harpe_job *job = harpe_job_new(NULL, NULL, &info);
    assert_non_null(job);
    return job;
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Some numbers from both ends and some from anywhere, sorted, each once. */
static int choose(int size, int *to) {
    int count = 0, kept = 0;
    for (int i = 0; i < SPOKEN_MAX; i++) {
        int near = i / 4 < size ? i / 4 : size - 1;
        to[count++] = i % 4 == 0 ? near : i % 4 == 1 ? size - 1 - near : rand() % size;
    }
    qsort(to, (size_t)count, sizeof *to, compare);
    for (int i = 0; i < count; i++)
        if (i == 0 || to[i] != to[kept - 1]) to[kept++] = to[i];
    return kept;
}

TEST(ranks_are_found_where_they_were_made) {
    int spoken[SPOKEN_MAX];
    srand(14);
    for (int s = 0; s < SIZE_COUNT; s++) {
        harpe_job *job = job_of_size(SIZES[s]);
        int count = choose(SIZES[s], spoken);
        for (int i = count - 1; i >= 0; i--) {
            harpe_rank *slot = harpe_job_make_rank(job, spoken[i]);
            assert_non_null(slot);
            assert_int_equal(slot->taken_by, 0);
            slot->taken_by = 1 + spoken[i];
            assert_ptr_equal(harpe_job_make_rank(job, spoken[i]), slot);
        }
        int found = 0;
        const harpe_rank *slot;
        for (int r = 0; (slot = harpe_job_next_rank(job, &r)); r++) {
            assert_ptr_equal(harpe_job_rank(job, r), slot);
            if (!slot->taken_by) continue;
            assert_int_equal(r, spoken[found]);
            assert_int_equal(slot->taken_by, 1 + spoken[found]);
            found++;
        }
        assert_int_equal(found, count);
        harpe_job_free(job);
    }
}

TEST(a_job_has_no_ranks_beyond_its_size) {
    for (int s = 0; s < SIZE_COUNT; s++) {
        harpe_job *job = job_of_size(SIZES[s]);
        int next = 0;
        assert_null(harpe_job_next_rank(job, &next));
        assert_int_equal(next, SIZES[s]);
        assert_null(harpe_job_rank(job, 0));
        assert_non_null(harpe_job_make_rank(job, SIZES[s] - 1));
        assert_null(harpe_job_make_rank(job, SIZES[s]));
        assert_null(harpe_job_rank(job, SIZES[s]));
        assert_null(harpe_job_make_rank(job, -1));
        assert_null(harpe_job_rank(job, INT32_MIN));
        assert_null(harpe_job_make_rank(job, INT32_MAX));
        harpe_job_free(job);
    }
}

TEST(a_job_that_was_evicted_has_none) {
    harpe_job *job = harpe_job_new(NULL, NULL, NULL);
    int next = 0;
    assert_non_null(job);
    assert_null(harpe_job_next_rank(job, &next));
    assert_null(harpe_job_make_rank(job, 0));
    harpe_job_free(job);
}
