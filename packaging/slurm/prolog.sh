#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prolog of Slurm for nodes without the node agent (Prolog= in slurm.conf; slurmd runs it as root
# before a job). Restores GPUs that an earlier job has left changed, for example because the epilog
# could not reach the driver. With the agent, neither prolog nor epilog is needed.
#
# If this script fails, Slurm drains the node, so that no job trains on a GPU at an unknown clock.
exec harpe gpus --restore
