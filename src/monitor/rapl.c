/* SPDX-License-Identifier: Apache-2.0 */
/* RAPL through powercap sysfs. Finds packages and their DRAM, and reads energy_uj. The counter
 * wraps at max_energy_range_uj; this file extends it to a counter that does not wrap. Apart from
 * DRAM, the zones below a package (cores, uncore) are part of the package. The zone psys is the
 * whole board and not a package. */
#include "monitor/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/number.h"
#include "base/possible.h"
#include "base/wait.h"

enum { PATH_SIZE = 512, ZONES_MAX = 64 };

/* Counters of several dies that are this close show one counter, which moves between two reads. */
#define MIRROR_UJ 1000000

typedef struct rapl_zone {
    int descriptor; /* descriptor of energy_uj; -1: no such zone */
    uint64_t range_uj;
    uint64_t last_uj;
    int64_t moved_ns; /* when last_uj was first read */
    uint64_t total_uj;
    unsigned restarts;
    char name[HARPE_RAPL_NAME_SIZE];
} rapl_zone;

struct harpe_rapl {
    pthread_mutex_t lock;
    harpe_ticker *ticker;
    int64_t tick_ns;
    size_t package_count;
    rapl_zone packages[HARPE_RAPL_PACKAGES_MAX];
    rapl_zone dram[HARPE_RAPL_PACKAGES_MAX];
    /* Dies whose counters showed the same as that of package `mirrored` when they were opened. Some
     * AMD processors have one counter and a zone for each die. As long as the two are the same,
     * they count once; when they differ, both count, as part of that package. */
    size_t mirror_count;
    rapl_zone mirrors[HARPE_RAPL_PACKAGES_MAX];
    size_t mirrored[HARPE_RAPL_PACKAGES_MAX];
    bool differs[HARPE_RAPL_PACKAGES_MAX];
};

/* ---- Small files ----------------------------------------------------------------------------- */

/* Reads the first line of an open file, without white space at its end. On failure returns false
 * and sets errno. */
static bool read_line(int descriptor, char *line, size_t size) {
    ssize_t length = pread(descriptor, line, size - 1, 0);
    if (length < 0) return false;
    line[length] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return true;
}

static bool read_number(int descriptor, uint64_t *value) {
    char line[32];
    int64_t number = 0;
    if (!read_line(descriptor, line, sizeof line)) return false;
    if (!harpe_parse_int(line, strlen(line), &number) || number < 0) {
        errno = EINVAL;
        return false;
    }
    *value = (uint64_t)number;
    return true;
}

static bool join(char *path, const char *directory, const char *name) {
    int length = snprintf(path, PATH_SIZE, "%s/%s", directory, name);
    return length > 0 && length < PATH_SIZE;
}

static bool read_text_file(const char *directory, const char *name, char *line, size_t size) {
    char path[PATH_SIZE];
    int descriptor = join(path, directory, name) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (descriptor < 0) return false;
    bool is_read = read_line(descriptor, line, size);
    close(descriptor);
    return is_read;
}

/* ---- Zones ----------------------------------------------------------------------------------- */

static void close_zone(rapl_zone *zone) {
    if (zone->descriptor >= 0) {
        close(zone->descriptor);
        zone->descriptor = -1;
    }
}

static harpe_status fail_zone(const char *path, int errno_value, harpe_error *error) {
    if (errno_value != EACCES && errno_value != EPERM)
        return harpe_fail_errno(error, errno_value, "reading CPU energy from %s", path);
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "%s may be read only by root (Linux 5.10 and later); run as root, or let an "
                      "administrator run: chmod a+r %s",
                      path, path);
}

static harpe_status open_zone(const char *directory, rapl_zone *zone, harpe_error *error) {
    char path[PATH_SIZE];
    char line[32];
    int64_t range_uj = 0;
    if (!join(path, directory, "energy_uj"))
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%.200s...: path too long", directory);
    zone->descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (zone->descriptor < 0 || !read_number(zone->descriptor, &zone->last_uj)) {
        harpe_status status = fail_zone(path, errno, error);
        close_zone(zone);
        return status;
    }
    zone->total_uj = 0;
    zone->moved_ns = harpe_clock_ns();
    if (read_text_file(directory, "max_energy_range_uj", line, sizeof line) &&
        harpe_parse_int(line, strlen(line), &range_uj) && range_uj > 0)
        zone->range_uj = (uint64_t)range_uj; /* otherwise a wrap counts as a restart */
    return HARPE_OK;
}

static bool can_move(const rapl_zone *zone, uint64_t moved_uj, int64_t now_ns) {
    return harpe_energy_is_possible((double)moved_uj * 1e-6,
                                    (double)(now_ns - zone->moved_ns) * 1e-9, HARPE_CPU_HIGHEST_W);
}

/* Reads the counter and adds its increase, including a wrap. The energy of a restart, and of a wrap
 * or an increase that is too large for the time, is unknown, so nothing is added for it. These are
 * counted in `restarts`. */
static harpe_status update_zone(rapl_zone *zone, int64_t now_ns, harpe_error *error) {
    uint64_t now_uj = 0;
    if (!read_number(zone->descriptor, &now_uj)) return fail_zone(zone->name, errno, error);
    uint64_t moved_uj = now_uj - zone->last_uj;
    bool is_known = now_uj >= zone->last_uj || zone->range_uj >= zone->last_uj;
    if (now_uj < zone->last_uj) moved_uj += zone->range_uj;
    is_known = is_known &&
               (can_move(zone, moved_uj, now_ns) || can_move(zone, moved_uj, harpe_clock_ns()));
    zone->restarts += !is_known;
    zone->total_uj += is_known ? moved_uj : 0;
    if (now_uj != zone->last_uj) zone->moved_ns = now_ns;
    zone->last_uj = now_uj;
    return HARPE_OK;
}

static bool is_near(uint64_t a_uj, uint64_t b_uj) {
    return (a_uj > b_uj ? a_uj - b_uj : b_uj - a_uj) <= MIRROR_UJ;
}

/* Reads a die that showed the counter of a package. The package was read before; if the process was
 * stopped in between, the package's counter has moved on, and it is read again. */
static harpe_status update_mirror(harpe_rapl *rapl, size_t m, int64_t now_ns, harpe_error *error) {
    rapl_zone *zone = &rapl->mirrors[m], *package = &rapl->packages[rapl->mirrored[m]];
    uint64_t counted_uj = zone->total_uj, before_uj = package->last_uj;
    unsigned restarts = zone->restarts;
    harpe_status status = update_zone(zone, now_ns, error);
    if (status == HARPE_OK && !rapl->differs[m] && !is_near(zone->last_uj, package->last_uj))
        status = update_zone(package, now_ns, error);
    if (status != HARPE_OK) return status;
    bool is_between = zone->last_uj >= before_uj && zone->last_uj <= package->last_uj;
    rapl->differs[m] =
        rapl->differs[m] || !(is_between || is_near(zone->last_uj, package->last_uj));
    if (!rapl->differs[m]) return HARPE_OK;
    package->total_uj += zone->total_uj - counted_uj;
    package->restarts += zone->restarts - restarts;
    return HARPE_OK;
}

static harpe_status update_all(harpe_rapl *rapl, harpe_error *error) {
    harpe_status status = HARPE_OK;
    int64_t now_ns = harpe_clock_ns();
    for (size_t i = 0; i < rapl->package_count && status == HARPE_OK; i++) {
        status = update_zone(&rapl->packages[i], now_ns, error);
        if (status == HARPE_OK && rapl->dram[i].descriptor >= 0)
            status = update_zone(&rapl->dram[i], now_ns, error);
    }
    for (size_t m = 0; m < rapl->mirror_count && status == HARPE_OK; m++)
        status = update_mirror(rapl, m, now_ns, error);
    return status;
}

/* ---- Finding the zones ----------------------------------------------------------------------- */

/* Finds the DRAM zone of a package. A DRAM zone that cannot be read is treated as missing; the
 * package itself still counts. */
static void find_dram(const char *package_directory, int package, rapl_zone *dram) {
    for (int child = 0; child < ZONES_MAX && dram->descriptor < 0; child++) {
        char directory[PATH_SIZE];
        char zone[48];
        snprintf(zone, sizeof zone, "intel-rapl:%d:%d", package, child);
        if (!join(directory, package_directory, zone)) return;
        if (!read_text_file(directory, "name", dram->name, sizeof dram->name)) continue;
        if (strcmp(dram->name, "dram") == 0) (void)open_zone(directory, dram, NULL);
    }
}

/* Returns true if two names are those of two dies of one package, such as package-0-die-1. */
static bool are_dies_of_one(const char *a, const char *b) {
    const char *die = strstr(a, "-die-");
    return die && strncmp(a, b, (size_t)(die - a) + strlen("-die-")) == 0;
}

/* Finds an earlier die of the same package that shows the same counter. */
static bool find_mirrored(const harpe_rapl *rapl, const rapl_zone *zone, size_t *mirrored) {
    for (size_t i = 0; i < rapl->package_count; i++) {
        const rapl_zone *other = &rapl->packages[i];
        *mirrored = i;
        if (are_dies_of_one(other->name, zone->name) && is_near(other->last_uj, zone->last_uj))
            return true;
    }
    return false;
}

static harpe_status find_package(harpe_rapl *rapl, const char *root, int number,
                                 harpe_error *error) {
    char directory[PATH_SIZE];
    char zone[32];
    char name[HARPE_RAPL_NAME_SIZE];
    snprintf(zone, sizeof zone, "intel-rapl:%d", number);
    if (!join(directory, root, zone) || !read_text_file(directory, "name", name, sizeof name))
        return HARPE_OK;
    if (strncmp(name, "package", strlen("package")) != 0) return HARPE_OK;
    size_t place = rapl->package_count, mirrored = 0;
    rapl_zone *package = &rapl->packages[place];
    memcpy(package->name, name, sizeof name);
    harpe_status status = open_zone(directory, package, error);
    if (status != HARPE_OK) return status;
    find_dram(directory, number, &rapl->dram[place]);
    if (rapl->dram[place].descriptor < 0 && find_mirrored(rapl, package, &mirrored)) {
        rapl->mirrors[rapl->mirror_count] = *package;
        rapl->mirrored[rapl->mirror_count++] = mirrored;
        package->descriptor = -1;
        return HARPE_OK;
    }
    rapl->package_count++;
    return HARPE_OK;
}

/* Returns half the time in which the counter with the shortest range can wrap at the highest
 * power. */
static int64_t tick_ns_of(const harpe_rapl *rapl) {
    double range_j = 1e6;
    for (size_t i = 0; i < rapl->package_count; i++) {
        const rapl_zone *zones[] = {&rapl->packages[i], &rapl->dram[i]};
        for (size_t z = 0; z < 2; z++) {
            double zone_j = (double)zones[z]->range_uj * 1e-6;
            if (zones[z]->descriptor >= 0 && zone_j > 0 && zone_j < range_j) range_j = zone_j;
        }
    }
    double tick_s = 0.5 * range_j / HARPE_CPU_HIGHEST_W;
    return (int64_t)((tick_s > 0.1 ? tick_s : 0.1) * 1e9);
}

static int64_t watch_wraps(void *user) {
    harpe_rapl *rapl = user;
    harpe_lock(&rapl->lock);
    (void)update_all(rapl, NULL);
    harpe_unlock(&rapl->lock);
    return rapl->tick_ns;
}

/* ---- Open, read, close ----------------------------------------------------------------------- */

static harpe_status fail_no_package(const char *root, harpe_error *error) {
    return harpe_fail(
        error, HARPE_UNAVAILABLE,
        "%s: no CPU package with an energy counter (no RAPL on this CPU, kernel module "
        "intel_rapl_msr not loaded, or a virtual machine)",
        root);
}

harpe_status harpe_rapl_open(const char *path, harpe_rapl **out, harpe_error *error) {
    const char *root = path ? path : HARPE_RAPL_DEFAULT_PATH;
    harpe_rapl *rapl = calloc(1, sizeof *rapl);
    if (!rapl) return harpe_fail_memory(error);
    pthread_mutex_init(&rapl->lock, NULL);
    for (size_t i = 0; i < HARPE_RAPL_PACKAGES_MAX; i++) {
        rapl->packages[i].descriptor = -1;
        rapl->dram[i].descriptor = -1;
    }
    harpe_status status = HARPE_OK;
    for (int i = 0; i < HARPE_RAPL_PACKAGES_MAX && status == HARPE_OK; i++)
        status = find_package(rapl, root, i, error);
    if (status == HARPE_OK && rapl->package_count == 0) status = fail_no_package(root, error);
    if (status == HARPE_OK) {
        rapl->tick_ns = tick_ns_of(rapl);
        status = harpe_ticker_start(watch_wraps, rapl, &rapl->ticker, error);
    }
    if (status != HARPE_OK) {
        harpe_rapl_close(rapl);
        return status;
    }
    *out = rapl;
    return HARPE_OK;
}

void harpe_rapl_close(harpe_rapl *rapl) {
    if (!rapl) return;
    harpe_ticker_stop(rapl->ticker);
    for (size_t i = 0; i < HARPE_RAPL_PACKAGES_MAX; i++) {
        close_zone(&rapl->packages[i]);
        close_zone(&rapl->dram[i]);
        if (i < rapl->mirror_count) close_zone(&rapl->mirrors[i]);
    }
    free(rapl);
}

size_t harpe_rapl_package_count(const harpe_rapl *rapl) { return rapl ? rapl->package_count : 0; }

size_t harpe_rapl_mirror_count(const harpe_rapl *rapl) { return rapl->mirror_count; }

const char *harpe_rapl_package_name(const harpe_rapl *rapl, size_t package) {
    return rapl->packages[package].name;
}

bool harpe_rapl_has_dram(const harpe_rapl *rapl, size_t package) {
    return rapl->dram[package].descriptor >= 0;
}

harpe_status harpe_rapl_read(harpe_rapl *rapl, harpe_rapl_reading *reading, harpe_error *error) {
    if (!harpe_ticker_is_ours(rapl->ticker)) {
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "this monitor of CPU energy was made before fork(); make a new one in "
                          "this process");
    }
    harpe_lock(&rapl->lock);
    harpe_status status = update_all(rapl, error);
    reading->time_ns = harpe_clock_ns();
    for (size_t i = 0; i < rapl->package_count && status == HARPE_OK; i++) {
        reading->package_uj[i] = rapl->packages[i].total_uj;
        reading->dram_uj[i] = rapl->dram[i].total_uj;
        reading->package_restarts[i] = rapl->packages[i].restarts;
        reading->dram_restarts[i] = rapl->dram[i].restarts;
    }
    harpe_unlock(&rapl->lock);
    return status;
}
