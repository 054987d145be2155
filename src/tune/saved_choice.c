/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the file of a finished choice, a small JSON object. Every member is checked,
 * because the file may have been edited, or may be for another machine. */
#include "tune/tune_internal.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

enum { BYTES_MAX = 1 << 16 };

static harpe_status read_object(json_t *object, const char *path, const harpe_gpus *gpus,
                                harpe_tune_saved *out, harpe_error *error) {
    harpe_tune_saved saved = {.time_ratio = 0};
    const char *model = NULL;
    int *values = saved.setting.value;
    bool is_read =
        json_unpack(object, "{s:s, s:i, s:i, s:F, s:F}", "device_model", &model, "clock_mhz",
                    &values[HARPE_TUNE_CLOCK], "power_limit_w", &values[HARPE_TUNE_LIMIT],
                    "time_ratio", &saved.time_ratio, "energy_ratio", &saved.energy_ratio) == 0;
    if (!is_read || values[0] < 0 || values[1] < 0 || !(saved.time_ratio > 0) ||
        !(saved.energy_ratio > 0) || isinf(saved.time_ratio) || isinf(saved.energy_ratio))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.200s is no result of harpe tune: name another file, or remove it",
                          path);
    if (strcmp(model, harpe_gpu_info_at(gpus, 0)->name) != 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.200s is for %.90s, and this machine has %.90s: name another file",
                          path, model, harpe_gpu_info_at(gpus, 0)->name);
    *out = saved;
    return HARPE_OK;
}

harpe_status harpe_saved_choice_read(const char *path, const harpe_gpus *gpus,
                                     harpe_tune_saved *out, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_error told;
    *out = (harpe_tune_saved){.time_ratio = 0};
    harpe_status status = harpe_file_read_promptly(path, BYTES_MAX, &text, &length, &told);
    if (status == HARPE_NOT_FOUND) return HARPE_OK;
    if (status != HARPE_OK) return harpe_fail(error, status, "%s", told.message);
    json_t *object = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    status = read_object(object, path, gpus, out, error);
    json_decref(object);
    return status;
}

harpe_status harpe_saved_choice_write(const char *path, const harpe_gpus *gpus,
                                      const harpe_tune_saved *saved, harpe_error *error) {
    const int *values = saved->setting.value;
    json_t *object =
        json_pack("{s:s, s:i, s:i, s:f, s:f}", "device_model", harpe_gpu_info_at(gpus, 0)->name,
                  "clock_mhz", values[HARPE_TUNE_CLOCK], "power_limit_w", values[HARPE_TUNE_LIMIT],
                  "time_ratio", saved->time_ratio, "energy_ratio", saved->energy_ratio);
    char *line = object ? json_dumps(object, 0) : NULL;
    harpe_text text = {0};
    json_decref(object);
    if (line) harpe_text_printf(&text, "%s\n", line);
    free(line);
    if (!text.data || text.failed) {
        harpe_text_free(&text);
        return harpe_fail_memory(error);
    }
    harpe_status status = harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}
