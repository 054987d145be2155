#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Epilog of Slurm for nodes without the node agent (Epilog= in slurm.conf; slurmd runs it as root
# after a job). Usually a job's controllers have already restored the GPUs. If Slurm has killed the
# trainer and the controllers at the same moment, this script restores the GPUs from the files in
# /run/harpe. It does not change a GPU whose controller still runs.
#
# A controller writes its file before its first change. Without the agent, controllers must run as
# root to set clocks, so their files are in /run/harpe. If this script fails, Slurm drains the node.
exec harpe gpus --restore
