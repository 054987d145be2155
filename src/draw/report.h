/* SPDX-License-Identifier: Apache-2.0 */
/* report.html: one file with the information about a frontier. A browser can open it from a disk
 * without a network. The file is made from plain data and the pictures of draw.h. Only percentages
 * are computed here. If scripts run, the dashboard's components (web/) replace the pictures of
 * frontier and pipelines. */
#ifndef HARPE_DRAW_REPORT_H
#define HARPE_DRAW_REPORT_H

#include "base/text.h"
#include "draw/report_contents.h"

/* Appends the page to `out`. */
harpe_status harpe_report_write(const harpe_report *report, harpe_text *out, harpe_error *error);

extern const char *const harpe_report_style; /* CSS, without the colours */
/* JavaScript, and CSS of the dashboard's components. The build makes them from web/. */
extern const unsigned char harpe_report_chart_style[];
extern const size_t harpe_report_chart_style_size;
extern const unsigned char harpe_report_script[];
extern const size_t harpe_report_script_size;

#endif
