/* SPDX-License-Identifier: Apache-2.0 */
/* The process that loads a shared object for one job. */
#ifndef HARPE_SERVER_SCHEDULER_LIBRARY_HOST_H
#define HARPE_SERVER_SCHEDULER_LIBRARY_HOST_H

#define HARPE_LIBRARY_ARGUMENT "--scheduler-library"

/* Runs as the process `harpe --scheduler-library FILE`. */
int harpe_library_main(int argc, char **argv);

#endif
