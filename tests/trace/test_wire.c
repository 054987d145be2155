/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of Protocol Buffers' wire format. The expected bytes are the examples of
 * https://protobuf.dev/programming-guides/encoding/, and the edges of each type. */
#include "test.h"

#include "trace/trace.h"

#define WIRE(...) wire_of((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static harpe_wire wire_of(const uint8_t *bytes, size_t length) {
    return (harpe_wire){bytes, bytes + length};
}

TEST(varints_have_seven_bits_in_each_byte) {
    uint64_t value = 0;
    harpe_wire wire = WIRE(0x00, 0x01, 0x96, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                           0xff, 0x01, 0x80, 0x00);
    static const uint64_t expected[] = {0, 1, 150, UINT64_MAX, 0};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_true(harpe_wire_varint(&wire, &value));
        assert_true(value == expected[i]);
    }
    assert_ptr_equal(wire.next, wire.end);
    assert_false(harpe_wire_varint(&wire, &value));
}

TEST(varint_that_is_cut_off_or_too_long_is_refused) {
    uint64_t value = 7;
    harpe_wire cut = WIRE(0xff, 0xff);
    harpe_wire beyond =
        WIRE(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02); /* 2^64 and more */
    harpe_wire long_zero = WIRE(0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00);
    harpe_wire *all[] = {&cut, &beyond, &long_zero};
    for (size_t i = 0; i < 3; i++) {
        const uint8_t *before = all[i]->next;
        assert_false(harpe_wire_varint(all[i], &value));
        assert_ptr_equal(all[i]->next, before);
    }
    assert_int_equal(value, 7);
}

TEST(fields_have_a_number_and_a_type) {
    harpe_wire_field field;
    harpe_wire wire = WIRE(0x08, 0x96, 0x01,                /* 1: 150 */
                           0x12, 0x02, 0x68, 0x69,          /* 2: "hi" */
                           0x1d, 0x01, 0x02, 0x03, 0x04,    /* 3: four bytes */
                           0x21, 1, 0, 0, 0, 0, 0, 0, 0x80, /* 4: eight bytes */
                           0xfa, 0xff, 0xff, 0xff, 0x0f, 0x00 /* 2^29 - 1: no bytes */);
    assert_true(harpe_wire_field_next(&wire, &field));
    assert_true(field.number == 1 && field.type == HARPE_WIRE_VARINT && field.value == 150);
    assert_true(harpe_wire_field_next(&wire, &field));
    assert_true(field.number == 2 && field.type == HARPE_WIRE_BYTES);
    assert_int_equal(field.bytes.end - field.bytes.next, 2);
    assert_memory_equal(field.bytes.next, "hi", 2);
    assert_true(harpe_wire_field_next(&wire, &field));
    assert_true(field.number == 3 && field.type == HARPE_WIRE_FIXED32);
    assert_true(field.value == 0x04030201);
    assert_true(harpe_wire_field_next(&wire, &field));
    assert_true(field.type == HARPE_WIRE_FIXED64 && field.value == 0x8000000000000001U);
    assert_true(harpe_wire_field_next(&wire, &field));
    assert_true(field.number == (1U << 29) - 1 && field.bytes.next == field.bytes.end);
    assert_ptr_equal(wire.next, wire.end);
}

TEST(damaged_field_is_refused) {
    harpe_wire_field field;
    harpe_wire all[] = {
        WIRE(0x00, 0x01),             /* the number 0 */
        WIRE(0x0b, 0x0c),             /* a group */
        WIRE(0x0f, 0x00),             /* a type that does not exist */
        WIRE(0x0a, 0x05, 0x68, 0x69), /* fewer bytes than its length */
        WIRE(0x0d, 0x01, 0x02, 0x03), /* three of four bytes */
        WIRE(0x08),                   /* no value */
        WIRE(0xf8, 0xff, 0xff, 0xff, 0xff, 0x01, 0x00) /* a number beyond 2^29 */,
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const uint8_t *before = all[i].next;
        assert_false(harpe_wire_field_next(&all[i], &field));
        assert_ptr_equal(all[i].next, before);
    }
}
