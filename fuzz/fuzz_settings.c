/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of settings files with any bytes. Accepted settings must be the same after they
 * are printed and read again. A refused file must have an error of one line. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pfo/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_round_trip(const harpe_settings *settings) {
    harpe_settings again;
    require(harpe_settings_init(&again, NULL) == HARPE_OK);
    char *text = harpe_settings_format(settings);
    require(text != NULL);
    require(harpe_settings_from_text(&again, text, strlen(text), "again", NULL) == HARPE_OK);
    char *first = harpe_settings_format_json(settings);
    char *second = harpe_settings_format_json(&again);
    require(first && second && strcmp(first, second) == 0);
    free(first);
    free(second);
    free(text);
    harpe_settings_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_settings settings;
    require(harpe_settings_init(&settings, NULL) == HARPE_OK);
    harpe_error error = {0};
    harpe_status status =
        harpe_settings_from_text(&settings, (const char *)data, size, "fuzz", &error);
    if (status != HARPE_OK)
        require(error.status == status && error.message[0] && !strchr(error.message, '\n'));
    (void)harpe_settings_check(&settings, &error);
    check_round_trip(&settings);
    harpe_settings_free(&settings);
    return 0;
}
