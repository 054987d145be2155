/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the driver library that knows a GPU among what is loaded. The caller of harpe_gpus_open may
 * have named it, the environment may have, or the loader: what is loaded is the answer to all
 * three, and a GPU's UUID tells which when there are several. It loads and starts nothing. */
#include "powerlimit/driver_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

typedef int (*handle_by_uuid)(const char *uuid, void **device);

typedef struct loaded_names {
    char **names;
    size_t count, capacity;
} loaded_names;

/* Only notes the name: the loader's lock is held, under which nothing may be opened. */
static int note_name(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size;
    loaded_names *loaded = user;
    if (!info->dlpi_name || !*info->dlpi_name) return 0; /* the program itself */
    if (!HARPE_ARRAY_RESERVE(loaded->names, loaded->capacity, loaded->count + 1)) return 1;
    char *name = strdup(info->dlpi_name);
    if (!name) return 1;
    loaded->names[loaded->count++] = name;
    return 0;
}

/* A library that nobody has started answers UNINITIALIZED, and is passed over like one that does
 * not know the GPU. */
static bool find_in(const char *name, const char *uuid, char path[PATH_MAX]) {
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (!library) return false;
    void *device = NULL;
    void *address = dlsym(library, "nvmlDeviceGetHandleByUUID");
    handle_by_uuid ask = NULL;
    memcpy(&ask, &address, sizeof ask); /* ISO C does not convert between the two */
    Dl_info where = {0};                /* the symbol may be a dependency's */
    bool is_found =
        ask && ask(uuid, &device) == 0 && dladdr(address, &where) != 0 && where.dli_fname;
    if (is_found) {
        char *real = realpath(where.dli_fname, NULL);
        snprintf(path, PATH_MAX, "%s", real ? real : where.dli_fname);
        free(real);
    }
    dlclose(library);
    return is_found;
}

void harpe_driver_library_of(const char *uuid, char path[PATH_MAX]) {
    loaded_names loaded = {0};
    path[0] = '\0';
    (void)dl_iterate_phdr(note_name, &loaded);
    bool is_found = false;
    for (size_t i = 0; i < loaded.count; i++) {
        is_found = is_found || find_in(loaded.names[i], uuid, path);
        free(loaded.names[i]);
    }
    free(loaded.names);
}
