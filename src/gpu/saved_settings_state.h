/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a GPU before a change: the content of a record (saved_settings.h). */
#ifndef HARPE_GPU_SAVED_SETTINGS_STATE_H
#define HARPE_GPU_SAVED_SETTINGS_STATE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum harpe_saved_settings_kind {
    HARPE_SAVED_POWER = 0,  /* written by the power limit optimizer */
    HARPE_SAVED_CLOCKS = 1, /* written by a frequency controller */
    HARPE_SAVED_KINDS,
} harpe_saved_settings_kind;

/* Where zeusd is. Both members "": there is no zeusd. */
typedef struct harpe_zeusd_place {
    char socket[108]; /* path, of the size of sun_path in sockaddr_un */
    char host_port[300];
} harpe_zeusd_place;

/* The clock locks that a GPU has when no job uses it. A highest clock of 0 means that there is no
 * such lock. The driver cannot report locks, so an administrator writes them into the configuration
 * of the node agent. */
typedef struct harpe_default_locks {
    uint32_t graphics_minimum_mhz, graphics_maximum_mhz;
    uint32_t memory_minimum_mhz, memory_maximum_mhz;
} harpe_default_locks;

/* The settings to restore on one GPU, and the process for which they were changed. */
typedef struct harpe_saved_settings {
    harpe_saved_settings_kind kind;
    char uuid[96];
    uint32_t power_limit_mw; /* 0: leave it alone */
    int32_t persistence;     /* 0, 1, or -1: leave it alone */
    bool resets_clocks;      /* true: reset the clocks, or lock them as in `locks` */
    /* True: the driver has locked this clock, so it can reset it. False: it is not known. */
    bool locks_graphics, locks_memory;
    harpe_default_locks locks;
    /* The zeusd that changed the settings. None: the driver changed them. A record never contains
     * the token for zeusd. */
    harpe_zeusd_place zeusd;
    int64_t trainer; /* process for which the settings were changed */
} harpe_saved_settings;

static inline bool harpe_zeusd_is_given(const harpe_zeusd_place *place) {
    return place->socket[0] != '\0' || place->host_port[0] != '\0';
}

#endif
