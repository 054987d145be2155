/* SPDX-License-Identifier: Apache-2.0 */
/* Exponential function and logarithm; see exact.h. Both split off a power of two, and sum up the
 * series of the rest. ldexp and frexp are exact. */
#include "exact.h"

#include <math.h>

/* ln 2 in two parts. The first has so few digits that its product with an exponent is exact. */
#define LN2_HIGH 0x1.62e42fee00000p-1
#define LN2_LOW 0x1.a39ef35793c76p-33

enum { EXP_TERMS = 14, SMALL_EXP_TERMS = 7, LOG_TERMS = 11 };
#define SMALL 0x1p-6 /* the power SMALL_EXP_TERMS + 1 of this does not change 1 */

/* 1 / n */
static const double inverse[] = {0,        1,        1.0 / 2,  1.0 / 3,  1.0 / 4,
                                 1.0 / 5,  1.0 / 6,  1.0 / 7,  1.0 / 8,  1.0 / 9,
                                 1.0 / 10, 1.0 / 11, 1.0 / 12, 1.0 / 13, 1.0 / 14};

/* The series of e^x. */
static double sum_exp(double x, int terms) {
    double sum = 1;
    for (int i = terms; i > 0; i--)
        sum = 1 + sum * x * inverse[i];
    return sum;
}

double emulator_exp(double x) {
    if (x < -700) return 0;
    if (x > 700) return INFINITY;
    if (fabs(x) < SMALL) return sum_exp(x, SMALL_EXP_TERMS);
    double exponent = floor(x / (LN2_HIGH + LN2_LOW) + 0.5);
    double rest = (x - exponent * LN2_HIGH) - exponent * LN2_LOW;
    return ldexp(sum_exp(rest, EXP_TERMS), (int)exponent);
}

double emulator_log(double x) {
    int exponent;
    double part = frexp(x, &exponent); /* 0.5 to 1 */
    if (part < 0x1.6a09e667f3bcdp-1) { /* the root of 0.5 */
        part *= 2;
        exponent--;
    }
    /* ln((1 + s) / (1 - s)) = 2 (s + s^3 / 3 + s^5 / 5 + ...) */
    double s = (part - 1) / (part + 1), square = s * s, sum = 0;
    for (int i = LOG_TERMS; i > 0; i--)
        sum = square * (sum + 1.0 / (2 * i + 1));
    return exponent * LN2_HIGH + (exponent * LN2_LOW + 2 * (s + s * sum));
}
