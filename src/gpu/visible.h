/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which of a machine's GPUs a training process sees, and in which order, by reading
 * CUDA_VISIBLE_DEVICES as CUDA does. It only processes text and calls no driver. */
#ifndef HARPE_GPU_VISIBLE_H
#define HARPE_GPU_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

typedef struct harpe_pci_address {
    unsigned domain, bus, device;
} harpe_pci_address;

/* Compares addresses in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID, like a function for qsort. */
int harpe_pci_address_compare(const harpe_pci_address *a, const harpe_pci_address *b);
/* Returns true if a user's text means the PCI address. The domain in the text may have fewer digits
 * or be missing. */
bool harpe_pci_address_matches(const char *text, const char *address);

/* Returns true if a text is the whole UUID of an NVIDIA GPU: "GPU-" and 36 characters. */
bool harpe_visible_is_uuid(const char *text, size_t length);

/* Reads CUDA_DEVICE_ORDER. NULL and "" mean CUDA's default, FASTEST_FIRST. Returns false for an
 * unknown value. */
bool harpe_device_order_parse(const char *text, bool *is_pci_order);

/* Reads `text` (never NULL) for a machine with `device_count` GPUs, whose UUIDs are given in the
 * order in which CUDA counts them. `indices` has room for `device_count` numbers and receives
 * positions in `uuids`; `*count` receives how many. The rules are those of CUDA:
 *
 *   - an entry is an index, or "GPU-" and enough digits of a UUID to be unique;
 *   - the first entry decides between indices and UUIDs; an entry of the other kind is invalid;
 *   - an index is read as strtoul does: white space before and anything after it are ignored;
 *   - the first invalid entry (negative, too large, ambiguous, not there) ends the list;
 *   - a GPU that is named twice before an invalid entry hides all GPUs;
 *   - an empty text hides all GPUs.
 *
 * Fails with HARPE_UNAVAILABLE for a MIG instance, which has no power, clocks or energy of its
 * own. Accepts at most 65536 characters. Takes time proportional to entries * devices. */
harpe_status harpe_visible_parse(const char *text, const char *const *uuids, size_t device_count,
                                 int *indices, size_t *count, harpe_error *error);

#endif
