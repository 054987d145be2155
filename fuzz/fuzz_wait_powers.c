/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of wait powers. For any bytes, the result is an error of one printable line, or
 * rows within their limits, of which no two are for the same rank and wait. Uses no files. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/plan.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_wait_powers *powers = NULL;
    harpe_error error = {.message = ""};
    harpe_status status =
        harpe_wait_powers_parse_csv((const char *)data, size, "fuzz.csv", &powers, &error);
    if (status != HARPE_OK) {
        require(!powers);
        require(error.status == status);
        require(strncmp(error.message, "fuzz.csv", strlen("fuzz.csv")) == 0);
        require(!strpbrk(error.message, "\n\r\x1B"));
        return 0;
    }
    size_t count = 0;
    const harpe_wait_power *rows = harpe_wait_powers_rows(powers, &count);
    require(count >= 1);
    for (size_t i = 0; i < count; i++) {
        require(rows[i].rank >= -1 && rows[i].rank < 4096);
        require(rows[i].power_w >= 0 && rows[i].power_w <= 1e5);
        require(strlen(rows[i].wait) <= HARPE_INSTRUCTION_NAME_MAX);
        require(!strpbrk(rows[i].wait, " ,\"'\n\r\t\\<>&"));
        for (size_t k = 0; k < i && i < 1000; k++)
            require(rows[i].rank != rows[k].rank || strcmp(rows[i].wait, rows[k].wait) != 0);
    }
    harpe_wait_powers_free(powers);
    return 0;
}
