/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the optimizer's profile file, so that a repeated job need not measure again.
 * Every number is checked on reading. harpe_power_limit_profile_check decides whether the file
 * fits the machine. */
#include "power_limit/profile_file.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/text.h"

enum {
    FILE_LIMIT_BYTES = 1 << 20,
    MEASUREMENT_LIMIT = 4096,
    POWER_LIMIT_MAX_W = 1000000,
};

/* ---- Reading --------------------------------------------------------------------------------- */

static harpe_status read_number(const json_t *object, const char *key, const char *name,
                                size_t index, double *value, harpe_error *error) {
    const json_t *member = json_object_get(object, key);
    if (!json_is_number(member)) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: measurements[%zu]: \"%s\" is missing or not a number", name, index,
                          key);
    }
    double number = json_number_value(member);
    if (!(number > 0) || isinf(number)) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: measurements[%zu]: \"%s\" must be above 0, found %g", name, index,
                          key, number);
    }
    *value = number;
    return HARPE_OK;
}

static harpe_status read_measurement(const json_t *object, const char *name, size_t index,
                                     harpe_power_limit_measurement *out, harpe_error *error) {
    double limit_w = 0;
    harpe_status status = read_number(object, "power_limit", name, index, &limit_w, error);
    if (status == HARPE_OK)
        status = read_number(object, "energy", name, index, &out->energy_j, error);
    if (status == HARPE_OK) status = read_number(object, "time", name, index, &out->time_s, error);
    if (status != HARPE_OK) return status;
    if (limit_w != floor(limit_w) || limit_w > POWER_LIMIT_MAX_W) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: measurements[%zu]: \"power_limit\" must be a whole number of watts, "
                          "at most %d, found %g",
                          name, index, POWER_LIMIT_MAX_W, limit_w);
    }
    out->power_limit_w = (int)limit_w;
    return HARPE_OK;
}

static int by_limit_downwards(const void *a, const void *b) {
    const harpe_power_limit_measurement *first = a;
    const harpe_power_limit_measurement *second = b;
    return (second->power_limit_w > first->power_limit_w) -
           (second->power_limit_w < first->power_limit_w);
}

static harpe_status read_measurements(const json_t *array, const char *name,
                                      harpe_power_limit_profile *profile, harpe_error *error) {
    size_t count = json_array_size(array);
    if (!json_is_array(array) || count == 0) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: expected {\"measurements\": [...]} with at least one measurement",
                          name);
    }
    if (count > MEASUREMENT_LIMIT) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: more than %d measurements", name,
                          MEASUREMENT_LIMIT);
    }
    profile->measurements = harpe_calloc(count, sizeof *profile->measurements);
    if (!profile->measurements) return harpe_fail_memory(error);
    profile->count = count;
    for (size_t i = 0; i < count; i++) {
        harpe_status status =
            read_measurement(json_array_get(array, i), name, i, &profile->measurements[i], error);
        if (status != HARPE_OK) return status;
    }
    qsort(profile->measurements, count, sizeof *profile->measurements, by_limit_downwards);
    for (size_t i = 1; i < count; i++) {
        if (profile->measurements[i].power_limit_w == profile->measurements[i - 1].power_limit_w) {
            return harpe_fail(error, HARPE_INVALID_INPUT, "%s: %d W is measured twice", name,
                              profile->measurements[i].power_limit_w);
        }
    }
    return HARPE_OK;
}

/* Reads a key that Harpe writes and the published tool does not. It may be absent, null, or whole
 * watts. */
static harpe_status read_range_end(const json_t *root, const char *key, const char *name, int *out,
                                   harpe_error *error) {
    const json_t *member = json_object_get(root, key);
    if (!member || json_is_null(member)) return HARPE_OK;
    json_int_t value = json_integer_value(member);
    if (!json_is_integer(member) || value < 1 || value > POWER_LIMIT_MAX_W) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: \"%s\" must be a whole number of watts above 0", name, key);
    }
    *out = (int)value;
    return HARPE_OK;
}

static harpe_status read_device(const json_t *root, const char *name,
                                harpe_power_limit_profile *profile, harpe_error *error) {
    const json_t *model = json_object_get(root, "device_model");
    if (model && !json_is_null(model)) {
        if (!json_is_string(model)) {
            return harpe_fail(error, HARPE_INVALID_INPUT, "%s: \"device_model\" must be a text",
                              name);
        }
        profile->device_model = strdup(json_string_value(model));
        if (!profile->device_model) return harpe_fail_memory(error);
    }
    harpe_status status = read_range_end(root, "minimum_w", name, &profile->minimum_w, error);
    if (status != HARPE_OK) return status;
    return read_range_end(root, "maximum_w", name, &profile->maximum_w, error);
}

harpe_status harpe_power_limit_profile_parse(const char *text, size_t length, const char *name,
                                             harpe_power_limit_profile *out, harpe_error *error) {
    json_error_t reason;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &reason);
    if (!root) {
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s:%d:%d: not JSON: %s", name, reason.line,
                          reason.column, reason.text);
    }
    harpe_power_limit_profile profile = {0};
    harpe_status status =
        read_measurements(json_object_get(root, "measurements"), name, &profile, error);
    if (status == HARPE_OK) status = read_device(root, name, &profile, error);
    json_decref(root);
    if (status != HARPE_OK) {
        harpe_power_limit_profile_clear(&profile);
        return status;
    }
    *out = profile;
    return HARPE_OK;
}

harpe_status harpe_power_limit_profile_read(const char *path, harpe_power_limit_profile *out,
                                            harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_power_limit_profile_parse(text, length, path, out, error);
    free(text);
    return status;
}

void harpe_power_limit_profile_clear(harpe_power_limit_profile *profile) {
    if (!profile) return;
    free(profile->measurements);
    free(profile->device_model);
    *profile = (harpe_power_limit_profile){0};
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Returns the name of a model as the file contains it; NULL: no memory. The name comes from the
 * driver, so it may contain any byte. */
static char *written_model(const char *model) {
    char *copy = strdup(model);
    for (char *c = copy; c && *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f) *c = '?';
    return copy;
}

harpe_status harpe_power_limit_profile_write(const char *path,
                                             const harpe_power_limit_profile *profile,
                                             harpe_error *error) {
    harpe_text text = {0};
    harpe_text_printf(&text, "{\n  \"measurements\": [");
    for (size_t i = 0; i < profile->count; i++) {
        const harpe_power_limit_measurement *one = &profile->measurements[i];
        harpe_text_printf(&text, "%s\n    {\"power_limit\": %d", i > 0 ? "," : "",
                          one->power_limit_w);
        harpe_json_number(&text, ", \"energy\": ", one->energy_j);
        harpe_json_number(&text, ", \"time\": ", one->time_s);
        harpe_text_printf(&text, "}");
    }
    harpe_text_printf(&text, "\n  ]");
    char *model = profile->device_model ? written_model(profile->device_model) : NULL;
    text.failed = text.failed || (profile->device_model && !model);
    if (model) harpe_json_string(&text, ",\n  \"device_model\": ", model);
    free(model);
    harpe_text_printf(&text, ",\n  \"minimum_w\": %d,\n  \"maximum_w\": %d\n}\n",
                      profile->minimum_w, profile->maximum_w);
    harpe_status status = text.failed ? harpe_fail_memory(error)
                                      : harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}

/* ---- Comparison with this machine ------------------------------------------------------------ */

static bool is_same_model(const char *recorded, const char *actual) {
    char *written = written_model(actual);
    bool is_same = strcmp(recorded, actual) == 0 || (written && strcmp(recorded, written) == 0);
    free(written);
    return is_same;
}

harpe_status harpe_power_limit_profile_check(const harpe_power_limit_profile *profile,
                                             const char *path, const char *device_model,
                                             int minimum_w, int maximum_w, harpe_error *error) {
    if (profile->device_model && device_model &&
        !is_same_model(profile->device_model, device_model)) {
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "%s: measured on '%.100s', but this is '%.100s'; remove the file, or give "
            "another one",
            path, profile->device_model, device_model);
    }
    if ((profile->minimum_w && profile->minimum_w != minimum_w) ||
        (profile->maximum_w && profile->maximum_w != maximum_w)) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: measured on a GPU of %d to %d W, but this one allows %d to %d W; "
                          "remove the file, or give another one",
                          path, profile->minimum_w, profile->maximum_w, minimum_w, maximum_w);
    }
    for (size_t i = 0; i < profile->count; i++) {
        int limit_w = profile->measurements[i].power_limit_w;
        if (limit_w < minimum_w || limit_w > maximum_w) {
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s: measured at %d W, but this GPU allows %d to %d W; remove the "
                              "file, or give another one",
                              path, limit_w, minimum_w, maximum_w);
        }
    }
    return HARPE_OK;
}
