/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of price series, which may come from a foreign server. The times of an accepted
 * series must grow, and its numbers must be within their ranges. A refused one must have an error
 * of one line. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/fleet_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_price_series series = {0};
    harpe_error error = {0};
    harpe_status status =
        harpe_price_series_read((const char *)data, size, "fuzz", &series, &error);
    if (status != HARPE_OK) {
        require(error.status == status && error.message[0] && !strchr(error.message, '\n'));
        require(!series.prices && series.count == 0);
        return 0;
    }
    require(series.count > 0);
    for (size_t i = 0; i < series.count; i++) {
        const harpe_fleet_file_price *price = &series.prices[i];
        require(price->from_s >= 0 &&
                price->from_s <= (series.is_of_day ? HARPE_MOMENT_MAX_S : 1e9));
        require(price->energy_per_kwh >= -1e6 && price->energy_per_kwh <= 1e6);
        require(price->carbon_g_per_kwh >= 0 && price->carbon_g_per_kwh <= 1e6);
        require(i == 0 || price->from_s > price[-1].from_s);
    }
    harpe_price_series_free(&series);
    return 0;
}
