/* SPDX-License-Identifier: Apache-2.0 */
/* A disk in memory for the stores of a world. SQLite uses the disk through a VFS, and the store
 * keeps its other files there (harpe_store_files). A store on the disk "a" has an address such as
 * "world:a/harpe.db".
 *
 * All processes see a write at once. A crash keeps a write for certain only if it was synced
 * before. The seed decides all faults. Only one thread may use a disk at a time, as in a world. */
#ifndef HARPE_WORLD_DISK_H
#define HARPE_WORLD_DISK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct harpe_disk harpe_disk;

/* Each change of a file counts as a write, also a new length, a new name or a removal. */
typedef struct harpe_disk_counts {
    uint64_t writes, syncs; /* attempts, with those that failed */
    uint64_t bytes;         /* written bytes */
} harpe_disk_counts;

typedef struct harpe_disk_faults {
    /* So many of a million writes, and of a million syncs, fail. A write that fails changes a part
     * of its bytes. A sync that fails makes a part of the changes durable, and no later sync makes
     * the others durable. */
    uint32_t write_errors_ppm, sync_errors_ppm;
    /* The write and the sync with these numbers fail; harpe_disk_counts counts them. 0: none. */
    uint64_t failing_write, failing_sync;
    /* After the write with this number (at once, if there was one) everything fails, as without
     * power, until harpe_disk_crash. 0: never. */
    uint64_t last_write;
    int64_t room_bytes; /* a write that makes all files larger than this fails; 0: no limit */
    int64_t write_ns, sync_ns; /* duration of each write and sync */
    bool ignores_syncs;        /* a sync succeeds and does nothing */
} harpe_disk_faults;

/* Makes an empty disk, whose name stays the caller's and has no '/'. Lets SQLite draw its own
 * random numbers from this seed too. Returns NULL without memory. Free it when all connections to
 * its files are closed, or will never be used again. */
harpe_disk *harpe_disk_new(const char *name, uint64_t seed);
void harpe_disk_free(harpe_disk *disk); /* accepts NULL */

/* Takes effect at the next call. */
void harpe_disk_set_faults(harpe_disk *disk, const harpe_disk_faults *faults);

/* The machine fails. Synced writes are kept. Of each other write, the seed draws which sectors of
 * 512 bytes are kept, in any order; the same holds for lengths, new files and removals. From now on
 * the connections of all processes fail, and they hold no locks. Do not close these connections,
 * because SQLite would then remove files by their names. A connection may be closed before the
 * crash if last_write has passed. */
void harpe_disk_crash(harpe_disk *disk);
/* A process was killed. From now on its connections fail, and they hold no locks. All writes are
 * kept.
 */
void harpe_disk_abandon(harpe_disk *disk, pid_t process);

harpe_disk_counts harpe_disk_count(const harpe_disk *disk);
/* Returns a number that depends on all bytes of all files, written and synced. */
uint64_t harpe_disk_digest(const harpe_disk *disk);

#endif
