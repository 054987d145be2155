/* SPDX-License-Identifier: Apache-2.0 */
/* For test_fork.py: a thread that Python does not know writes log lines without a pause. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include <harpe/callback.h>

int log_storm_begin(const harpe_log *log);
void log_storm_end(void);

static pthread_t thread;
static atomic_bool is_over;
static harpe_log log_of_thread;

static void *write_lines(void *user) {
    (void)user;
    while (!atomic_load(&is_over))
        log_of_thread.write(log_of_thread.user, HARPE_LOG_INFO, "a line of a thread of C");
    return NULL;
}

int log_storm_begin(const harpe_log *log) {
    log_of_thread = *log;
    atomic_store(&is_over, false);
    return pthread_create(&thread, NULL, write_lines, NULL);
}

void log_storm_end(void) {
    atomic_store(&is_over, true);
    (void)pthread_join(thread, NULL);
}
