/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper of one scheduler program: a small process of `harpe` between the server and the
 * program. It ends the program and every process that the program has started as soon as the
 * server says so or has ended, also if they hang. Private to child.c and main.c. */
#ifndef HARPE_SERVER_SCHEDULERS_KEEPER_H
#define HARPE_SERVER_SCHEDULERS_KEEPER_H

#define HARPE_KEEPER_ARGUMENT "--scheduler-keeper"

enum {
    /* Descriptors of a keeper. 0 and 1 are the program's, 2 is the server's standard error. */
    HARPE_KEEPER_LEASH = 3,  /* SOCK_SEQPACKET to the server */
    HARPE_KEEPER_SERVER = 4, /* pidfd of the server; may be missing */
    HARPE_KEEPER_LINE_SIZE = 512,
};

/* The server's only message over the leash. If the server closes the leash instead, the keeper
 * closes the program's input, and kills the program soon after. */
#define HARPE_KEEPER_KILL "k"

/* The keeper's only message, after the program and all that it had started have ended. */
typedef struct harpe_keeper_report {
    int wait_status;                        /* as waitpid returns it */
    char last_line[HARPE_KEEPER_LINE_SIZE]; /* of its standard error, "" if there was none */
} harpe_keeper_report;

/* The process: `harpe --scheduler-keeper COMMAND`. Runs COMMAND with sh -c. */
int harpe_keeper_main(int argc, char **argv);

#endif
