#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch under `harpe emulate`: it counts no GPU as a CUDA device. With --visible-to-torch, the
number of GPUs that it finds through NVML, with CUDA_VISIBLE_DEVICES and in the forked workers of a
DataLoader. Needs a Python that has torch
(Debian's python3-torch, which has no CUDA, is sufficient). Exit status 77: there is none."""
import os
import subprocess
import sys

SKIPPED = 77

PROGRAM = r"""
import ctypes, os, torch

def visible(devices):
    os.environ["CUDA_VISIBLE_DEVICES"] = devices
    return torch.cuda._device_count_nvml()

class Powers(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        handle, power = ctypes.c_void_p(), ctypes.c_uint()
        assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0
        assert nvml.nvmlDeviceGetPowerUsage(handle, ctypes.byref(power)) == 0
        assert torch.cuda._raw_device_count_nvml() == 4
        return power.value

assert torch.cuda._raw_device_count_nvml() == 4
assert torch.cuda._device_count_nvml() == 4
assert [visible(devices) for devices in ("0,2", "3", "")] == [2, 1, 0]
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
powers = torch.utils.data.DataLoader(Powers(), num_workers=2, multiprocessing_context="fork")
assert [int(power) for power in powers] == [62000] * 4
print("torch", torch.__version__, "finds the emulated GPUs")
"""


HIDDEN = r"""
import os, torch
assert torch.cuda._raw_device_count_nvml() == 0
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
assert not torch.cuda.is_available()
"""


def has_torch(python):
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([python, "-c", find], check=False).returncode == 0


def main():
    pythons = [python for python in (sys.executable, "/usr/bin/python3") if has_torch(python)]
    if not pythons:
        print("skipped: needs torch, such as Debian's python3-torch")
        return SKIPPED
    environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    for options, program in ([], HIDDEN), (["--visible-to-torch"], PROGRAM):
        done = subprocess.run([os.environ["HARPE"], "emulate", "--gpus", "4xA100", "--noise", "0",
                               *options, "--", pythons[0], "-W", "error", "-c", program],
                              env=environment, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
