/* SPDX-License-Identifier: Apache-2.0 */
/* A job whose scheduler program dies. A new program receives every round so far, and clients notice
 * nothing. A program that dies repeatedly makes the job fail with a readable line. */
#include "test.h"

#include "base/file.h"
#include "engine.h"

/* Its clock is 1000 MHz plus all times of all results. Its process number N dies at its fourth
 * request if N <= DEATHS. The file "starts" counts the processes. */
#define MORTAL(deaths) \
    "import json, sys\n" \
    "starts = open(sys.argv[1], 'a+'); starts.write('x'); starts.flush(); starts.seek(0)\n" \
    "mine, total = len(starts.read()), 1000\n" \
    "for k, line in enumerate(sys.stdin):\n" \
    "    if k == 3 and mine <= " deaths ": sys.exit(1)\n" \
    "    total += sum(int(r['iter_time'][0]) for r in json.loads(line).get('observe', []))\n" \
    "    print(json.dumps({'schedules': [{'rank': r, 'frequencies': [['forward', total]]}\n" \
    "                                    for r in range(2)]}), flush=True)\n"

static harpe_scheduler_kind *start_with(engine *e, const char *source) {
    char path[PATH_MAX];
    char name[2 * PATH_MAX];
    harpe_scheduler_kind *kind = NULL;
    harpe_log log = {engine_log, e};
    (void)snprintf(path, sizeof path, "%s/mortal.py", e->directory);
    assert_int_equal(harpe_file_write(path, source, strlen(source), NULL), HARPE_OK);
    (void)snprintf(name, sizeof name, "program:python3 %s %s/starts", path, e->directory);
    assert_int_equal(harpe_scheduler_kind_open(name, "{}", "{}", 300, log, &kind, NULL), HARPE_OK);
    e->kind = *kind;
    engine_start(e);
    return kind;
}

ENGINE_TEST(program_that_died_is_shown_all_rounds_again) {
    harpe_scheduler_kind *kind = start_with(e, MORTAL("1"));
    const char *job = job_of(e, 2, NULL);
    int expected = 1000;
    for (int k = 0; k < 6; k++) {
        assert_int_equal(whole_round(e, job, 2, k, 10 * k), expected);
        expected += 20 * k + 1;
    }
    assert_int_equal(e->warnings, 1);
    engine_stop(e);
    harpe_scheduler_kind_close(kind);
}

ENGINE_TEST(program_that_dies_again_fails_the_job) {
    harpe_scheduler_kind *kind = start_with(e, MORTAL("2"));
    const char *job = job_of(e, 2, NULL);
    for (int k = 0; k < 3; k++)
        (void)whole_round(e, job, 2, k, 5);
    expect(ask_schedule(e, job, 0, -1), 500, "ended without an answer");
    engine_stop(e);
    harpe_scheduler_kind_close(kind);
}
