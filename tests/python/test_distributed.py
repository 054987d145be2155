# SPDX-License-Identifier: Apache-2.0
"""harpe.distributed: a single process, torch.distributed over gloo and mpi4py in real processes
(each is skipped if it is not installed), and NCCL's tensors on a stand-in."""
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import world
from harpe import distributed

RANKS = 3

# The checks of every rank, for every transport. A sum that needs all 53 bits proves 64-bit floats.
CHECKS = """
from harpe import distributed
rank = distributed.rank()
assert distributed.world_size() == %d
assert distributed.all_reduce([rank, 2.0 ** 52 if rank == 0 else 1.0], "sum") == [3.0, 2.0 ** 52 + 2]
assert distributed.all_reduce([rank, -rank], "max") == [2.0, 0.0]
for root in (0, 2):
    assert distributed.broadcast(b"id %%d" %% rank if rank == root else None, root) == b"id %%d" %% root
    assert distributed.broadcast(b"" if rank == root else b"?", root) == b""
print("rank", rank, "agrees", flush=True)
""" % RANKS

TORCH = """
import sys
import torch
from harpe import distributed
assert distributed.world_size() == 1  # not initialised
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]),
                                     world_size=%d)
%s
""" % (RANKS, CHECKS)

# The same for programs in C, with the broadcast of harpe/mpi.h.
PROGRAM = r"""
#include <mpi.h>
#include <string.h>
#include <harpe/mpi.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm everyone = MPI_COMM_WORLD;
    harpe_error error;
    int rank;
    char text[8] = "";
    MPI_Comm_rank(everyone, &rank);
    if (rank == 0) strcpy(text, "the id");
    if (harpe_mpi_broadcast(&everyone, text, sizeof text, &error) != HARPE_OK) return 1;
    if (strcmp(text, "the id") == 0) printf("rank %d agrees\n", rank);
    return MPI_Finalize();
}
"""


class Distributed(unittest.TestCase):
    def test_one_process_is_a_job_of_one(self):
        self.assertEqual((distributed.rank(), distributed.world_size()), (0, 1))
        self.assertEqual(distributed.all_reduce([1, 2.5], "sum"), [1.0, 2.5])
        self.assertEqual(distributed.all_reduce((1,), "max"), [1.0])
        self.assertEqual(distributed.broadcast(b"id"), b"id")
        with self.assertRaisesRegex(ValueError, "'mean'"):
            distributed.all_reduce([1], "mean")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_torch_distributed_over_gloo(self):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            processes = [subprocess.Popen([sys.executable, "-c", TORCH, f"{folder}/meet", str(rank)],
                                          env=dict(os.environ, OMP_NUM_THREADS="1"), text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                         for rank in range(RANKS)]
            for rank, process in enumerate(processes):
                try:
                    out, err = process.communicate(timeout=600)
                finally:
                    process.kill()
                self.assertEqual(out, f"rank {rank} agrees\n", err)

    def agree(self, *program):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("OMPI_", "PMIX_"))}
        result = subprocess.run(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS), *program],
            env=environment, text=True, timeout=600, capture_output=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count("agrees"), RANKS)

    @unittest.skipUnless(importlib.util.find_spec("mpi4py") and shutil.which("mpirun"),
                         "mpi4py or mpirun is not installed")
    def test_mpi_through_mpi4py(self):
        self.agree(sys.executable, "-c", "from mpi4py import MPI\n" + CHECKS)

    @unittest.skipUnless(shutil.which("mpicc") and shutil.which("mpirun"), "no MPI")
    def test_mpi_in_c(self):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            source, program = f"{folder}/program.c", f"{folder}/program"
            with open(source, "w") as file:
                file.write(PROGRAM)
            include = os.path.join(os.environ["HARPE_SOURCE_DIR"], "include")
            subprocess.run(["mpicc", "-I", include, "-o", program, source], check=True, timeout=600)
            self.agree(program)

    def test_mpi_that_is_not_running_is_left_alone(self):
        for initialized, finalized in ((False, False), (True, True)):
            mpi = mock.Mock()
            mpi.Is_initialized.return_value, mpi.Is_finalized.return_value = initialized, finalized
            with mock.patch.dict(sys.modules, {"mpi4py.MPI": mpi}):
                self.assertEqual(distributed.world_size(), 1)
                self.assertEqual(distributed.all_reduce([2.0], "sum"), [2.0])
            mpi.COMM_WORLD.Allreduce.assert_not_called()

    def test_nccl_alone_gets_tensors_on_the_gpu(self):
        for backend, device in (("nccl", ("cuda", 3)), ("gloo", ("cpu",)), ("cpu:gloo,cuda:nccl", ("cpu",))):
            torch = mock.Mock(float64="float64")
            torch.device = lambda *arguments: arguments
            torch.cuda.current_device.return_value = 3
            torch.tensor.return_value = types.SimpleNamespace(tolist=lambda: [7.0])
            torch.distributed.get_backend.return_value = backend
            with mock.patch.dict(sys.modules, torch=torch):
                self.assertEqual(distributed.all_reduce([1.0], "sum"), [7.0])
            torch.tensor.assert_called_once_with([1.0], dtype="float64", device=device)
