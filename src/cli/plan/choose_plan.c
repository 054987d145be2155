/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses a plan. Each criterion is a limit for a plan, and an order of the plans within it. */
#include "cli/plan/choose_plan.h"

#include <math.h>

#include "base/error.h"
#include "base/format.h"

/* The plans to choose from, and the limits that they must keep. */
typedef struct selection {
    const harpe_choose_request *request;
    const harpe_plan_directory *plans;
    bool is_limited; /* the limits on power hold */
    double time_limit_s;
    double average_limit_w; /* per GPU */
} selection;

bool harpe_choose_has_limits(const harpe_choose_request *request) {
    return isfinite(request->peak_limit_w) || isfinite(request->swing_limit_w);
}

/* Compares with a tolerance. A plan's time is a sum, and its last digit depends on the order of
 * addition. A time that was printed as 3.926225 must find its plan. The power of a plan is such a
 * sum too. */
static bool is_within(double value, double allowed) { return value <= allowed * (1 + 1e-9); }

static bool keeps_power_limits(const harpe_choose_request *request, const harpe_frontier_row *row) {
    return is_within(row->peak_power_w, request->peak_limit_w) &&
           is_within(row->swing_w, request->swing_limit_w);
}

static bool fits(const selection *s, const harpe_frontier_row *row) {
    if (s->is_limited && !keeps_power_limits(s->request, row)) return false;
    return is_within(row->time_s, s->time_limit_s) &&
           is_within(row->average_power_w, s->average_limit_w);
}

/* Returns the value by which the criterion orders plans; the least is chosen. */
static double rank_of(const harpe_choose_request *request, const harpe_frontier_row *row) {
    switch (request->criterion) {
    case HARPE_CHOOSE_SLOWEST: return -row->time_s;
    case HARPE_CHOOSE_POWER_CAP:
    case HARPE_CHOOSE_FASTEST: return row->time_s;
    default: break;
    }
    return request->prices.are_given ? harpe_cost_of(&request->prices, row).total : row->energy_j;
}

/* Returns NULL if no plan fits. */
static const harpe_frontier_row *select_row(const selection *s) {
    const harpe_frontier_row *best = NULL;
    for (size_t i = 0; i < s->plans->row_count; i++) {
        const harpe_frontier_row *row = &s->plans->rows[i];
        if (!fits(s, row)) continue;
        if (!best || rank_of(s->request, row) < rank_of(s->request, best)) best = row;
    }
    return best;
}

/* ---- Failures -------------------------------------------------------------------------------- */

/* Rounds up, so that the printed number can be used as a limit. */
static double rounded_up(double value, double unit) { return ceil(value / unit) * unit; }

/* Returns the row with the least value of a member, among those that keep the limits on power if
 * they hold; NULL: there is none. */
static const harpe_frontier_row *least_of(const selection *s, size_t member) {
    const harpe_frontier_row *best = NULL;
    double least = INFINITY;
    for (size_t i = 0; i < s->plans->row_count; i++) {
        const harpe_frontier_row *row = &s->plans->rows[i];
        double value = *(const double *)(const void *)((const char *)row + member);
        if ((s->is_limited && !keeps_power_limits(s->request, row)) || !(value < least)) continue;
        best = row;
        least = value;
    }
    return best;
}

static harpe_status fail_power_limits(const selection *s, harpe_error *error) {
    selection all = *s;
    all.is_limited = false;
    const harpe_frontier_row *peak = least_of(&all, offsetof(harpe_frontier_row, peak_power_w));
    const harpe_frontier_row *swing = least_of(&all, offsetof(harpe_frontier_row, swing_w));
    if (!peak || !swing) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "frontier.csv has no peak and swing of power, because an older harpe "
                          "plan has written it: make the directory again");
    }
    return harpe_fail(error, HARPE_INFEASIBLE,
                      "no plan keeps the limits on power; the lowest peak, of plan %d, is %s W, "
                      "and the smallest swing, of plan %d, is %s W",
                      peak->plan, HARPE_DIGITS(rounded_up(peak->peak_power_w, 0.01), 9),
                      swing->plan, HARPE_DIGITS(rounded_up(swing->swing_w, 0.01), 9));
}

static harpe_status fail_nothing_fits(const selection *s, harpe_error *error) {
    const char *limited = s->is_limited ? " that keeps the limits on power" : "";
    if (isfinite(s->average_limit_w)) {
        const harpe_frontier_row *least =
            least_of(s, offsetof(harpe_frontier_row, average_power_w));
        if (!least) return fail_power_limits(s, error);
        return harpe_fail(error, HARPE_INFEASIBLE,
                          "no plan%s draws at most %s W per GPU; the least, plan %d, draws %s W",
                          limited, HARPE_DIGITS(s->average_limit_w, 6), least->plan,
                          HARPE_DIGITS(rounded_up(least->average_power_w, 0.01), 9));
    }
    const harpe_frontier_row *fastest = least_of(s, offsetof(harpe_frontier_row, time_s));
    if (!fastest || !isfinite(s->time_limit_s)) return fail_power_limits(s, error);
    return harpe_fail(error, HARPE_INFEASIBLE,
                      "no plan%s takes at most %s s; the fastest, plan %d, takes %s s", limited,
                      HARPE_DIGITS(s->time_limit_s, 6), fastest->plan,
                      HARPE_DIGITS(rounded_up(fastest->time_s, 1e-6), 9));
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static const harpe_frontier_row *fastest_of(const harpe_plan_directory *plans) {
    const harpe_frontier_row *best = &plans->rows[0];
    for (size_t i = 1; i < plans->row_count; i++)
        if (plans->rows[i].time_s < best->time_s) best = &plans->rows[i];
    return best;
}

/* Fills in the criterion's limit. */
static void set_limit(selection *s, const harpe_chosen *chosen) {
    double value = s->request->value;
    switch (s->request->criterion) {
    case HARPE_CHOOSE_SLOWEST:
    case HARPE_CHOOSE_DEADLINE: s->time_limit_s = value; break;
    case HARPE_CHOOSE_SLOWDOWN: s->time_limit_s = value * s->plans->all_maximum.time_s; break;
    /* The aim is least energy: no limit at T* is needed. */
    case HARPE_CHOOSE_STRAGGLER: s->time_limit_s = value * chosen->fastest->time_s; break;
    case HARPE_CHOOSE_POWER_CAP: s->average_limit_w = value; break;
    default: break;
    }
}

/* Prices and limits on power decide by other things than energy, so the choice is then compared at
 * its own time too. */
static void compare_with_one_clock(const selection *s, harpe_plan_directory *plans,
                                   harpe_chosen *chosen) {
    const harpe_one_clock_rows *of = &plans->one_clock;
    bool is_by_energy =
        isfinite(s->time_limit_s) && !s->is_limited && !s->request->prices.are_given;
    double most_s = is_by_energy ? s->time_limit_s : chosen->row->time_s;
    for (size_t i = 0; i < plans->row_count; i++)
        (void)harpe_one_clock_compare(of, plans->rows[i].time_s, &plans->rows[i]);
    for (size_t i = 0; i < of->count; i++)
        (void)harpe_one_clock_compare(of, of->rows[i].time_s, &of->rows[i]);
    chosen->as_fast_one_clock = harpe_one_clock_compare(of, 0, &plans->all_maximum);
    chosen->one_clock =
        harpe_one_clock_compare(of, most_s, &plans->rows[chosen->row - plans->rows]);
}

harpe_status harpe_choose(const harpe_choose_request *request, harpe_plan_directory *plans,
                          harpe_chosen *out, harpe_error *error) {
    selection s = {
        .request = request, .plans = plans, .time_limit_s = INFINITY, .average_limit_w = INFINITY};
    harpe_chosen chosen = {.fastest = fastest_of(plans)};
    set_limit(&s, &chosen);
    chosen.unlimited = select_row(&s);
    s.is_limited = harpe_choose_has_limits(request);
    chosen.row = select_row(&s);
    if (!chosen.row) return fail_nothing_fits(&s, error);
    chosen.iteration_s = chosen.row->time_s;
    compare_with_one_clock(&s, plans, &chosen);
    if (request->criterion == HARPE_CHOOSE_STRAGGLER) {
        double waiting_s = fmax(0, s.time_limit_s - chosen.row->time_s);
        chosen.iteration_s = s.time_limit_s;
        chosen.waiting_j = (plans->end_power_w + plans->overhead_power_w) * waiting_s;
    }
    *out = chosen;
    return HARPE_OK;
}
