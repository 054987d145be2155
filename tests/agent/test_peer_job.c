/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the agent finds out about a process that asks: its capabilities, and its job, from its
 * cgroups or from the process itself. */
#include "test.h"

#include "agent/agent_internal.h"

static void assert_job(const char *cgroups, const char *expected) {
    char job[HARPE_PEER_TEXT];
    harpe_peer_parse_job(cgroups, job);
    assert_string_equal(job, expected);
}

TEST(test_cgroups_name_the_job) {
    assert_job("0::/system.slice/slurmstepd.scope/job_1234/step_batch/user/task_0\n",
               "Slurm job 1234");
    assert_job("9:memory:/slurm/uid_1000/job_77/step_0\n8:cpu:/slurm/uid_1000\n", "Slurm job 77");
    assert_job("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-"
               "pod0a1b2c3d_1111_2222_3333_444455556666.slice/cri-containerd-ff.scope\n",
               "pod 0a1b2c3d-1111-2222-3333-444455556666");
    assert_job("0::/user.slice/user-1000.slice/session-3.scope\n", "");
    assert_job("0::/slurm/job_x\n", "");
    assert_job("", "");
}

static void assert_noted(const char *job, const char *said, const char *expected) {
    harpe_peer peer = {.pidfd = -1};
    memcpy(peer.job, job, strlen(job) + 1);
    harpe_peer_note_job(&peer, said);
    assert_string_equal(peer.job, expected);
}

TEST(test_a_process_says_its_job) {
    assert_noted("", "12", "Slurm job 12 (as it says)");
    assert_noted("", "18446744073709551615", "Slurm job 18446744073709551615 (as it says)");
    assert_noted("", NULL, "");
    assert_noted("", "", "");
    assert_noted("", "-1", "");
    assert_noted("", "12\nGPU 0 (root): granted", "");
    assert_noted("", "12 ", "");
    assert_noted("", "123456789012345678901", "");
}

TEST(test_the_kernel_is_believed_before_the_process) {
    assert_noted("Slurm job 5", "12", "Slurm job 5");
    assert_noted("pod 0a1b2c3d-1111-2222-3333-444455556666", "12",
                 "pod 0a1b2c3d-1111-2222-3333-444455556666");
}

TEST(test_capabilities) {
    uint64_t found = 7;
    assert_true(harpe_peer_parse_capabilities(
        "Name:\tx\nCapPrm:\t0000000000000001\nCapEff:\t0000000000200000\nCapBnd:\t1\n", &found));
    assert_int_equal(found, 1u << 21);
    assert_true(harpe_peer_parse_capabilities("\nCapEff:\t000001ffffffffff\n", &found));
    assert_true(found == UINT64_C(0x1ffffffffff));
    assert_false(harpe_peer_parse_capabilities("\nCapEff:\t00000020", &found)); /* cut off */
    assert_false(harpe_peer_parse_capabilities("Name:\tCapEff:\t1\n", &found));
    assert_false(harpe_peer_parse_capabilities("\nCapEff:\t\n", &found));
    assert_false(harpe_peer_parse_capabilities("", &found));
}
