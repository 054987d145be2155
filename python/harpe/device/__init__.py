# SPDX-License-Identifier: Apache-2.0
"""The GPUs and CPU packages of this machine, one call for each value or setting, under the names of
Zeus. harpe.monitor measures windows, and harpe.optimizer changes settings and restores them; this
package is for what a script reads or sets by itself."""
from harpe.device.cpu import CPUs, CpuDramMeasurement, get_cpus
from harpe.device.gpu import GPUs, get_gpus

__all__ = ["CPUs", "CpuDramMeasurement", "GPUs", "get_cpus", "get_gpus"]
