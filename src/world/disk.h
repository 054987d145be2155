/* SPDX-License-Identifier: Apache-2.0 */
/* A disk in memory for the stores of a world. SQLite uses it through a VFS, and the store keeps its
 * other files there (harpe_store_files). A store on the disk "a" has an address such as
 * "world:a/harpe.db".
 *
 * What is written is visible at once, and is kept in a crash only when it was synced. All faults
 * depend on the seed. A disk is used by one thread at a time: inside a world, or by one thread. */
#ifndef HARPE_WORLD_DISK_H
#define HARPE_WORLD_DISK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct harpe_disk harpe_disk;

/* A change of a file is a write here: also a new length, a new name, and a removal. */
typedef struct harpe_disk_counts {
    uint64_t writes, syncs; /* that were tried, also those that failed */
    uint64_t bytes;         /* that were written */
} harpe_disk_counts;

typedef struct harpe_disk_faults {
    /* Of a million, so many fail. A part of such a write is written. A part of what a failed sync
     * should have made durable is durable, and later syncs do not make up for the rest. */
    uint32_t write_errors_ppm, sync_errors_ppm;
    /* Numbers of a write and a sync that fail, as counts tell them. 0: none. */
    uint64_t failing_write, failing_sync;
    /* After the write with this number (at once, if there was one) everything fails, as without
     * power, until harpe_disk_crash. 0: never. */
    uint64_t last_write;
    int64_t room_bytes;        /* of all files; a write that needs more fails. 0: no limit */
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

/* The machine fails. What was synced is kept. Of each later write, any of its sectors of 512 bytes
 * are kept, whichever were written first; the same holds for lengths, new files and removals. The
 * connections of all processes fail from now on, and their locks are gone. Do not close them,
 * because SQLite would remove files by their names; or close them before, when last_write has
 * passed. */
void harpe_disk_crash(harpe_disk *disk);
/* A process was killed: its connections fail from now on, and their locks are gone. All writes are
 * kept. */
void harpe_disk_abandon(harpe_disk *disk, pid_t process);

harpe_disk_counts harpe_disk_count(const harpe_disk *disk);
/* Returns a number that depends on all bytes of all files, written and synced. */
uint64_t harpe_disk_digest(const harpe_disk *disk);

#endif
