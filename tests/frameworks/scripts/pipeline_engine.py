# SPDX-License-Identifier: Apache-2.0
"""A script as the documentation of DeepSpeed's pipelines shows them, on CPUs. It names nothing of
Harpe. It trains until the file that its argument names exists.

    torchrun --nproc-per-node 2 pipeline_engine.py FILE
"""
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

# pylint: disable=wrong-import-position
import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from deepspeed.pipe import LayerSpec, PipelineModule  # noqa: E402
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology  # noqa: E402


class Layer(torch.nn.Linear):
    def __init__(self):
        super().__init__(8, 8)


def batches():
    while True:
        yield torch.ones(1, 8), torch.zeros(1, 8)


def main():
    # The first job of a machine would wait for minutes until this extension is compiled.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    torch.manual_seed(0)
    module = PipelineModule([LayerSpec(Layer) for _ in range(2)],
                            loss_fn=torch.nn.functional.mse_loss,
                            topology=PipeDataParallelTopology(num_pp=2, num_dp=1))
    engine, *_ = deepspeed.initialize(
        model=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        config={"train_micro_batch_size_per_gpu": 1, "steps_per_print": 10**9,
                "gradient_accumulation_steps": 4})
    data = batches()
    first = last = float(engine.train_batch(data))
    is_over = torch.zeros(1)
    while not is_over:
        last = float(engine.train_batch(data))
        is_over.fill_(os.path.exists(sys.argv[1]))
        dist.all_reduce(is_over, dist.ReduceOp.MIN)
    if dist.get_rank() == 1:
        print(f"the loss fell: {last < first}")


main()
