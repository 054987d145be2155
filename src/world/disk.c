/* SPDX-License-Identifier: Apache-2.0 */
/* Files in memory, and a VFS through which SQLite uses them. Each file has two images. Programs
 * read the first one, and the second one is durable: a crash keeps it. A list has the changes that
 * the durable image lacks, in the order in which they were made. This file does not interpret the
 * bytes.
 */
#include "world/disk.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "base/wait.h"
#include "server/store/sqlite_internal.h"

#define SCHEME "world:"

enum {
    SECTOR = 512,
    USUAL_SECTOR = 4096, /* what SQLite's own VFS says, with SQLITE_IOCAP_POWERSAFE_OVERWRITE */
    SHARES = 8,          /* the share of the sectors that survive is drawn in eighths */
    LOCKS = SQLITE_SHM_NLOCK,
};
#define FREE_BYTES (INT64_C(1) << 40) /* without a limit */

typedef struct image {
    unsigned char *bytes;
    size_t size, capacity;
} image;

/* A write, or (length 0) a new size, which is `offset`. */
typedef struct change {
    size_t offset, length;
    size_t at; /* its bytes, in file.written */
} change;

typedef struct handle handle;

typedef struct file {
    char *name; /* NULL: temporary */
    ino_t number;
    uint64_t version; /* counts the changes */
    image now, durable;
    change *changes; /* since the last sync */
    size_t change_count, change_capacity;
    unsigned char *written;
    size_t written_size, written_capacity;
    bool is_listed;  /* has its name */
    bool is_durable; /* has its name after a crash */
    int handle_count;

    int shared_count; /* handles with at least SQLITE_LOCK_SHARED */
    handle *writer;   /* has more */

    void **regions; /* of the memory that connections share */
    size_t region_count, region_capacity;
    int region_users;
} file;

struct handle {
    sqlite3_file base;
    harpe_disk *disk;
    file *file;    /* NULL: failed */
    pid_t process; /* that opened it */
    int lock;
    bool uses_regions;
    uint16_t shared_locks, exclusive_locks; /* of the regions */
    handle *next, **link;
};

struct harpe_disk {
    sqlite3_vfs vfs;
    char *name;   /* of the VFS: "world:NAME" */
    char *prefix; /* of its paths: "world:NAME/" */
    uint64_t random;
    harpe_disk_faults faults;
    harpe_disk_counts counts;
    int64_t used_bytes;
    file **files;
    size_t file_count, file_capacity;
    ino_t file_number;
    handle *handles;
    void **retired; /* regions that failed connections may still read when they are closed */
    size_t retired_count, retired_capacity;
    int name_holder; /* a socket; its unique address is the start of the disk's addresses. -1: none
                      */
    harpe_disk *next;
};

static harpe_disk *disks;

/* ---- Random numbers -------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static uint64_t draw(harpe_disk *disk, uint64_t count) {
    uint64_t z = disk->random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (z ^ (z >> 31)) % count;
}

static bool happens(harpe_disk *disk, uint32_t ppm) { return ppm > 0 && draw(disk, 1000000) < ppm; }

/* Returns true for `share` of SHARES. */
static bool survives(harpe_disk *disk, uint64_t share) {
    return share == SHARES || draw(disk, SHARES) < share;
}

static bool is_off(const harpe_disk *disk) {
    return disk->faults.last_write > 0 && disk->counts.writes >= disk->faults.last_write;
}

/* ---- Images ---------------------------------------------------------------------------------- */

static void resize(image *self, size_t size) {
    if (size > self->size) memset(self->bytes + self->size, 0, size - self->size);
    self->size = size;
}

/* The image must have the capacity. */
static void put(image *self, size_t offset, const unsigned char *bytes, size_t length) {
    if (length == 0) return;
    if (offset + length > self->size) resize(self, offset + length);
    memcpy(self->bytes + offset, bytes, length);
}

/* Makes room in both images, so that a sync and a crash need no memory. */
static bool reserve(file *self, size_t size) {
    return HARPE_ARRAY_RESERVE(self->now.bytes, self->now.capacity, size) &&
           HARPE_ARRAY_RESERVE(self->durable.bytes, self->durable.capacity, size);
}

static bool note_change(file *self, size_t offset, const void *bytes, size_t length) {
    if (!HARPE_ARRAY_RESERVE(self->changes, self->change_capacity, self->change_count + 1) ||
        !HARPE_ARRAY_RESERVE(self->written, self->written_capacity, self->written_size + length))
        return false;
    if (length > 0) memcpy(self->written + self->written_size, bytes, length);
    self->changes[self->change_count++] =
        (change){.offset = offset, .length = length, .at = self->written_size};
    self->written_size += length;
    return true;
}

static size_t end_of_sector(size_t at, size_t end) {
    size_t next = at - at % SECTOR + SECTOR;
    return next < end ? next : end;
}

/* Moves `share` of the listed changes to the durable image. The list is empty then. */
static void settle(harpe_disk *disk, file *self, uint64_t share) {
    for (const change *c = self->changes; c < self->changes + self->change_count; c++) {
        size_t end = c->offset + c->length;
        bool has_size = survives(disk, share);
        if (c->length == 0 && has_size) resize(&self->durable, c->offset);
        for (size_t at = c->offset; at < end; at = end_of_sector(at, end))
            if (survives(disk, share))
                put(&self->durable, at, self->written + c->at + (at - c->offset),
                    end_of_sector(at, end) - at);
        if (c->length > 0 && has_size && end > self->durable.size) resize(&self->durable, end);
    }
    self->change_count = 0;
    self->written_size = 0;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static file *find(const harpe_disk *disk, const char *name) {
    for (size_t i = 0; i < disk->file_count; i++)
        if (disk->files[i]->is_listed && strcmp(disk->files[i]->name, name) == 0)
            return disk->files[i];
    return NULL;
}

static void retire_regions(harpe_disk *disk, file *self) {
    for (size_t i = 0; i < self->region_count; i++)
        if (HARPE_ARRAY_RESERVE(disk->retired, disk->retired_capacity, disk->retired_count + 1))
            disk->retired[disk->retired_count++] = self->regions[i];
    self->region_count = 0;
    self->region_users = 0;
}

static void free_file(file *self) {
    for (size_t i = 0; i < self->region_count; i++)
        free(self->regions[i]);
    free(self->regions);
    free(self->now.bytes);
    free(self->durable.bytes);
    free(self->changes);
    free(self->written);
    free(self->name);
    free(self);
}

/* Frees the files that nothing leads to. */
static void sweep(harpe_disk *disk) {
    size_t kept = 0;
    for (size_t i = 0; i < disk->file_count; i++) {
        file *one = disk->files[i];
        if (one->is_listed || one->is_durable || one->handle_count > 0)
            disk->files[kept++] = one;
        else
            free_file(one);
    }
    disk->file_count = kept;
}

/* Without a name, makes a temporary file. */
static file *make_file(harpe_disk *disk, const char *name) {
    if (!HARPE_ARRAY_RESERVE(disk->files, disk->file_capacity, disk->file_count + 1)) return NULL;
    file *made = harpe_calloc(1, sizeof *made);
    char *copy = name ? strdup(name) : NULL;
    if (!made || (name && !copy)) {
        free(made);
        free(copy);
        return NULL;
    }
    made->name = copy;
    made->is_listed = name != NULL;
    made->number = ++disk->file_number;
    disk->files[disk->file_count++] = made;
    return made;
}

/* Makes all names durable. SQLite's own VFS syncs the directory when it syncs a new journal or log
 * for the first time, and if SQLite asks for it when it removes a file. */
static void sync_names(harpe_disk *disk) {
    for (size_t i = 0; i < disk->file_count; i++)
        disk->files[i]->is_durable = disk->files[i]->is_listed;
    sweep(disk);
}

static void unlist(harpe_disk *disk, file *self) {
    self->is_listed = false;
    if (self->handle_count == 0) disk->used_bytes -= (int64_t)self->now.size;
}

/* ---- Writing --------------------------------------------------------------------------------- */

typedef enum outcome { DONE, OFF, FAILED, NO_ROOM, NO_MEMORY } outcome;

/* Begins a write: lets its time pass, counts it, and decides whether it fails. */
static outcome begin_write(harpe_disk *disk) {
    if (disk->faults.write_ns > 0) harpe_sleep_ns(disk->faults.write_ns);
    if (is_off(disk)) return OFF;
    disk->counts.writes++;
    return disk->counts.writes == disk->faults.failing_write ||
                   happens(disk, disk->faults.write_errors_ppm)
               ? FAILED
               : DONE;
}

static bool has_room(const harpe_disk *disk, const file *self, size_t end) {
    int64_t more = end > self->now.size ? (int64_t)(end - self->now.size) : 0;
    int64_t room = disk->faults.room_bytes;
    return room == 0 || more == 0 || disk->used_bytes + more <= room;
}

static outcome put_bytes(harpe_disk *disk, file *self, size_t offset, const unsigned char *bytes,
                         size_t length) {
    size_t before = self->now.size;
    if (!reserve(self, offset + length)) return NO_MEMORY;
    if (self->name && !note_change(self, offset, bytes, length)) return NO_MEMORY;
    put(&self->now, offset, bytes, length);
    self->version++;
    disk->used_bytes += (int64_t)self->now.size - (int64_t)before;
    disk->counts.bytes += length;
    return DONE;
}

/* Writes some of the sectors. */
static void put_part(harpe_disk *disk, file *self, size_t offset, const unsigned char *bytes,
                     size_t length) {
    for (size_t at = offset; at < offset + length; at = end_of_sector(at, offset + length)) {
        size_t end = end_of_sector(at, offset + length);
        if (draw(disk, 2) == 0 || !has_room(disk, self, end)) continue;
        (void)put_bytes(disk, self, at, bytes + (at - offset), end - at);
    }
}

/* Call it after begin_write, without a wait between them. */
static outcome write_file(harpe_disk *disk, file *self, outcome begun, size_t offset,
                          const void *bytes, size_t length) {
    bool has_failed = begun != DONE || !has_room(disk, self, offset + length);
    if (begun == OFF || length == 0) return begun;
    if (!has_failed) return put_bytes(disk, self, offset, bytes, length);
    put_part(disk, self, offset, bytes, length);
    return begun != DONE ? begun : NO_ROOM;
}

static outcome truncate_file(harpe_disk *disk, file *self, outcome begun, size_t size) {
    if (begun != DONE || size == self->now.size) return begun;
    if (!has_room(disk, self, size)) return NO_ROOM;
    if (!reserve(self, size)) return NO_MEMORY;
    if (self->name && !note_change(self, size, NULL, 0)) return NO_MEMORY;
    disk->used_bytes += (int64_t)size - (int64_t)self->now.size;
    resize(&self->now, size);
    self->version++;
    return DONE;
}

static outcome begin_sync(harpe_disk *disk) {
    if (disk->faults.sync_ns > 0) harpe_sleep_ns(disk->faults.sync_ns);
    if (is_off(disk)) return OFF;
    disk->counts.syncs++;
    return disk->counts.syncs == disk->faults.failing_sync ||
                   happens(disk, disk->faults.sync_errors_ppm)
               ? FAILED
               : DONE;
}

static outcome sync_file(harpe_disk *disk, file *self, outcome begun) {
    if (begun == OFF || (begun == DONE && disk->faults.ignores_syncs)) return begun;
    settle(disk, self, begun == DONE ? SHARES : draw(disk, SHARES));
    if (begun == DONE && self->is_listed && !self->is_durable) sync_names(disk);
    return begun;
}

/* The name is also gone from the disk if is_durable. */
static outcome remove_file(harpe_disk *disk, file *self, outcome begun, bool is_durable) {
    if (begun != DONE) return begun;
    unlist(disk, self);
    if (is_durable && !disk->faults.ignores_syncs)
        sync_names(disk);
    else
        sweep(disk);
    return DONE;
}

/* ---- Locks of a file ------------------------------------------------------------------------- */

static int lock_to(handle *self, int level) {
    file *of = self->file;
    bool has_writer = of->writer && of->writer != self;
    if (self->lock >= level) return SQLITE_OK;
    if (has_writer && (level > SQLITE_LOCK_SHARED || of->writer->lock > SQLITE_LOCK_RESERVED))
        return SQLITE_BUSY;
    if (self->lock == SQLITE_LOCK_NONE) of->shared_count++;
    if (level > SQLITE_LOCK_SHARED) of->writer = self;
    bool waits = level == SQLITE_LOCK_EXCLUSIVE && of->shared_count > 1;
    self->lock = waits ? SQLITE_LOCK_PENDING : level;
    return waits ? SQLITE_BUSY : SQLITE_OK;
}

static void unlock_to(handle *self, int level) {
    file *of = self->file;
    if (self->lock <= level) return;
    if (of->writer == self) of->writer = NULL;
    if (level == SQLITE_LOCK_NONE) of->shared_count--;
    self->lock = level;
}

/* Releases all that a handle has, and makes it fail from now on. */
static void detach(handle *self) {
    file *of = self->file;
    if (!of) return;
    unlock_to(self, SQLITE_LOCK_NONE);
    if (self->uses_regions && --of->region_users == 0) retire_regions(self->disk, of);
    if (--of->handle_count == 0 && !of->is_listed) self->disk->used_bytes -= (int64_t)of->now.size;
    *self->link = self->next;
    if (self->next) self->next->link = self->link;
    sweep(self->disk);
    self->file = NULL;
}

/* ---- Methods of SQLite's files --------------------------------------------------------------- */

static int code_of(outcome result, int failed) {
    switch (result) {
    case DONE: return SQLITE_OK;
    case NO_ROOM: return SQLITE_FULL;
    case NO_MEMORY: return SQLITE_IOERR_NOMEM;
    default: return failed;
    }
}

static int vfs_close(sqlite3_file *opened) {
    detach((handle *)opened);
    return SQLITE_OK;
}

static int vfs_read(sqlite3_file *opened, void *bytes, int length, sqlite3_int64 offset) {
    const handle *self = (const handle *)opened;
    if (!self->file || is_off(self->disk)) return SQLITE_IOERR_READ;
    const image *from = &self->file->now;
    size_t begin = (size_t)offset < from->size ? (size_t)offset : from->size;
    size_t got = from->size - begin < (size_t)length ? from->size - begin : (size_t)length;
    if (got > 0) memcpy(bytes, from->bytes + begin, got);
    memset((char *)bytes + got, 0, (size_t)length - got);
    return got == (size_t)length ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static int vfs_write(sqlite3_file *opened, const void *bytes, int length, sqlite3_int64 offset) {
    const handle *self = (const handle *)opened;
    if (!self->file) return SQLITE_IOERR_WRITE;
    outcome begun = begin_write(self->disk);
    if (!self->file) return SQLITE_IOERR_WRITE;
    return code_of(write_file(self->disk, self->file, begun, (size_t)offset, bytes, (size_t)length),
                   SQLITE_IOERR_WRITE);
}

static int vfs_truncate(sqlite3_file *opened, sqlite3_int64 size) {
    const handle *self = (const handle *)opened;
    if (!self->file) return SQLITE_IOERR_TRUNCATE;
    outcome begun = begin_write(self->disk);
    if (!self->file) return SQLITE_IOERR_TRUNCATE;
    return code_of(truncate_file(self->disk, self->file, begun, (size_t)size),
                   SQLITE_IOERR_TRUNCATE);
}

static int vfs_sync(sqlite3_file *opened, int flags) {
    const handle *self = (const handle *)opened;
    (void)flags;
    if (!self->file) return SQLITE_IOERR_FSYNC;
    outcome begun = begin_sync(self->disk);
    if (!self->file) return SQLITE_IOERR_FSYNC;
    return code_of(sync_file(self->disk, self->file, begun), SQLITE_IOERR_FSYNC);
}

static int vfs_size(sqlite3_file *opened, sqlite3_int64 *size) {
    const handle *self = (const handle *)opened;
    if (!self->file || is_off(self->disk)) return SQLITE_IOERR_FSTAT;
    *size = (sqlite3_int64)self->file->now.size;
    return SQLITE_OK;
}

static int vfs_lock(sqlite3_file *opened, int level) {
    handle *self = (handle *)opened;
    return self->file && !is_off(self->disk) ? lock_to(self, level) : SQLITE_IOERR_LOCK;
}

static int vfs_unlock(sqlite3_file *opened, int level) {
    handle *self = (handle *)opened;
    if (self->file) unlock_to(self, level);
    return SQLITE_OK;
}

static int vfs_check_lock(sqlite3_file *opened, int *is_locked) {
    const handle *self = (const handle *)opened;
    if (!self->file) return SQLITE_IOERR_CHECKRESERVEDLOCK;
    *is_locked = self->file->writer != NULL;
    return SQLITE_OK;
}

static int vfs_control(sqlite3_file *opened, int operation, void *argument) {
    (void)opened;
    (void)operation;
    (void)argument;
    return SQLITE_NOTFOUND;
}

static int vfs_sector_size(sqlite3_file *opened) {
    (void)opened;
    return USUAL_SECTOR;
}

static int vfs_characteristics(sqlite3_file *opened) {
    (void)opened;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

/* ---- Memory that connections share ----------------------------------------------------------- */

static int vfs_map(sqlite3_file *opened, int number, int size, int makes, void volatile **region) {
    handle *self = (handle *)opened;
    file *of = self->file;
    *region = NULL;
    if (!of || is_off(self->disk)) return SQLITE_IOERR_SHMMAP;
    if (!self->uses_regions) of->region_users++;
    self->uses_regions = true;
    while (makes && of->region_count <= (size_t)number) {
        void *made = HARPE_ARRAY_RESERVE(of->regions, of->region_capacity, of->region_count + 1)
                         ? harpe_calloc(1, (size_t)size)
                         : NULL;
        if (!made) return SQLITE_IOERR_NOMEM;
        of->regions[of->region_count++] = made;
    }
    if ((size_t)number < of->region_count) *region = of->regions[number];
    return SQLITE_OK;
}

static int vfs_lock_region(sqlite3_file *opened, int first, int count, int flags) {
    handle *self = (handle *)opened;
    uint16_t mask = (uint16_t)(((1U << count) - 1) << first);
    uint16_t shared = 0, exclusive = 0;
    if (!self->file) return SQLITE_IOERR_SHMLOCK;
    if (flags & SQLITE_SHM_UNLOCK) {
        self->shared_locks &= (uint16_t)~mask;
        self->exclusive_locks &= (uint16_t)~mask;
        return SQLITE_OK;
    }
    for (const handle *other = self->disk->handles; other; other = other->next) {
        if (other == self || other->file != self->file) continue;
        shared |= other->shared_locks;
        exclusive |= other->exclusive_locks;
    }
    if (flags & SQLITE_SHM_EXCLUSIVE) exclusive |= shared;
    if (exclusive & mask) return SQLITE_BUSY;
    if (flags & SQLITE_SHM_EXCLUSIVE)
        self->exclusive_locks |= mask;
    else
        self->shared_locks |= mask;
    return SQLITE_OK;
}

static void vfs_barrier(sqlite3_file *opened) {
    (void)opened;
    atomic_thread_fence(memory_order_seq_cst);
}

static int vfs_unmap(sqlite3_file *opened, int removes) {
    handle *self = (handle *)opened;
    (void)removes;
    if (!self->file || !self->uses_regions) return SQLITE_OK;
    self->uses_regions = false;
    self->shared_locks = self->exclusive_locks = 0;
    if (--self->file->region_users == 0) retire_regions(self->disk, self->file);
    return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = vfs_close,
    .xRead = vfs_read,
    .xWrite = vfs_write,
    .xTruncate = vfs_truncate,
    .xSync = vfs_sync,
    .xFileSize = vfs_size,
    .xLock = vfs_lock,
    .xUnlock = vfs_unlock,
    .xCheckReservedLock = vfs_check_lock,
    .xFileControl = vfs_control,
    .xSectorSize = vfs_sector_size,
    .xDeviceCharacteristics = vfs_characteristics,
    .xShmMap = vfs_map,
    .xShmLock = vfs_lock_region,
    .xShmBarrier = vfs_barrier,
    .xShmUnmap = vfs_unmap,
};

/* ---- Methods of SQLite's VFS ----------------------------------------------------------------- */

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *opened, int flags,
                    int *out_flags) {
    harpe_disk *disk = vfs->pAppData;
    handle *self = (handle *)opened;
    *self = (handle){.disk = disk, .process = harpe_process_self()};
    if (is_off(disk)) return SQLITE_CANTOPEN;
    file *found = name ? find(disk, name) : NULL;
    if (found && (flags & SQLITE_OPEN_EXCLUSIVE)) return SQLITE_CANTOPEN;
    if (!found && name && !(flags & SQLITE_OPEN_CREATE)) return SQLITE_CANTOPEN;
    if (!found) found = make_file(disk, name);
    if (!found) return SQLITE_NOMEM;
    self->file = found;
    found->handle_count++;
    if (name && (flags & SQLITE_OPEN_DELETEONCLOSE)) unlist(disk, found);
    self->link = &disk->handles;
    self->next = disk->handles;
    if (self->next) self->next->link = &self->next;
    disk->handles = self;
    self->base.pMethods = &methods;
    if (out_flags) *out_flags = flags;
    return SQLITE_OK;
}

static int vfs_remove(sqlite3_vfs *vfs, const char *name, int syncs) {
    harpe_disk *disk = vfs->pAppData;
    if (!find(disk, name)) return SQLITE_IOERR_DELETE_NOENT;
    outcome begun = begin_write(disk);
    file *found = find(disk, name);
    if (!found) return SQLITE_IOERR_DELETE_NOENT;
    return code_of(remove_file(disk, found, begun, syncs), SQLITE_IOERR_DELETE);
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *has) {
    const harpe_disk *disk = vfs->pAppData;
    if (is_off(disk)) return SQLITE_IOERR_ACCESS;
    const file *found = find(disk, name);
    /* SQLite's own VFS also says that an empty file does not exist. */
    *has = found && (flags != SQLITE_ACCESS_EXISTS || found->now.size > 0);
    return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *name, int room, char *path) {
    (void)vfs;
    int length = snprintf(path, (size_t)room, "%s", name);
    return length < room ? SQLITE_OK : SQLITE_CANTOPEN;
}

static int vfs_random(sqlite3_vfs *vfs, int count, char *bytes) {
    harpe_disk *disk = vfs->pAppData;
    for (int i = 0; i < count; i++)
        bytes[i] = (char)draw(disk, 256);
    return count;
}

static int vfs_sleep(sqlite3_vfs *vfs, int us) {
    (void)vfs;
    harpe_sleep_ns(us * INT64_C(1000));
    return us;
}

/* SQLite counts ms since noon of November 24, 4714 BC. */
static int vfs_time_ms(sqlite3_vfs *vfs, sqlite3_int64 *time_ms) {
    (void)vfs;
    *time_ms = INT64_C(210866760000000) + harpe_clock_wall_ns() / 1000000;
    return SQLITE_OK;
}

static int vfs_time_days(sqlite3_vfs *vfs, double *time_days) {
    sqlite3_int64 time_ms;
    (void)vfs_time_ms(vfs, &time_ms);
    *time_days = (double)time_ms / 86400000.0;
    return SQLITE_OK;
}

static int vfs_last_error(sqlite3_vfs *vfs, int room, char *text) {
    (void)vfs;
    (void)room;
    (void)text;
    return 0;
}

/* ---- The store's other files ----------------------------------------------------------------- */

static harpe_disk *disk_of(const char *path) {
    harpe_disk *disk = disks;
    while (disk && strncmp(path, disk->prefix, strlen(disk->prefix)) != 0)
        disk = disk->next;
    return disk;
}

static const char *store_vfs(const char *path) {
    const harpe_disk *disk = disk_of(path);
    return disk ? disk->name : NULL;
}

static int store_look(const char *path, struct stat *info) {
    const harpe_disk *disk = disk_of(path);
    const file *found = find(disk, path);
    if (is_off(disk)) return EIO;
    if (!found) return ENOENT;
    *info = (struct stat){.st_mode = S_IFREG | 0600,
                          .st_ino = found->number,
                          .st_size = (off_t)found->now.size,
                          .st_mtim = {.tv_nsec = (long)(found->version % 1000000000)}};
    return 0;
}

static int store_read(const char *path, char *bytes, size_t room, size_t *length) {
    const harpe_disk *disk = disk_of(path);
    const file *found = find(disk, path);
    if (is_off(disk)) return EIO;
    if (!found) return ENOENT;
    *length = found->now.size < room ? found->now.size : room;
    if (*length > 0) memcpy(bytes, found->now.bytes, *length);
    return 0;
}

static int errno_of(outcome result) {
    static const int each[] = {
        [DONE] = 0, [OFF] = EIO, [FAILED] = EIO, [NO_ROOM] = ENOSPC, [NO_MEMORY] = ENOMEM};
    return each[result];
}

/* Replaces the file by a new one, as a rename does. If a step fails, nothing has changed. */
static outcome replace(harpe_disk *disk, const char *path, const void *bytes, size_t length) {
    outcome result = begin_write(disk);
    if (result == DONE) result = begin_sync(disk);
    if (result != DONE) return result;
    file *before = find(disk, path);
    file *made = make_file(disk, path);
    if (!made) return NO_MEMORY;
    result = write_file(disk, made, DONE, 0, bytes, length);
    if (before && result == DONE) unlist(disk, before);
    if (result != DONE) unlist(disk, made);
    if (result == DONE) (void)sync_file(disk, made, DONE);
    sweep(disk);
    return result;
}

static int store_write(const char *path, const void *bytes, size_t length, bool is_whole) {
    harpe_disk *disk = disk_of(path);
    if (is_off(disk)) return EIO;
    if (is_whole) return errno_of(replace(disk, path, bytes, length));
    outcome begun = begin_write(disk);
    file *found = find(disk, path);
    if (!found && begun == DONE) found = make_file(disk, path);
    if (!found) return errno_of(begun == DONE ? NO_MEMORY : begun);
    return errno_of(write_file(disk, found, begun, 0, bytes, length));
}

static int store_remove(const char *path) {
    harpe_disk *disk = disk_of(path);
    if (!find(disk, path)) return ENOENT;
    outcome begun = begin_write(disk);
    file *found = find(disk, path);
    return found ? errno_of(remove_file(disk, found, begun, false)) : ENOENT;
}

static int store_open(const char *path, int *descriptor) {
    const harpe_disk *disk = disk_of(path);
    const file *found = find(disk, path);
    if (is_off(disk)) return EIO;
    if (!found) return ENOENT;
    int copy = memfd_create("harpe-disk", MFD_CLOEXEC);
    int failure = copy < 0 ? errno : harpe_write_all(copy, found->now.bytes, found->now.size);
    if (!failure && lseek(copy, 0, SEEK_SET) != 0) failure = errno;
    if (failure && copy >= 0) (void)close(copy);
    if (!failure) *descriptor = copy;
    return failure;
}

static int64_t store_free_bytes(const char *path) {
    const harpe_disk *disk = disk_of(path);
    int64_t room = disk->faults.room_bytes > 0 ? disk->faults.room_bytes : FREE_BYTES;
    return room > disk->used_bytes ? room - disk->used_bytes : 0;
}

/* The kernel gives a socket without a path a name that no other socket has, also one of another
 * process. */
static int store_address(const char *path, struct sockaddr_un *address) {
    harpe_disk *disk = disk_of(path);
    struct sockaddr_un held = {.sun_family = AF_UNIX};
    socklen_t size = sizeof held;
    if (disk->name_holder < 0) {
        int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (made < 0) return errno;
        if (bind(made, (const struct sockaddr *)&held, sizeof held.sun_family) != 0) {
            int failure = errno;
            (void)close(made);
            return failure;
        }
        disk->name_holder = made;
    }
    if (getsockname(disk->name_holder, (struct sockaddr *)&held, &size) != 0) return errno;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t room = sizeof address->sun_path - 1;
    int length = snprintf(address->sun_path + 1, room, "%.*s %s",
                          (int)(size - sizeof held.sun_family - 1), held.sun_path + 1, path);
    return (size_t)length < room ? 0 : ENAMETOOLONG;
}

static const harpe_store_files store_files = {
    .vfs = store_vfs,
    .look = store_look,
    .read = store_read,
    .write = store_write,
    .remove = store_remove,
    .open = store_open,
    .free_bytes = store_free_bytes,
    .address = store_address,
};

/* ---- Crashes --------------------------------------------------------------------------------- */

/* Returns true if a file of this name is kept that is not `self`. */
static bool has_other(const harpe_disk *disk, const file *self) {
    for (size_t i = 0; i < disk->file_count; i++) {
        const file *other = disk->files[i];
        if (other != self && other->is_listed && strcmp(other->name, self->name) == 0) return true;
    }
    return false;
}

/* Decides whether a new file keeps its name, and whether a removed file has its name again. */
static void settle_name(harpe_disk *disk, file *self) {
    if (!self->name) return;
    if (self->is_listed && !self->is_durable)
        self->is_listed = draw(disk, 2) == 0;
    else if (!self->is_listed && self->is_durable)
        self->is_listed = !has_other(disk, self) && draw(disk, 2) == 0;
}

void harpe_disk_crash(harpe_disk *disk) {
    while (disk->handles)
        detach(disk->handles);
    /* Often nothing or everything survives. */
    uint64_t drawn = draw(disk, 2 * SHARES + 1);
    uint64_t share = drawn <= SHARES ? drawn : drawn % 2 * SHARES;
    /* Newer files first: a removed file does not come back in the place of a new one. */
    for (size_t i = disk->file_count; i-- > 0;)
        settle_name(disk, disk->files[i]);
    disk->used_bytes = 0;
    for (size_t i = 0; i < disk->file_count; i++) {
        file *one = disk->files[i];
        one->is_durable = one->is_listed;
        settle(disk, one, share);
        if (reserve(one, one->durable.size)) {
            resize(&one->now, 0);
            put(&one->now, 0, one->durable.bytes, one->durable.size);
        }
        one->version++;
        if (one->is_listed) disk->used_bytes += (int64_t)one->now.size;
    }
    sweep(disk);
    disk->faults.last_write = 0;
}

void harpe_disk_abandon(harpe_disk *disk, pid_t process) {
    handle *next = NULL;
    for (handle *one = disk->handles; one; one = next) {
        next = one->next;
        if (one->process == process) detach(one);
    }
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* Makes SQLite's random numbers depend on the seed. SQLite asks its usual VFS for them, when it
 * needs the first one. */
static void seed_sqlite(harpe_disk *disk) {
    char any;
    sqlite3_vfs *usual = sqlite3_vfs_find(NULL);
    (void)sqlite3_vfs_register(&disk->vfs, 1);
    sqlite3_randomness(0, NULL);
    sqlite3_randomness(1, &any);
    (void)sqlite3_vfs_register(usual, 1);
}

harpe_disk *harpe_disk_new(const char *name, uint64_t seed) {
    harpe_disk *disk = harpe_calloc(1, sizeof *disk);
    if (!disk) return NULL;
    disk->random = seed;
    disk->name_holder = -1;
    disk->name = harpe_path_join(SCHEME, "", name);
    disk->prefix = disk->name ? harpe_path_join(disk->name, "", "/") : NULL;
    if (!disk->prefix || sqlite3_initialize() != SQLITE_OK) {
        harpe_disk_free(disk);
        return NULL;
    }
    disk->vfs = (sqlite3_vfs){
        .iVersion = 2,
        .szOsFile = sizeof(handle),
        .mxPathname = 512,
        .zName = disk->name,
        .pAppData = disk,
        .xOpen = vfs_open,
        .xDelete = vfs_remove,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_path,
        .xRandomness = vfs_random,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_time_days,
        .xGetLastError = vfs_last_error,
        .xCurrentTimeInt64 = vfs_time_ms,
    };
    seed_sqlite(disk);
    disk->next = disks;
    disks = disk;
    harpe_store_files_elsewhere = &store_files;
    return disk;
}

void harpe_disk_free(harpe_disk *disk) {
    if (!disk) return;
    while (disk->handles)
        detach(disk->handles);
    for (harpe_disk **at = &disks; *at; at = &(*at)->next)
        if (*at == disk) {
            *at = disk->next;
            break;
        }
    if (!disks) harpe_store_files_elsewhere = NULL;
    if (disk->vfs.zName) (void)sqlite3_vfs_unregister(&disk->vfs);
    for (size_t i = 0; i < disk->file_count; i++)
        free_file(disk->files[i]);
    for (size_t i = 0; i < disk->retired_count; i++)
        free(disk->retired[i]);
    if (disk->name_holder >= 0) (void)close(disk->name_holder);
    free(disk->files);
    free(disk->retired);
    free(disk->name);
    free(disk->prefix);
    free(disk);
}

/* ---- Looking at it --------------------------------------------------------------------------- */

void harpe_disk_set_faults(harpe_disk *disk, const harpe_disk_faults *faults) {
    disk->faults = *faults;
}

harpe_disk_counts harpe_disk_count(const harpe_disk *disk) { return disk->counts; }

/* FNV-1a */
static uint64_t digest_of(uint64_t digest, const void *bytes, size_t length) {
    const unsigned char *each = bytes;
    for (size_t i = 0; i < length; i++)
        digest = (digest ^ each[i]) * UINT64_C(0x100000001B3);
    return digest;
}

uint64_t harpe_disk_digest(const harpe_disk *disk) {
    uint64_t digest = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < disk->file_count; i++) {
        const file *one = disk->files[i];
        if (!one->name) continue;
        digest = digest_of(digest, one->name, strlen(one->name) + 1);
        digest = digest_of(digest, &one->is_listed, sizeof one->is_listed);
        digest = digest_of(digest, one->now.bytes, one->now.size);
        digest = digest_of(digest, &one->now.size, sizeof one->now.size);
        digest = digest_of(digest, one->durable.bytes, one->durable.size);
    }
    return digest;
}
