/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler in a shared object with the fault that the job's metadata names: "FAULT" in create,
 * "FAULT later" in observe. Without a fault, its clock is 1000 MHz plus the number of rounds that
 * it has observed. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <harpe/scheduler.h>

typedef struct faulty {
    const harpe_scheduler_job *job;
    int observed;
} faulty;

static int (*volatile go_deeper)(int depth);

static int overflow(int depth) {
    volatile char frame[4096];
    memset((char *)frame, depth, sizeof frame);
    return go_deeper(depth + 1) + frame[depth % 4096];
}

static int *volatile nowhere = (int *)64;

/* Uses a real fault, because a raised signal stays pending if it is blocked. */
static void kill_here(void) { *nowhere = 7; }

static void *crash(void *user) {
    (void)user;
    usleep(20000);
    kill_here();
    return NULL;
}

static harpe_status fail_badly(harpe_error *error) {
    memset(error->message, 0xc3, sizeof error->message); /* neither UTF-8 nor terminated */
    return HARPE_INVALID_INPUT;
}

static harpe_status misbehave(const char *fault, harpe_error *error) {
    pthread_t thread;
    if (strcmp(fault, "segfault") == 0) kill_here();
    if (strcmp(fault, "abort") == 0) abort();
    if (strcmp(fault, "exit") == 0) exit(0);
    if (strcmp(fault, "exit 5") == 0) _exit(5);
    go_deeper = overflow;
    if (strcmp(fault, "overflow") == 0) return overflow(0) ? HARPE_OK : HARPE_INTERNAL;
    while (strcmp(fault, "loop") == 0)
        (void)pause();
    if (strcmp(fault, "thread") == 0 && pthread_create(&thread, NULL, crash, NULL) == 0)
        pthread_join(thread, NULL);
    if (strcmp(fault, "leave") == 0) pthread_exit(NULL);
    if (strcmp(fault, "close") == 0) closefrom(0);
    if (strcmp(fault, "error") == 0) return fail_badly(error);
    if (strcmp(fault, "silent error") == 0) return HARPE_INFEASIBLE;
    if (strcmp(fault, "print") == 0) {
        puts("{\"schedules\": 7}\nnoise");
        printf("%d\n", getchar());
        (void)fflush(stdout);
    }
    return HARPE_OK;
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    const char *metadata = job->job->job_metadata ? job->job->job_metadata : "";
    harpe_status status = misbehave(metadata, error);
    if (status != HARPE_OK) return status;
    faulty *self = calloc(1, sizeof *self);
    if (!self) return HARPE_OUT_OF_MEMORY;
    self->job = job;
    *state = self;
    return HARPE_OK;
}

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    const faulty *self = state;
    char line[64];
    snprintf(line, sizeof line, "after %d rounds", self->observed);
    self->job->log.write(self->job->log.user, HARPE_LOG_WARNING, line);
    for (int r = 0; r < self->job->job->world_size; r++) {
        harpe_status status = writer->add(writer, r, "forward", 1000 + self->observed, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static harpe_status observe(void *state, const harpe_profiling_result *results, size_t count,
                            harpe_error *error) {
    faulty *self = state;
    (void)results, (void)count;
    char fault[64] = "";
    const char *metadata = self->job->job->job_metadata ? self->job->job->job_metadata : "";
    const char *later = strstr(metadata, " later");
    if (later) snprintf(fault, sizeof fault, "%.*s", (int)(later - metadata), metadata);
    self->observed++;
    return misbehave(fault, error);
}

#ifdef HARPE_TEST_WITH_STATE
static harpe_status save(const void *state, char **text, size_t *length, harpe_error *error) {
    (void)error;
    const faulty *self = state;
    *text = calloc(1, 8);
    if (!*text) return HARPE_OUT_OF_MEMORY;
    *length = 3; /* with bytes that no valid text contains */
    memcpy(*text, (char[]){(char)0xff, (char)self->observed, 0}, 3);
    return HARPE_OK;
}

static harpe_status load(void *state, const char *text, size_t length, harpe_error *error) {
    (void)error;
    if (length != 3 || text[0] != (char)0xff) return HARPE_INVALID_INPUT;
    ((faulty *)state)->observed = (unsigned char)text[1];
    return HARPE_OK;
}
#endif

static void destroy(void *state) { free(state); }

static const harpe_scheduler_class faulty_class = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = "Faulty",
    .create = create,
    .next_schedule = next_schedule,
    .observe = observe,
    .destroy = destroy,
#ifdef HARPE_TEST_WITH_STATE
    .save = save,
    .load = load,
#endif
};

const harpe_scheduler_class *harpe_scheduler_entry(void);
const harpe_scheduler_class *harpe_scheduler_entry(void) {
    const char *fault = getenv("HARPE_TEST_FAULT_AT_LOAD");
    harpe_error error;
    if (fault && misbehave(fault, &error)) return NULL;
    return &faulty_class;
}
