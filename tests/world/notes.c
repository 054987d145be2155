/* SPDX-License-Identifier: Apache-2.0 */
#include "world/notes.h"

#include <stdarg.h>

#include "base/clock.h"

static double now_s(void) { return (double)harpe_clock_ns() * 1e-9; }

void world_tell(const world_notes *notes, const char *format, ...) {
    va_list arguments;
    if (!notes->trace) return;
    fprintf(notes->trace, "%14.6f  ", now_s());
    va_start(arguments, format);
    vfprintf(notes->trace, format, arguments);
    va_end(arguments);
    fputc('\n', notes->trace);
}

void world_accuse(const world_notes *notes, const char *format, ...) {
    va_list arguments;
    if (*notes->fault) return;
    int length = snprintf(notes->fault, WORLD_FAULT_SIZE, "at %.6f s: ", now_s());
    va_start(arguments, format);
    (void)vsnprintf(notes->fault + length, (size_t)(WORLD_FAULT_SIZE - length), format, arguments);
    va_end(arguments);
    world_tell(notes, "%s", notes->fault);
}
