/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline frequency optimizer with a real server and emulated GPUs, without failures: ranks
 * find each other, rounds go on, clocks follow the schedule, and nothing is left at the end. */
#include <sys/wait.h>

#include "client/training_world.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static harpe_pipeline_frequency_status look_by_old_name(training *one) {
    return harpe_pipeline_frequency_look(one->optimizer);
}
#pragma GCC diagnostic pop

WORLD_TEST(ranks_meet_by_key_and_rounds_go_on) {
    server *one = start_server(files, 3);
    training *ranks[3];
    for (int r = 0; r < 3; r++)
        ranks[r] = start_training(one->url, r, 3);
    for (int r = 0; r < 3; r++) {
        assert_reaches_round(ranks[r], 3);
        assert_string_equal(look(ranks[r]).job_id, look(ranks[0]).job_id);
    }
    for (int r = 0; r < 3; r++) {
        assert_int_equal(look(ranks[r]).misfits, 0);
        assert_int_equal(look(ranks[r]).reconnects, 0);
        assert_true(look(ranks[r]).controller.clock_requests > 0);
        assert_false(clocks_are_back(r));
    }
    for (int r = 0; r < 3; r++) {
        stop_steps(ranks[r]);
        assert_int_equal(count_warnings(ranks[r]), 0);
        assert_true(look_by_old_name(ranks[r]).steps > 0);
        assert_int_equal(look_by_old_name(ranks[r]).steps, look(ranks[r]).steps);
        end_training(ranks[r]);
    }
}

/* ---- The key that rank 0 makes up ------------------------------------------------------------ */

typedef struct broadcaster {
    bool is_root;
    char *wire;
    size_t size;
    int calls;
} broadcaster;

static harpe_status broadcast(void *user, void *data, size_t size, harpe_error *error) {
    broadcaster *one = user;
    (void)error;
    one->calls++;
    one->size = size;
    memcpy(one->is_root ? one->wire : data, one->is_root ? data : one->wire, size);
    return HARPE_OK;
}

WORLD_TEST(ranks_meet_by_broadcast) {
    char wire[256] = "";
    broadcaster ends[] = {{true, wire, 0, 0}, {false, wire, 0, 0}};
    server *one = start_server(files, 2);
    training *ranks[2];
    for (int r = 0; r < 2; r++) {
        ranks[r] = new_training(one->url, r, 2);
        ranks[r]->options.job_key = NULL;
        ranks[r]->options.broadcast = broadcast;
        ranks[r]->options.broadcast_user = &ends[r];
        construct(ranks[r]);
        ranks[r]->thread = start_thread(train, ranks[r]);
    }
    assert_reaches_round(ranks[0], 1);
    assert_reaches_round(ranks[1], 1);
    assert_string_equal(look(ranks[0]).job_id, look(ranks[1]).job_id);
    assert_int_equal(ends[0].calls + ends[1].calls, 2);
    end_training(ranks[0]);
    end_training(ranks[1]);
}

/* Accepts connections and never answers. */
static bool accept_mute(void *user, int socket) {
    (void)user, (void)socket;
    return true;
}

WORLD_TEST(a_server_that_does_not_answer_holds_up_the_meeting_for_seconds) {
    char wire[256] = "";
    static const char url[] = "http://127.0.0.1:7786";
    assert_true(harpe_transport_serve(url, harpe_process_self(), accept_mute, NULL));
    broadcaster ends[] = {{true, wire, 0, 0}, {false, wire, 0, 0}};
    for (int r = 0; r < 2; r++) {
        training *one = new_training(url, r, 2);
        one->options.job_key = NULL;
        one->options.broadcast = broadcast;
        one->options.broadcast_user = &ends[r];
        double begin_s = harpe_clock_s();
        construct(one);
        assert_true(harpe_clock_s() - begin_s < 0.3); /* short_pauses() */
        assert_int_equal(ends[r].calls, 1);
        assert_int_equal(wire[0], 'k');
        assert_int_equal(strlen(wire), 33);
        end_training(one);
    }
}

/* The other ranks wait in the broadcast. */
WORLD_TEST(a_rank_with_wrong_options_takes_part_in_the_broadcast) {
    char wire[256] = "";
    broadcaster ends[] = {{true, wire, 0, 0}, {false, wire, 0, 0}};
    for (int r = 0; r < 2; r++) {
        training *one = new_training("http://127.0.0.1:1", r, 2);
        one->options.job_key = NULL;
        one->options.broadcast = broadcast;
        one->options.broadcast_user = &ends[r];
        if (r == 0) one->options.iterations = -1;
        assert_refuses(harpe_pipeline_frequency_new(&one->options, &one->optimizer, &failure),
                       r == 0 ? HARPE_INVALID_ARGUMENT : HARPE_INVALID_INPUT,
                       r == 0 ? "iterations" : "rank 0");
        assert_int_equal(ends[r].calls, 1);
        end_training(one);
    }
}

static harpe_status broken_broadcast(void *user, void *data, size_t size, harpe_error *error) {
    (void)user, (void)data, (void)size;
    snprintf(error->message, sizeof error->message, "the network is down");
    return HARPE_IO_ERROR;
}

WORLD_TEST(a_broadcast_that_fails_is_an_error) {
    training *one = new_training("http://127.0.0.1:1", 0, 2);
    one->options.job_key = NULL;
    one->options.broadcast = broken_broadcast;
    assert_refuses(harpe_pipeline_frequency_new(&one->options, &one->optimizer, &failure),
                   HARPE_IO_ERROR, "the network is down");
    assert_null(one->optimizer);
    end_training(one);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

WORLD_TEST(a_held_request_does_not_hold_up_the_end) {
    server *one = start_server(files, 2);
    training *lonely = start_training(one->url, 0, 2);
    WAIT_UNTIL(lonely, look(lonely).state == HARPE_PFO_WAITING);
    stop_steps(lonely);
    pause_s(0.3); /* the request is held */
    double begin_s = harpe_clock_s();
    end_training(lonely);
    assert_true(harpe_clock_s() - begin_s < LIMIT_S); /* the server holds it without end */
}

/* Forks like workers that load data: with a copy of the whole memory. */
WORLD_TEST(a_forked_child_disturbs_nothing) {
    server *one = start_server(files, 1);
    training *trainer = start_training(one->url, 0, 1);
    assert_reaches_round(trainer, 1);
    pid_t child = fork();
    if (child == 0) {
        harpe_pipeline_frequency_on_step_begin(trainer->optimizer);
        harpe_pipeline_frequency_on_instruction_begin(trainer->optimizer, "nonsense");
        harpe_pipeline_frequency_on_step_end(trainer->optimizer);
        (void)look(trainer);
        harpe_pipeline_frequency_free(trainer->optimizer);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_reaches_round(trainer, look(trainer).round + 2);
    assert_false(clocks_are_back(0));
    assert_int_equal(look(trainer).misfits, 0);
    end_training(trainer);
}

WORLD_TEST(a_restarted_rank_goes_on_in_its_job) {
    server *one = start_server(files, 2);
    training *ranks[] = {start_training(one->url, 0, 2), start_training(one->url, 1, 2)};
    assert_reaches_round(ranks[0], 1);
    end_training(ranks[1]);
    ranks[1] = start_training(one->url, 1, 2);
    assert_reaches_round(ranks[1], look(ranks[0]).round + 2);
    assert_string_equal(look(ranks[0]).job_id, look(ranks[1]).job_id);
    end_training(ranks[0]);
    end_training(ranks[1]);
}

/* ---- Options --------------------------------------------------------------------------------- */

typedef struct bad_option {
    void (*spoil)(harpe_pipeline_frequency_options *options);
    const char *message;
} bad_option;

#define SPOIL(name, change) \
    static void name(harpe_pipeline_frequency_options *options) { change; }
SPOIL(no_stages, options->pp_degree = 0)
SPOIL(rank_outside, options->rank = 2)
SPOIL(negative_place, options->tp_rank = -1)
SPOIL(wrong_product, options->world_size = 6)
SPOIL(huge_degrees, options->pp_degree = options->dp_degree = options->tp_degree = 2000000000)
SPOIL(no_server, options->server_url = NULL)
SPOIL(odd_server, options->server_url = "localhost:7787")
SPOIL(no_host, options->server_url = "http:///")
SPOIL(no_key, options->job_key = NULL)
SPOIL(empty_key, options->job_key = "")
SPOIL(negative_device, options->device_id = -1)
SPOIL(negative_iterations, options->iterations = -1)
SPOIL(unknown_mark, options->mark = (harpe_mark)3)
SPOIL(nothing_to_synchronize, options->mark = HARPE_MARK_SYNCHRONIZED)

WORLD_TEST(bad_options_are_named) {
    static const bad_option bad[] = {{no_stages, "pp_degree must be at least 1"},
                                     {rank_outside, "rank must be from 0 to 1"},
                                     {negative_place, "tp_rank must be from 0 to 1"},
                                     {wrong_product, "6 is not 1 * 1 * 2"},
                                     {huge_degrees, "world_size must be"},
                                     {no_server, "server_url: expected http://"},
                                     {odd_server, "found 'localhost:7787'"},
                                     {no_host, "server_url: expected"},
                                     {no_key, "same job_key, or a broadcast"},
                                     {empty_key, "1 to 256 bytes, not 0"},
                                     {negative_device, "device_id"},
                                     {negative_iterations, "iterations must be"},
                                     {unknown_mark, "no such mark: 3"},
                                     {nothing_to_synchronize, "needs `synchronize`"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        training *one = new_training("http://127.0.0.1:1", 0, 2);
        one->options.pp_degree = 1;
        one->options.tp_degree = 2;
        bad[i].spoil(&one->options);
        assert_refuses(harpe_pipeline_frequency_new(&one->options, &one->optimizer, &failure),
                       HARPE_INVALID_ARGUMENT, bad[i].message);
        assert_null(one->optimizer);
        free(one);
    }
}

WORLD_TEST(without_an_optimizer_calls_do_nothing) {
    harpe_pipeline_frequency_on_step_begin(NULL);
    harpe_pipeline_frequency_on_instruction_begin(NULL, "forward");
    harpe_pipeline_frequency_on_instruction_end(NULL, "forward");
    harpe_pipeline_frequency_on_step_end(NULL);
    assert_works(harpe_pipeline_frequency_check(NULL, &failure));
    assert_int_equal(harpe_pipeline_frequency_get_status(NULL).round, -1);
    harpe_pipeline_frequency_free(NULL);
}
