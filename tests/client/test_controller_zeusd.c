/* SPDX-License-Identifier: Apache-2.0 */
/* The frequency controller with a zeusd that refuses, goes away, or comes back. The
 * stand-in only answers; it changes no GPU. */
#include "client/control.h"
#include "client/training_world.h"
#include "world/scripted_server.h"

/* ---- A zeusd --------------------------------------------------------------------------------- */

typedef struct zeusd {
    scripted_server server;
    char path[100];
    const char *refused[2]; /* routes whose answer is `refusal` */
    const char *refusal;
    const char *devices; /* the answer to GET /discover; NULL: "200 OK", which is no list */
    int discovers;       /* requests for it */
    char numbers[512];   /* of GPUs, in the requests so far: " 3 3" */
} zeusd;

static bool answer(void *user, int peer, const char *request, const char *unused) {
    zeusd *one = user;
    const char *status = "200 OK", *body = NULL;
    const char *number = strstr(request, "gpu_ids=");
    (void)unused;
    if (strncmp(request, "GET /discover ", 14) == 0) {
        one->discovers++;
        body = one->devices;
    }
    size_t length = strlen(one->numbers);
    if (number && length + 12 < sizeof one->numbers)
        snprintf(one->numbers + length, 12, " %d", atoi(number + 8));
    for (size_t i = 0; i < 2; i++)
        if (one->refused[i] && strstr(request, one->refused[i])) status = one->refusal;
    return send_answer(peer, status, "", body ? body : status);
}

static void start_zeusd(zeusd *one, const char *folder) {
    snprintf(one->path, sizeof one->path, "%s/zeusd.sock", folder);
    one->server = (scripted_server){.name = one->path, .answer = answer, .user = one};
    start_scripted(&one->server);
}

static void stop_zeusd(zeusd *one) { stop_scripted(&one->server); }

/* ---- Refusals -------------------------------------------------------------------------------- */

static harpe_status start_controller(const zeusd *one, harpe_frequency_controller **out,
                                     harpe_error *error) {
    harpe_gpus *gpus = NULL;
    assert_works(harpe_gpus_open(NULL, &gpus, &failure));
    assert_works(harpe_gpu_set_power_limit(gpus, 0, 250000, &failure));
    harpe_frequency_controller_options options = {.gpus = gpus, .zeusd_socket = one->path};
    harpe_status status = harpe_frequency_controller_start(&options, out, error);
    harpe_gpus_close(gpus);
    return status;
}

WORLD_TEST(only_the_graphics_clock_must_be_allowed) {
    harpe_frequency_controller *controller = NULL;
    zeusd one = {.refused = {"/gpu/set_power_limit", "/gpu/set_mem_locked_clocks"},
                 .refusal = "403 Forbidden"};
    start_zeusd(&one, files->root);
    harpe_status status = start_controller(&one, &controller, &failure);
    if (status != HARPE_OK) print_error("%s\n", failure.message);
    assert_int_equal(status, HARPE_OK);
    harpe_frequency_controller_stop(controller);
    stop_zeusd(&one);
    one.refused[0] = "/gpu/set_gpu_locked_clocks";
    start_zeusd(&one, files->root);
    assert_int_equal(start_controller(&one, &controller, &failure), HARPE_PERMISSION_DENIED);
    stop_zeusd(&one);
}

/* ---- Putting back ---------------------------------------------------------------------------- */

static void open_gpu(const zeusd *one, harpe_controller_gpu *gpu) {
    harpe_gpus *gpus = NULL;
    harpe_controller_header header = {.library_path = EMULATOR};
    assert_works(harpe_gpus_open(NULL, &gpus, &failure));
    snprintf(header.uuid, sizeof header.uuid, "%s", harpe_gpu_info_at(gpus, 0)->uuid);
    snprintf(header.zeusd.place.socket, sizeof header.zeusd.place.socket, "%s", one->path);
    harpe_gpus_close(gpus);
    assert_works(harpe_controller_gpu_open(&header, gpu, &failure));
}

/* Restores what a controller has changed through a zeusd that answers `refusal` to the reset of the
 * graphics clock. */
static harpe_status restore_changed(const char *folder, unsigned changed, const char *refusal,
                                    zeusd *one) {
    harpe_controller_gpu gpu;
    harpe_holding holding = {.record.state = {.persistence = -1, .resets_clocks = true},
                             .changed = changed};
    *one =
        (zeusd){.refused = {refusal ? "/gpu/reset_gpu_locked_clocks" : NULL}, .refusal = refusal};
    start_zeusd(one, folder);
    open_gpu(one, &gpu);
    harpe_status status =
        harpe_controller_gpu_restore(&gpu, &holding, HARPE_ALL_SETTINGS, &failure);
    harpe_controller_gpu_close(&gpu);
    stop_zeusd(one);
    return status;
}

WORLD_TEST(what_is_changed_is_restored_and_nothing_else) {
    zeusd one;
    assert_int_equal(restore_changed(files->root, HARPE_ALL_SETTINGS, NULL, &one), HARPE_OK);
    assert_string_equal(one.numbers, " 0 0");
    assert_int_equal(restore_changed(files->root, 1 << HARPE_SET_MEMORY_CLOCKS, NULL, &one),
                     HARPE_OK);
    assert_string_equal(one.numbers, " 0");
    assert_int_equal(restore_changed(files->root, 0, NULL, &one), HARPE_OK);
    assert_string_equal(one.numbers, "");
}

WORLD_TEST(a_lost_gpu_is_not_tried_again) {
    zeusd one;
    assert_int_equal(restore_changed(files->root, HARPE_ALL_SETTINGS, "500 the GPU is lost", &one),
                     HARPE_GPU_LOST);
    assert_string_equal(one.numbers, " 0 0"); /* the memory clock is reset nevertheless */
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* Resets the clocks of GPU 0, which is at 0000:07:00.0, through a zeusd that lists these devices.
 */
static harpe_status reset_at(const char *folder, const char *devices, zeusd *one,
                             harpe_error *error) {
    harpe_gpus *gpus = NULL;
    harpe_zeusd *client = NULL;
    harpe_zeusd_address address = {.token = ""};
    *one = (zeusd){.devices = devices};
    start_zeusd(one, folder);
    snprintf(address.place.socket, sizeof address.place.socket, "%s", one->path);
    assert_works(harpe_gpus_open(NULL, &gpus, &failure));
    assert_works(harpe_zeusd_open(&address, harpe_gpu_info_at(gpus, 0), &client, &failure));
    harpe_status status = HARPE_OK;
    for (int i = 0; i < 2 && status == HARPE_OK; i++)
        status = harpe_zeusd_call(client, error, "reset_gpu_locked_clocks", "%s", "");
    harpe_zeusd_close(client);
    harpe_gpus_close(gpus);
    stop_zeusd(one);
    return status;
}

WORLD_TEST(a_gpu_has_the_number_that_it_has_in_zeusd) {
    zeusd one;
    /* zeusd has started before the GPUs were numbered anew. */
    assert_works(reset_at(files->root,
                          "{\"gpus\":[{\"id\":0,\"pci_address\":\"0000:03:00.0\"},"
                          "{\"id\":1,\"pci_address\":\"0000:07:00.0\"},{\"id\":2,\"pci_"
                          "address\":\"0000:0f:00.0\"}]}",
                          &one, &failure));
    assert_string_equal(one.numbers, " 1 1");
    assert_int_equal(one.discovers, 1);
    assert_refuses(reset_at(files->root, "{\"gpus\":[{\"id\":0,\"pci_address\":\"0000:0f:00.0\"}]}",
                            &one, &failure),
                   HARPE_NOT_FOUND, "zeusd has no GPU at 00000000:07:00.0: restart zeusd");
    assert_string_equal(one.numbers, "");
}

WORLD_TEST(a_zeusd_without_addresses_gets_the_driver_s_number) {
    static const char *const devices[] = {NULL,
                                          "",
                                          "[]",
                                          "{\"gpus\":7}",
                                          "{\"gpus\":[{\"id\":5,\"name\":\"A100\"},{\"id\":6}]}",
                                          "{\"gpus\":[{\"id\":\"x\",\"pci_address\":7}]}"};
    zeusd one;
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        assert_works(reset_at(files->root, devices[i], &one, &failure));
        assert_string_equal(one.numbers, " 0 0");
    }
}

/* ---- Going away ------------------------------------------------------------------------------ */

WORLD_TEST(a_zeusd_that_goes_away_and_comes_back_is_one_line_each) {
    zeusd one = {.refusal = ""};
    server *plans = start_server(files, 1);
    start_zeusd(&one, files->root);
    training *rank = new_training(plans->url, 0, 1);
    rank->options.controller.zeusd_socket = one.path;
    begin_training(rank);
    WAIT_UNTIL(rank, look(rank).controller.written > 2);
    stop_zeusd(&one);
    WAIT_UNTIL(rank, count_lines(rank, "clocks are not controlled") == 1);
    uint64_t failed = look(rank).controller.failed;
    WAIT_UNTIL(rank, look(rank).controller.failed > failed + 2);
    assert_int_equal(count_lines(rank, "clocks are controlled again"), 0);
    start_zeusd(&one, files->root);
    WAIT_UNTIL(rank, count_lines(rank, "clocks are controlled again") == 1);
    assert_int_equal(count_warnings(rank), 1);
    assert_trains_on(rank);
    end_training(rank);
}
