/* SPDX-License-Identifier: Apache-2.0 */
/* Reads CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as CUDA does, so that Harpe's GPU 0 is the
 * training process's GPU 0. It opens no driver library.
 *
 * Sources: CUDA C++ Programming Guide, "CUDA Environment Variables" (indices, abbreviated UUIDs,
 * an invalid entry ends the list). PyTorch relies on three more rules: a repeated entry hides all
 * devices, indices are read like strtoul, and the first entry decides the kind
 * (torch/cuda/__init__.py, _parse_visible_devices and its tests). */
#include "gpu/visible.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

enum {
    TEXT_LENGTH_MAX = 65536,
    INVALID_ENTRY = -1,
    SHORTEST_ADDRESS = 7, /* "01:00.0" */
    UUID_LENGTH = 40,
};

int harpe_pci_address_compare(const harpe_pci_address *a, const harpe_pci_address *b) {
    if (a->domain != b->domain) return a->domain < b->domain ? -1 : 1;
    if (a->bus != b->bus) return a->bus < b->bus ? -1 : 1;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    return 0;
}

bool harpe_pci_address_matches(const char *text, const char *address) {
    size_t length = strlen(text);
    size_t full = strlen(address);
    return length >= SHORTEST_ADDRESS && length <= full &&
           strcasecmp(text, address + (full - length)) == 0;
}

bool harpe_visible_is_uuid(const char *text, size_t length) {
    return length == UUID_LENGTH && memcmp(text, "GPU-", 4) == 0 && !memchr(text, ',', length);
}

bool harpe_device_order_parse(const char *text, bool *is_pci_order) {
    bool is_pci = text && strcmp(text, "PCI_BUS_ID") == 0;
    if (!is_pci && text && *text && strcmp(text, "FASTEST_FIRST") != 0) return false;
    *is_pci_order = is_pci;
    return true;
}

/* ---- One entry ------------------------------------------------------------------------------- */

typedef struct entry {
    const char *text;
    size_t length;
} entry;

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool starts_with(const entry *given, const char *prefix) {
    size_t length = strlen(prefix);
    return given->length >= length && memcmp(given->text, prefix, length) == 0;
}

/* Returns the entry that starts at `text`, without white space around it. */
static entry entry_at(const char *text) {
    entry found = {text, strcspn(text, ",")};
    while (found.length > 0 && is_space(found.text[0])) {
        found.text++;
        found.length--;
    }
    while (found.length > 0 && is_space(found.text[found.length - 1]))
        found.length--;
    return found;
}

/* Returns the index of an entry. "2", "+2", "-0" and "2gpu" are valid indices. -1, an index that
 * is too large, and an entry without digits are invalid. */
static int find_index(const entry *given, size_t device_count) {
    size_t i = given->length > 0 && (given->text[0] == '+' || given->text[0] == '-') ? 1 : 0;
    if (i >= given->length || !is_digit(given->text[i])) return INVALID_ENTRY;
    size_t index = 0;
    for (; i < given->length && is_digit(given->text[i]); i++) {
        index = index * 10 + (size_t)(given->text[i] - '0');
        if (index >= device_count) return INVALID_ENTRY;
    }
    return given->text[0] == '-' && index != 0 ? INVALID_ENTRY : (int)index;
}

/* Finds the only GPU whose UUID begins with the entry. */
static int find_uuid(const entry *given, const char *const *uuids, size_t device_count) {
    if (!starts_with(given, "GPU-")) return INVALID_ENTRY;
    int found = INVALID_ENTRY;
    for (size_t i = 0; i < device_count; i++) {
        if (strncmp(uuids[i], given->text, given->length) != 0) continue;
        if (found != INVALID_ENTRY) return INVALID_ENTRY; /* ambiguous */
        found = (int)i;
    }
    return found;
}

/* ---- The list -------------------------------------------------------------------------------- */

static bool contains(const int *indices, size_t count, int index) {
    for (size_t i = 0; i < count; i++)
        if (indices[i] == index) return true;
    return false;
}

static harpe_status fail_mig(const entry *given, harpe_error *error) {
    int length = given->length < 80 ? (int)given->length : 80;
    return harpe_fail(error, HARPE_UNAVAILABLE,
                      "CUDA_VISIBLE_DEVICES names the MIG instance '%.*s', which has no power, "
                      "clocks or energy of its own: give whole GPUs (nvidia-smi -L), or turn MIG "
                      "off (nvidia-smi -mig 0)",
                      length, given->text);
}

harpe_status harpe_visible_parse(const char *text, const char *const *uuids, size_t device_count,
                                 int *indices, size_t *count, harpe_error *error) {
    if (strnlen(text, TEXT_LENGTH_MAX + 1) > TEXT_LENGTH_MAX || device_count > INT_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "CUDA_VISIBLE_DEVICES is longer than %d characters", TEXT_LENGTH_MAX);
    int *found = calloc(device_count + 1, sizeof *found);
    if (!found) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    size_t found_count = 0;
    bool is_uuid_list = false;
    for (const char *cursor = text; cursor; cursor = strchr(cursor, ',')) {
        cursor += cursor != text; /* skips the comma */
        entry given = entry_at(cursor);
        if (starts_with(&given, "MIG-")) {
            status = fail_mig(&given, error);
            goto done;
        }
        if (found_count == 0) is_uuid_list = starts_with(&given, "GPU-");
        int index = is_uuid_list ? find_uuid(&given, uuids, device_count)
                                 : find_index(&given, device_count);
        if (index == INVALID_ENTRY) break;
        if (contains(found, found_count, index)) {
            found_count = 0;
            break;
        }
        found[found_count++] = index;
    }
    memcpy(indices, found, found_count * sizeof *indices);
    *count = found_count;
done:
    free(found);
    return status;
}
