/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a frequency controller. */
#ifndef HARPE_CLIENT_CONTROLLER_PROCESS_H
#define HARPE_CLIENT_CONTROLLER_PROCESS_H

/* Runs the controller process and returns its exit code. */
int harpe_controller_main(void);

#endif
