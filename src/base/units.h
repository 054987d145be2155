/* SPDX-License-Identifier: Apache-2.0 */
/* Factors between units. */
#ifndef HARPE_BASE_UNITS_H
#define HARPE_BASE_UNITS_H

#define HARPE_JOULES_PER_KWH 3.6e6
#define HARPE_GRAMS_PER_KG 1000.0

#endif
