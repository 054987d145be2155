/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the tables of the report. */
#ifndef HARPE_DRAW_REPORT_TABLES_H
#define HARPE_DRAW_REPORT_TABLES_H

#include "base/text.h"
#include "draw/report_contents.h"

void harpe_report_put_tables(const harpe_report *report, harpe_text *out);

#endif
