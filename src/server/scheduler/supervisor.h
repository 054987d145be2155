/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor of one scheduler program: a small process of `harpe` between the server and the
 * program. When the server asks for it, or when the server has ended, the supervisor ends the
 * program and all processes that the program has started, even if they do not respond. Private to
 * child.c and main.c. */
#ifndef HARPE_SERVER_SCHEDULER_SUPERVISOR_H
#define HARPE_SERVER_SCHEDULER_SUPERVISOR_H

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

#endif
