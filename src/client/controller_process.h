/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a frequency controller. */
#ifndef HARPE_CLIENT_CONTROLLER_PROCESS_H
#define HARPE_CLIENT_CONTROLLER_PROCESS_H

/* Runs the controller process and returns its exit code. Ignores the arguments. */
int harpe_controller_main(int argc, char **argv);

#endif
