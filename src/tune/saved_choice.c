/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the file of a finished choice, a small JSON object. Every member is checked,
 * because the file may have been edited, or may be for another machine. */
#include "tune/saved_choice.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

enum { BYTES_MAX = 1 << 16, VALUE_MAX = 1000000 };

static const char *const setting_keys[HARPE_TUNE_KNOBS] = {
    [HARPE_TUNE_CLOCK] = "clock_mhz",
    [HARPE_TUNE_LIMIT] = "power_limit_w",
};

static bool read_ratio(const json_t *object, const char *key, double *out) {
    const json_t *member = json_object_get(object, key);
    double value = json_is_number(member) ? json_number_value(member) : 0;
    if (!(value > 0) || value > 1e6) return false;
    *out = value;
    return true;
}

static harpe_status read_object(const json_t *object, const char *path, const harpe_gpus *gpus,
                                harpe_tune_saved *out, harpe_error *error) {
    harpe_tune_saved saved = {.time_ratio = 0};
    const char *model = json_string_value(json_object_get(object, "device_model"));
    bool is_whole = model && read_ratio(object, "time_ratio", &saved.time_ratio) &&
                    read_ratio(object, "energy_ratio", &saved.energy_ratio);
    for (int i = 0; i < HARPE_TUNE_KNOBS; i++) {
        const json_t *member = json_object_get(object, setting_keys[i]);
        json_int_t value = json_integer_value(member);
        if (!json_is_integer(member) || value < 0 || value > VALUE_MAX) is_whole = false;
        saved.setting.value[i] = is_whole ? (int)value : 0;
    }
    if (!is_whole)
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
    json_t *object =
        json_pack("{s:s, s:i, s:i, s:f, s:f}", "device_model", harpe_gpu_info_at(gpus, 0)->name,
                  setting_keys[HARPE_TUNE_CLOCK], saved->setting.value[HARPE_TUNE_CLOCK],
                  setting_keys[HARPE_TUNE_LIMIT], saved->setting.value[HARPE_TUNE_LIMIT],
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
