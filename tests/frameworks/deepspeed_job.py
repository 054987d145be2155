# SPDX-License-Identifier: Apache-2.0
"""One rank of a small job that trains with DeepSpeed's pipeline engines on CPUs: linear layers as
pipeline stages, gloo, and Harpe on an emulated GPU. Started by test_deepspeed.py; prints one line
of JSON. Nothing of DeepSpeed is replaced; only its all-reduce in shared memory, which it would
compile first, is turned off."""
import itertools
import json
import os
import pathlib
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

# pylint: disable=wrong-import-position
import deepspeed  # noqa: E402
import job_process  # noqa: E402
import torch  # noqa: E402
from deepspeed.pipe import LayerSpec, PipelineModule  # noqa: E402
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology  # noqa: E402

from harpe.integrations import deepspeed as harpe_deepspeed  # noqa: E402

WIDTH = 8


class Layer(torch.nn.Linear):
    """A layer that notes when it computes. As long as there are clocks, each forward and each
    backward also takes the next one, and waits until the GPU has it."""
    gpu, events, clocks = None, [], []

    def __init__(self):
        super().__init__(WIDTH, WIDTH)

    def forward(self, data):
        self.note("forward")
        output = super().forward(data)
        if output.requires_grad:
            output.register_hook(lambda _: self.note("backward"))
        return output

    def note(self, what):
        if self.clocks:
            self.gpu.wait_for(self.clocks.pop(0))
        self.events.append(f"ran {what}")


def batches():
    while True:
        yield torch.linspace(-1, 1, WIDTH).reshape(1, WIDTH), torch.zeros(1, WIDTH)


class Job:
    def __init__(self, settings):
        self.settings, self.events, self.losses = settings, [], []
        Layer.events, Layer.gpu = self.events, job_process.Gpu(int(os.environ["RANK"]))
        ranks, replicas = settings["ranks"], settings["world_size"] // settings["ranks"]
        # The first job of a machine would wait for minutes until this extension is compiled.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
        torch.manual_seed(0)
        module = getattr(deepspeed.pipe, settings["module"])(
            [LayerSpec(Layer) for _ in range(settings["layers"])],
            loss_fn=torch.nn.functional.mse_loss,
            topology=PipeDataParallelTopology(num_pp=ranks, num_dp=replicas))
        self.engine, *_ = deepspeed.initialize(
            model=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            config={"train_micro_batch_size_per_gpu": 1, "steps_per_print": 10**9,
                    "gradient_accumulation_steps": settings["microbatches"]})
        self.data = batches()

    def take(self):
        events = self.events[:]
        self.events.clear()
        return events

    def step(self):
        self.losses.append(float(self.engine.train_batch(self.data)))
        return self.take()

    def evaluate(self):
        self.engine.eval_batch(self.data)
        return self.take()

    def parameters(self):
        return [one.detach().clone() for one in self.engine.module.parameters()]

    def save(self):
        """Returns which of the files that DeepSpeed saves name Harpe."""
        self.engine.save_checkpoint(self.settings["folder"])
        files = [one for one in pathlib.Path(self.settings["folder"]).rglob("*") if one.is_file()]
        assert len(files) > self.settings["ranks"], files
        return [one.name for one in files if b"harpe" in one.read_bytes()]

    def load(self):
        """Tells whether the parameters are those that were saved."""
        saved = self.parameters()
        self.step()
        changed = self.parameters()
        self.engine.load_checkpoint(self.settings["folder"])
        loaded = self.parameters()
        return (all(map(torch.equal, loaded, saved))
                and not any(map(torch.equal, changed, saved)))


def main():
    settings, rank = json.loads(sys.argv[1]), int(os.environ["RANK"])
    job = Job(settings)
    with harpe_deepspeed.install(job.engine, server_url=settings["url"], iterations=2,
                                 epilogue=settings.get("epilogue"), warmup_iterations=0) as one:
        optimizer = one.optimizer
        optimizer.wait_for_round(0, 300)
        job_process.record(optimizer, job.events)
        steps, evaluations = [], []
        Layer.clocks[:] = settings["clocks"][job.engine.stage_id]
        steps.append(job.step())
        Layer.clocks.append(settings["highest"])
        evaluations.append(job.evaluate())
        while not job_process.everywhere(optimizer.status().round >= settings["rounds"]):
            steps.append(job.step())
            evaluations.append(job.evaluate())
        naming = job.save()
        is_loaded = job.load()
        status = optimizer.status()
    job.take()
    uninstalled = job.step()
    print(json.dumps({
        "rank": rank, "csv": harpe_deepspeed.csv_of(job.engine), "first": steps[0],
        "all_the_same": all(step == steps[0] for step in steps),
        "evaluation": list(itertools.chain(*evaluations)), "uninstalled": uninstalled,
        "left": sorted({"_INSTRUCTION_MAP", "_exec_schedule"} & set(vars(job.engine))),
        "round": status.round, "misfits": status.misfits, "naming": naming, "loaded": is_loaded,
        "losses": [job.losses[0], job.losses[-1]]}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
