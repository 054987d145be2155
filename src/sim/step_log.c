/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/step_log.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "sim/steps.h"

static harpe_status fail_write(const harpe_sim_step_log *log, harpe_error *error) {
    return harpe_fail(error, HARPE_IO_ERROR, "cannot write %s: %s", log->path, strerror(errno));
}

harpe_status harpe_sim_step_log_open(const harpe_sim_options *options, harpe_sim_step_log *out,
                                     harpe_error *error) {
    *out = (harpe_sim_step_log){.path = options->step_log_path};
    if (!out->path) return HARPE_OK;
    out->file = fopen(out->path, "we");
    return out->file ? HARPE_OK : fail_write(out, error);
}

harpe_status harpe_sim_step_log_write(harpe_sim_step_log *log, const harpe_sim_board *board,
                                      int count, harpe_error *error) {
    if (!log->file || log->written >= count) return HARPE_OK;
    for (; log->written < count; log->written++) {
        json_t *step = harpe_sim_show_step(board, harpe_sim_step_at(board, log->written));
        bool is_written =
            step && json_dumpf(step, log->file, JSON_COMPACT | JSON_REAL_PRECISION(15)) == 0 &&
            fputc('\n', log->file) != EOF;
        json_decref(step);
        if (!is_written) return fail_write(log, error);
    }
    return fflush(log->file) == 0 ? HARPE_OK : fail_write(log, error);
}

void harpe_sim_step_log_close(harpe_sim_step_log *log) {
    if (log->file) (void)fclose(log->file);
    log->file = NULL;
}
