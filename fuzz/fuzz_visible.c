/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of CUDA_VISIBLE_DEVICES with any text. The result must be distinct GPUs of the
 * machine. A refused text must have an error of one line and must not change the outputs. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/visible.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DEVICES = 5, UNTOUCHED = 77 };

static const char *const uuids[DEVICES] = {"GPU-00000000-1", "GPU-00000001-1", "GPU-abcdef01-2",
                                           "GPU-abcdef02-2", "GPU-ffffffff-3"};

static void require(bool holds) {
    if (!holds) abort();
}

static void check(const char *text, size_t device_count) {
    int indices[DEVICES] = {UNTOUCHED};
    size_t count = UNTOUCHED;
    harpe_error error = {0};
    harpe_status status = harpe_visible_parse(text, uuids, device_count, indices, &count, &error);
    if (status != HARPE_OK) {
        require(count == UNTOUCHED && indices[0] == UNTOUCHED);
        require(error.status == status && error.message[0] != '\0');
        require(!strchr(error.message, '\n'));
        return;
    }
    require(count <= device_count);
    unsigned seen = 0;
    for (size_t i = 0; i < count; i++) {
        require(indices[i] >= 0 && (size_t)indices[i] < device_count);
        require(!(seen >> indices[i] & 1));
        seen |= 1U << indices[i];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    require(text != NULL);
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    for (size_t devices = 0; devices <= DEVICES; devices++)
        check(text, devices);
    free(text);
    return 0;
}
