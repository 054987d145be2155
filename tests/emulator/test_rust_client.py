#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs rust_client/ under `harpe emulate`: a Rust program that uses nvml-wrapper, a third-party
binding of NVML. Needs cargo and Debian's librust-nvml-wrapper-dev. Builds offline, in the folder
that HARPE_RUST_BUILD names. Exit status 77: there is no cargo or no crate."""
import glob
import os
import pathlib
import shutil
import subprocess
import sys

CRATES = "/usr/share/cargo/registry"
CLIENT = pathlib.Path(__file__).parent / "rust_client"
SKIPPED = 77


def main():
    cargo = shutil.which("cargo")
    if not cargo or not glob.glob(f"{CRATES}/nvml-wrapper-0.9*"):
        print("skipped: needs cargo and Debian's librust-nvml-wrapper-dev")
        return SKIPPED
    build = pathlib.Path(os.environ["HARPE_RUST_BUILD"])
    shutil.copytree(CLIENT, build, dirs_exist_ok=True)  # cargo writes files beside the sources
    subprocess.run([cargo, "build", "--quiet", "--offline",
                    "--config", 'source.crates-io.replace-with="debian"',
                    "--config", f'source.debian.directory="{CRATES}"'],
                   cwd=build, env={**os.environ, "CARGO_TARGET_DIR": str(build / "target")},
                   check=True)
    result = subprocess.run([os.environ["HARPE"], "emulate", "--gpus", "2xA100,V100", "--",
                             str(build / "target/debug/rust_client")],
                            stdout=subprocess.PIPE, text=True, timeout=300)
    print(result.stdout, end="")
    return result.returncode or "not available on the target device" not in result.stdout


if __name__ == "__main__":
    sys.exit(main())
