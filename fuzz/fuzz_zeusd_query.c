/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as the query of a request to zeusd's routes. What is refused must get a
 * reason; a list of devices must be in order. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/zeusd_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_ids(const harpe_zeusd_value *value) {
    uint64_t *ids = NULL;
    size_t count = 0;
    char *why = NULL;
    require(value->text && strlen(value->text) == value->text_length);
    if (harpe_zeusd_ids_read(value->text, value->text_length, "GPU", &ids, &count, &why) !=
        HARPE_OK) {
        require(why && why[0]);
        free(why);
        return;
    }
    require(count > 0);
    for (size_t i = 1; i < count; i++)
        require(ids[i - 1] < ids[i]);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const harpe_zeusd_field fields[] = {{"gpu_ids", HARPE_ZEUSD_TEXT, false},
                                               {"power_limit_mw", HARPE_ZEUSD_NUMBER, true},
                                               {"block", HARPE_ZEUSD_SWITCH, true},
                                               {NULL, HARPE_ZEUSD_TEXT, false}};
    harpe_zeusd_value values[HARPE_ZEUSD_FIELDS_MAX];
    char *why = NULL, *query = malloc(size + 1);
    require(query != NULL);
    memcpy(query, data, size);
    query[size] = '\0';
    if (harpe_zeusd_query_read(query, fields, values, &why) == HARPE_OK)
        check_ids(&values[0]);
    else
        require(why && why[0]);
    free(why);
    harpe_zeusd_values_free(values);
    free(query);
    return 0;
}
