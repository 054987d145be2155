/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a machine's GPUs a training process sees, and in which order: CUDA_VISIBLE_DEVICES as
 * CUDA reads it. Pure text work; asks no driver. */
#ifndef HARPE_GPU_VISIBLE_H
#define HARPE_GPU_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

typedef struct harpe_pci_address {
    unsigned domain, bus, device;
} harpe_pci_address;

/* Order of CUDA_DEVICE_ORDER=PCI_BUS_ID; for qsort-like use. */
int harpe_pci_address_compare(const harpe_pci_address *a, const harpe_pci_address *b);

/* CUDA_DEVICE_ORDER as text; NULL and "" are CUDA's default, FASTEST_FIRST. False: neither. */
bool harpe_device_order_parse(const char *text, bool *is_pci_order);

/* Reads `text` (never NULL) for a machine with `device_count` GPUs, whose UUIDs are given in the
 * order in which CUDA counts them. `indices` has room for `device_count`; it receives positions in
 * `uuids`, `*count` how many. As CUDA does it:
 *   - entries are indices, or "GPU-" and the first digits of a UUID (enough to be unique); the
 * first entry decides which, an entry of the other kind is invalid;
 *   - an index is read as strtoul does: white space before and anything after it are ignored;
 *   - the first invalid entry (negative, too large, ambiguous, not there) ends the list;
 *   - a GPU named twice before that hides all GPUs;
 *   - an empty text hides all GPUs.
 * A MIG instance is HARPE_INVALID_INPUT: it has no power, clocks or energy of its own.
 * At most 65536 characters. Cost: entries * devices. */
harpe_status harpe_visible_parse(const char *text, const char *const *uuids, size_t device_count,
                                 int *indices, size_t *count, harpe_error *error);

#endif
