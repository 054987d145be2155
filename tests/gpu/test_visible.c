/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA_VISIBLE_DEVICES as CUDA reads it: a table of lists and the devices that each list makes
 * visible. */
#include "test.h"

#include "gpu/visible.h"

static const char *const uuids[] = {
    "GPU-11111111-aaaa-0000-0000-000000000000",
    "GPU-11112222-bbbb-0000-0000-000000000000",
    "GPU-33333333-cccc-0000-0000-000000000000",
    "GPU-44444444-dddd-0000-0000-000000000000",
};
enum { DEVICES = 4 };

typedef struct visible_case {
    const char *text;
    const char *expected; /* one digit per visible device */
} visible_case;

static const visible_case cases[] = {
    {"", ""},
    {" ", ""},
    {",", ""},
    {"0", "0"},
    {"2,1", "21"},
    {"3,2,1,0", "3210"},
    {"0, 1 ,\t2", "012"},
    {"0,2,-1,1", "02"}, /* the programming guide's own example */
    {"-1", ""},
    {"-1,0", ""},
    {"0,-0", ""}, /* the same device twice */
    {"2,+3,-0", "230"},
    {"1gpu2,2ampere", "12"},
    {"0,4,1", "0"},
    {"4", ""},
    {"0,99999999999999999999999999,1", "0"},
    {"0,,1", "0"},
    {"0,1,", "01"},
    {"one,two,3", ""},
    {"0,x", "0"},
    {"+,0", ""},
    {"0x1", "0"},
    {"0,1,2,1", ""}, /* a repeated device hides all */
    {"0,9,0", "0"},  /* entries after an invalid one have no effect */
    {"all", ""},
    {"none", ""},
    {"NoDevFiles", ""},
    {"GPU-33333333-cccc-0000-0000-000000000000", "2"},
    {"GPU-3", "2"},
    {"GPU-4,GPU-3", "32"},
    {"GPU-1111", ""}, /* two devices begin with this text */
    {"GPU-11111,GPU-11112", "01"},
    {"GPU-3,GPU-1111,GPU-4", "2"},
    {"GPU-9,GPU-3", ""},
    {"GPU-", ""},
    {"GPU-33333333-cccc-0000-0000-0000000000001", ""}, /* longer than any UUID */
    {"gpu-3", ""},
    {"GPU-3,GPU-33", ""}, /* the same device twice, written differently */
    {"GPU-3,0", "2"},     /* of the other kind: invalid */
    {"0,GPU-3", "0"},
};

TEST(lists_are_read_as_cuda_reads_them) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int indices[DEVICES] = {0};
        size_t count = 99;
        harpe_error error = {0};
        harpe_status status =
            harpe_visible_parse(cases[i].text, uuids, DEVICES, indices, &count, &error);
        char found[DEVICES + 1] = "";
        for (size_t k = 0; k < count && k < DEVICES; k++)
            found[k] = (char)('0' + indices[k]);
        if (status != HARPE_OK || strcmp(found, cases[i].expected) != 0) {
            fail_msg("'%s': expected [%s], found [%s], status %d", cases[i].text, cases[i].expected,
                     found, (int)status);
        }
    }
}

TEST(a_mig_instance_is_refused_and_outputs_stay) {
    static const char *const texts[] = {"MIG-89c850dc", "MIG-GPU-33333333-cccc/1/0", "0,MIG-1",
                                        "GPU-3,MIG-1"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        int indices[DEVICES] = {7, 7, 7, 7};
        size_t count = 99;
        harpe_error error = {0};
        harpe_status status =
            harpe_visible_parse(texts[i], uuids, DEVICES, indices, &count, &error);
        assert_int_equal(status, HARPE_UNAVAILABLE);
        assert_non_null(strstr(error.message, "MIG"));
        assert_int_equal(count, 99);
        assert_int_equal(indices[0], 7);
    }
}

TEST(a_mig_instance_behind_the_end_does_not_matter) {
    int indices[DEVICES];
    size_t count = 99;
    assert_int_equal(harpe_visible_parse("1,-1,MIG-1", uuids, DEVICES, indices, &count, NULL),
                     HARPE_OK);
    assert_int_equal(count, 1);
    assert_int_equal(indices[0], 1);
}

TEST(no_devices_make_any_list_empty) {
    int indices[1];
    size_t count = 99;
    assert_int_equal(harpe_visible_parse("0,1", NULL, 0, indices, &count, NULL), HARPE_OK);
    assert_int_equal(count, 0);
}

TEST(an_endless_list_is_refused) {
    enum { LENGTH = 70000 };
    char *text = malloc(LENGTH + 1);
    assert_non_null(text);
    memset(text, ',', LENGTH);
    text[LENGTH] = '\0';
    int indices[DEVICES];
    size_t count = 99;
    assert_int_equal(harpe_visible_parse(text, uuids, DEVICES, indices, &count, NULL),
                     HARPE_LIMIT_EXCEEDED);
    free(text);
}

TEST(device_order_has_two_names) {
    bool is_pci = true;
    assert_true(harpe_device_order_parse(NULL, &is_pci) && !is_pci);
    is_pci = true;
    assert_true(harpe_device_order_parse("", &is_pci) && !is_pci);
    is_pci = true;
    assert_true(harpe_device_order_parse("FASTEST_FIRST", &is_pci) && !is_pci);
    assert_true(harpe_device_order_parse("PCI_BUS_ID", &is_pci) && is_pci);
    assert_false(harpe_device_order_parse("pci_bus_id", &is_pci));
    assert_true(is_pci);
}

TEST(pci_order_is_domain_then_bus_then_device) {
    const harpe_pci_address sorted[] = {{0, 0x1a, 0}, {0, 0x1a, 1}, {0, 0x3b, 0}, {1, 0x05, 0}};
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 4; k++) {
            int order = harpe_pci_address_compare(&sorted[i], &sorted[k]);
            assert_int_equal((order > 0) - (order < 0), (i > k) - (i < k));
        }
    }
}
