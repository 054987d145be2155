/* SPDX-License-Identifier: Apache-2.0 */
/* How the server runs schedulers outside of its process: programs, their supervisors, and the
 * process that loads a shared object. */
#ifndef HARPE_SERVER_SCHEDULER_HOSTS_H
#define HARPE_SERVER_SCHEDULER_HOSTS_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include <harpe/scheduler.h>
#include <harpe/status.h>

#include "server/scheduler/builtin.h"

/* ---- Programs with pipes --------------------------------------------------------------------- */

/* A child is a program with pipes for its standard input and output. A supervisor runs the program,
 * and ends it together with all processes that the program has started. */

struct harpe_child;
struct harpe_cancelled;

/* The children of one server, so that they can be killed from another thread. */
typedef struct harpe_children {
    pthread_mutex_t mutex;
    struct harpe_child *first;
    struct harpe_cancelled *cancelled; /* the jobs for which no more programs are started */
    bool is_over;                      /* no more programs are started */
} harpe_children;

void harpe_children_init(harpe_children *children);
void harpe_children_destroy(harpe_children *children); /* once all children are stopped */
/* Kills all children and the processes that they have started. After this call no more children are
 * started. A thread that waits for the answer of a child notices that the child has ended. Can be
 * called on any thread. */
void harpe_children_kill(harpe_children *children);
/* Kills the children of one job in the same way. No more children are started for this job until
 * harpe_children_forget. Can be called on any thread. */
void harpe_children_cancel(harpe_children *children, const char *job_id);
void harpe_children_forget(harpe_children *children, const char *job_id);

/* ---- Supervisors ----------------------------------------------------------------------------- */

/* The supervisor of one scheduler program: a small process of `harpe` between the server and the
 * program. When the server asks for it, or when the server has ended, the supervisor ends the
 * program and all processes that the program has started, even if they do not respond. */

/* The argument keeps its old name. After an upgrade, a server of the old version may still run, and
 * it starts the new program with this argument. */
#define HARPE_SUPERVISOR_ARGUMENT "--scheduler-keeper"

enum {
    /* The descriptors of a supervisor. 0 and 1 are for the program, and 2 is the standard error of
     * the server. */
    HARPE_SUPERVISOR_LEASH = 3,  /* SOCK_SEQPACKET to the server */
    HARPE_SUPERVISOR_SERVER = 4, /* pidfd of the server; may be missing */
    HARPE_SUPERVISOR_LINE_SIZE = 512,
};

/* The only message from the server: it asks the supervisor to kill the program at once. If the
 * server closes the leash instead, the supervisor closes the program's input, and kills the program
 * a short time later. */
#define HARPE_SUPERVISOR_KILL "k"

/* The only message from the supervisor. It is sent when the program and all processes that it
 * started have ended. */
typedef struct harpe_supervisor_report {
    int wait_status;                            /* as waitpid returns it */
    char last_line[HARPE_SUPERVISOR_LINE_SIZE]; /* of its standard error, "" if there was none */
} harpe_supervisor_report;

/* The main function of the process `harpe --scheduler-keeper COMMAND`, which runs COMMAND with sh
 * -c. */
int harpe_supervisor_main(int argc, char **argv);

/* ---- Schedulers that are programs ------------------------------------------------------------ */

/* A scheduler in a process that answers questions in JSON lines: a program, or a shared object. The
 * server never loads a shared object. For each job, a separate process of `harpe` loads it
 * (library_host.c). A crash or an endless loop in the shared object therefore affects only that
 * job. The questions to a program stand in program.c. These are the questions to a shared object,
 * and the answers:
 *
 * {"check": args}         once, without a job -> {"name": N, FUNCTION: whether it is there ...}
 * {"init": {...}}         as for programs, with "directory" -> {"finished": B}
 * {"next": true}          -> {"schedules": [...], "finished": B}
 * {"observe": [...]}      -> {"finished": B}
 * {"job_request": [W, V]} -> {"finished": B}
 * {"save": true}          -> {"text": HEX}
 * {"load": HEX}           -> {"finished": B}
 * {"frontier": true}      -> {"text": JSON}
 * {"pipeline": NUMBER}    -> {"text": JSON}
 *
 * or {"error": LINE, "status": N}. Every answer may have "log": [[LEVEL, LINE], ...]. */

/* Starts a process that examines the shared object. Returns a class whose functions ask such
 * processes. The caller frees the scheduler's name (class->name). `command` is the command line of
 * the process. `path` is for messages. */
harpe_status harpe_library_look(const char *command, const char *path, const char *args_json,
                                int timeout_s, harpe_children *children,
                                harpe_scheduler_class *class, char **name, harpe_error *error);

/* Writes the bytes of a scheduler's state as hexadecimal digits, so that JSON can contain them.
 * Returns NULL if memory runs out. */
char *harpe_library_to_hex(const char *bytes, size_t length);
/* Reads such digits. Returns NULL if `hex` contains anything else, or if memory runs out. */
char *harpe_library_from_hex(const char *hex, size_t *length);

/* Returns true if a class can have this name: 1 to HARPE_SCHEDULER_NAME_MAX letters, digits or _.
 */
enum { HARPE_SCHEDULER_NAME_MAX = 64 };
bool harpe_scheduler_is_good_name(const char *name);

/* ---- Schedulers that are libraries ----------------------------------------------------------- */

/* The process that loads a shared object for one job. */

#define HARPE_LIBRARY_ARGUMENT "--scheduler-library"

/* Runs as the process `harpe --scheduler-library FILE`. */
int harpe_library_main(int argc, char **argv);

/* ---- Schedules ------------------------------------------------------------------------------- */

/* The schedules of one round. A scheduler writes them into the set with a writer. The set owns all
 * instructions. The harpe_frequency_schedules point to these instructions. */

typedef struct harpe_schedule_set harpe_schedule_set;

/* Makes a set with `rank_count` empty schedules. Returns NULL if memory runs out. */
harpe_schedule_set *harpe_schedule_set_new(int rank_count);
void harpe_schedule_set_free(harpe_schedule_set *set);
/* Returns the writer with which a scheduler appends to this set. */
harpe_schedule_writer *harpe_schedule_set_writer(harpe_schedule_set *set);
/* Returns one schedule per rank, valid until the set changes. */
const harpe_frequency_schedule *harpe_schedule_set_schedules(harpe_schedule_set *set);
/* Returns the number of instructions of all ranks. */
size_t harpe_schedule_set_instruction_count(const harpe_schedule_set *set);

#endif
