/* SPDX-License-Identifier: Apache-2.0 */
/* Prints plans as a table and as JSON. All numbers come from the rows. */
#include "cli/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"

/* Returns the number of decimals that gives about `digits` significant digits. */
static int decimals_for(double value, int digits) {
    double magnitude = fabs(value) > 0 ? floor(log10(fabs(value))) : 0;
    double decimals = digits - 1 - magnitude;
    return decimals < 0 ? 0 : decimals > 9 ? 9 : (int)decimals;
}

void harpe_row_format_time(char *buffer, size_t size, double time_s) {
    snprintf(buffer, size, "%.*f", decimals_for(time_s, 4), time_s);
}

/* Returns the percentage, or 0 if it would be printed as zero with a sign. */
static double unsigned_zero(double percent) { return fabs(percent) < 0.005 ? 0 : percent; }

void harpe_rows_print(const harpe_labelled_row *rows, size_t count) {
    int width = 0;
    int time_decimals = 0;
    int energy_decimals = 0;
    for (size_t i = 0; i < count; i++) {
        int length = (int)strlen(rows[i].label);
        int for_time = decimals_for(rows[i].row.time_s, 4);
        int for_energy = decimals_for(rows[i].row.energy_j, 5);
        width = length > width ? length : width;
        time_decimals = for_time > time_decimals ? for_time : time_decimals;
        energy_decimals = for_energy > energy_decimals ? for_energy : energy_decimals;
    }
    printf("%s  %-*s %11s %13s %10s %9s %9s %11s%s\n", harpe_bold_start(), width, "", "time",
           "energy", "slowdown", "savings", "gap", "power/GPU", harpe_bold_end());
    for (size_t i = 0; i < count; i++) {
        const harpe_frontier_row *row = &rows[i].row;
        printf("  %-*s %9.*f s %11.*f J %8.2f %% %7.2f %% %7.3f %% %9.1f W\n", width, rows[i].label,
               time_decimals, row->time_s, energy_decimals, row->energy_j,
               unsigned_zero(row->slowdown_percent), unsigned_zero(row->savings_percent),
               row->gap_percent, row->average_power_w);
    }
}

json_t *harpe_row_json(const harpe_frontier_row *row) {
    json_t *object =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "time_s", row->time_s, "energy_j",
                  row->energy_j, "lower_bound_j", row->lower_bound_j, "gap_percent",
                  row->gap_percent, "average_power_w", row->average_power_w, "slowdown_percent",
                  row->slowdown_percent, "savings_percent", row->savings_percent);
    if (object && row->compute_energy_j > 0) {
        json_object_set_new(object, "compute_energy_j", json_real(row->compute_energy_j));
        json_object_set_new(object, "blocking_energy_j", json_real(row->blocking_energy_j));
    }
    if (object && row->plan >= 0) json_object_set_new(object, "plan", json_integer(row->plan));
    return object;
}
