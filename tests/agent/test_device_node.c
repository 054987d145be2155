/* SPDX-License-Identifier: Apache-2.0 */
/* The device node that proves the right to a GPU, for a driver that is not emulated and whose GPU
 * the kernel does not know. */
#include "test.h"

#include "agent/agent_internal.h"

#define MINIMAL HARPE_BINARY_DIR "/tests/minimal_nvml.so"

TEST(a_number_of_the_driver_is_no_device_node) {
    harpe_gpus_options how = {.library_path = MINIMAL, .visible_devices = "all"};
    harpe_agent_policy policy = {.device_directory = ""};
    harpe_gpus *gpus = NULL;
    char path[256] = "";
    assert_int_equal(harpe_gpus_open(&how, &gpus, NULL), HARPE_OK);
    assert_false(harpe_gpus_are_emulated(gpus));
    assert_true(harpe_agent_device_node(&policy, gpus, 0, path, sizeof path));
    assert_null(strstr(path, "/dev/nvidia"));
    assert_non_null(strstr(path, "/proc/driver/nvidia/gpus/"));
    harpe_gpus_close(gpus);
}
