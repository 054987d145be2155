/* SPDX-License-Identifier: Apache-2.0 */
/* The fonts that a wheel brings, because an empty system has none. */
#ifndef HARPE_DRAW_FONTS_H
#define HARPE_DRAW_FONTS_H

/* Makes fontconfig use ../share/harpe/fonts/fonts.conf beside the program's directory, if there is
 * one and FONTCONFIG_FILE names no other. Call it before the first text is measured or drawn, while
 * no other thread reads the environment; the first call decides. */
void harpe_fonts_prepare(void);

#endif
