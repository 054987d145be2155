/* SPDX-License-Identifier: Apache-2.0 */
/* Prints plans as a table and as JSON. All numbers come from the rows. */
#include "cli/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"

int harpe_row_decimals(double value, int digits) {
    double magnitude = fabs(value) > 0 ? floor(log10(fabs(value))) : 0;
    double decimals = digits - 1 - magnitude;
    return decimals < 0 ? 0 : decimals > 9 ? 9 : (int)decimals;
}

void harpe_row_format_time(char *buffer, size_t size, double time_s) {
    snprintf(buffer, size, "%.*f", harpe_row_decimals(time_s, 4), time_s);
}

/* Returns the percentage, or 0 if it would be printed as zero with a sign. */
static double unsigned_zero(double percent) { return fabs(percent) < 0.005 ? 0 : percent; }

static double one_clock_savings(const harpe_frontier_row *row) {
    return 100 * (1 - row->energy_j / row->one_clock_energy_j);
}

static int label_width(const harpe_labelled_row *rows, size_t count) {
    int width = 0;
    for (size_t i = 0; i < count; i++) {
        int length = (int)strlen(rows[i].label);
        width = length > width ? length : width;
    }
    return width;
}

void harpe_rows_print(const harpe_labelled_row *rows, size_t count) {
    int width = label_width(rows, count);
    int time_decimals = 0;
    int energy_decimals = 0;
    bool has_overhead = false, has_one_clock = false;
    for (size_t i = 0; i < count; i++) {
        int for_time = harpe_row_decimals(rows[i].row.time_s, 4);
        int for_energy = harpe_row_decimals(rows[i].row.energy_j, 5);
        has_overhead = has_overhead || rows[i].row.overhead_energy_j > 0;
        has_one_clock = has_one_clock || rows[i].row.one_clock_energy_j > 0;
        time_decimals = for_time > time_decimals ? for_time : time_decimals;
        energy_decimals = for_energy > energy_decimals ? for_energy : energy_decimals;
    }
    printf("%s  %-*s %11s %13s", harpe_bold_start(), width, "", "time", "energy");
    if (has_overhead) printf(" %13s", "GPU energy");
    printf(" %10s %9s", "slowdown", "savings");
    if (has_one_clock) printf(" %12s", "vs one clock");
    printf(" %9s %11s%s\n", "gap", "power/GPU", harpe_bold_end());
    for (size_t i = 0; i < count; i++) {
        const harpe_frontier_row *row = &rows[i].row;
        printf("  %-*s %9.*f s %11.*f J", width, rows[i].label, time_decimals, row->time_s,
               energy_decimals, row->energy_j);
        if (has_overhead)
            printf(" %11.*f J", energy_decimals, row->energy_j - row->overhead_energy_j);
        printf(" %8.2f %% %7.2f %%", unsigned_zero(row->slowdown_percent),
               unsigned_zero(row->savings_percent));
        if (has_one_clock) printf(" %10.2f %%", unsigned_zero(one_clock_savings(row)));
        printf(" %7.3f %% %9.1f W\n", row->gap_percent, row->average_power_w);
    }
}

void harpe_rows_print_power(const harpe_labelled_row *rows, size_t count) {
    int width = label_width(rows, count);
    printf("%s  %-*s %13s %13s %13s%s\n", harpe_bold_start(), width, "", "peak power", "swing",
           "frequency", harpe_bold_end());
    for (size_t i = 0; i < count; i++) {
        const harpe_frontier_row *row = &rows[i].row;
        if (row->peak_power_w <= 0) continue; /* not known */
        printf("  %-*s %11.1f W %11.1f W", width, rows[i].label, row->peak_power_w, row->swing_w);
        if (row->swing_hz > 0)
            printf(" %10.3f Hz\n", row->swing_hz);
        else
            printf(" %13s\n", "-");
    }
}

json_t *harpe_row_json(const harpe_frontier_row *row) {
    json_t *object =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "time_s", row->time_s, "energy_j",
                  row->energy_j, "lower_bound_j", row->lower_bound_j, "gap_percent",
                  row->gap_percent, "average_power_w", row->average_power_w, "slowdown_percent",
                  row->slowdown_percent, "savings_percent", row->savings_percent);
    /* The rows of a server's job have only the sum. */
    bool has_parts = row->compute_energy_j > 0 || row->blocking_energy_j > 0 || row->energy_j <= 0;
    if (object && has_parts) {
        json_object_set_new(object, "compute_energy_j", json_real(row->compute_energy_j));
        json_object_set_new(object, "blocking_energy_j", json_real(row->blocking_energy_j));
        json_object_set_new(object, "overhead_energy_j", json_real(row->overhead_energy_j));
        json_object_set_new(object, "change_energy_j", json_real(row->change_energy_j));
    }
    if (object && row->peak_power_w > 0) {
        json_object_set_new(object, "peak_power_w", json_real(row->peak_power_w));
        json_object_set_new(object, "swing_w", json_real(row->swing_w));
        json_object_set_new(object, "swing_hz", json_real(row->swing_hz));
    }
    if (object && row->one_clock_energy_j > 0)
        json_object_set_new(object, "one_clock_savings_percent", json_real(one_clock_savings(row)));
    if (object && row->one_clock_mhz > 0)
        json_object_set_new(object, "frequency_mhz", json_integer(row->one_clock_mhz));
    if (object && row->plan >= 0) json_object_set_new(object, "plan", json_integer(row->plan));
    return object;
}
