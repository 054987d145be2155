# SPDX-License-Identifier: Apache-2.0
"""Programs that use PyTorch as its users do, and name nothing of Harpe. The argument is the name of a function.
They end with a check that the training did what it should."""
import os
import sys

import torch
from torch.utils.data import DataLoader

STEPS = 20


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.rest = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(8, 1))

    def forward(self, inputs):
        return self.rest(self.first(inputs))


def data(count, batch_size=2, **options):
    return DataLoader(torch.ones(count * batch_size, 4), batch_size=batch_size, **options)


def loss_of(net, batch):
    return (net(batch) - batch.sum(1, keepdim=True)).square().mean()


def train(net=None, optimizer=None, accumulate=1, evaluate_every=0, **options):
    """STEPS updates, with an evaluation now and then."""
    net = net or Net()
    optimizer = optimizer or torch.optim.SGD(net.parameters(), 0.01)
    losses = []
    for index, batch in enumerate(data(STEPS * accumulate, **options)):
        loss = loss_of(net, batch) / accumulate
        loss.backward()
        losses.append(float(loss.detach()))
        if (index + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        if evaluate_every and (index + 1) % evaluate_every == 0:
            net.eval()
            with torch.no_grad():
                for other in data(STEPS):
                    net(other)
            net.train()
    assert losses[-1] < losses[0], losses
    return net


def accumulated():
    train(accumulate=4)


def evaluated():
    train(evaluate_every=5)


def with_workers():
    train(num_workers=2)


def with_a_schedule():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for batch in data(STEPS):
        loss_of(net, batch).backward()
        optimizer.step()
        schedule.step()


def two_optimizers():
    """A generator and its discriminator."""
    nets = [Net(), Net()]
    optimizers = [torch.optim.SGD(net.parameters(), 0.01) for net in nets]
    for batch in data(STEPS):
        for net, optimizer in zip(nets, optimizers):
            loss_of(net, batch).backward()
            optimizer.step()
            optimizer.zero_grad()


def own_optimizer():
    """A subclass whose step is the inner one's, and a class that is no optimizer of PyTorch."""
    class Mine(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    net = Net()
    train(net, Mine(net.parameters(), 0.01))


def skipped():
    """As a GradScaler skips a step whose gradients are not finite."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for index, batch in enumerate(data(STEPS)):
        loss_of(net, batch).backward()
        if index % 10 != 0:
            optimizer.step()
        optimizer.zero_grad()


def in_the_backward():
    """An optimizer for each parameter, which steps when its gradient is there."""
    net = Net()
    for one in net.parameters():
        def step(parameter, optimizer=torch.optim.SGD([one], 0.01)):
            optimizer.step()
            optimizer.zero_grad()
        one.register_post_accumulate_grad_hook(step)
    for batch in data(STEPS):
        loss_of(net, batch).backward()


def no_optimizer():
    """Weights that are changed by hand."""
    net = Net()
    for batch in data(STEPS):
        loss_of(net, batch).backward()
        with torch.no_grad():
            for one in net.parameters():
                one -= 0.01 * one.grad
                one.grad = None


def infer(net=None):
    net = (net or Net()).eval()
    with torch.no_grad():
        for _ in range(STEPS):
            net(torch.ones(2, 4))


def infer_two():
    """One model calls the other, which was also prepared as a whole."""
    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net().to("cpu")

        def forward(self, inputs):
            return self.net(inputs) + self.net(inputs)

    infer(Both())


def infer_that_fails():
    net = Net().eval()
    for index in range(2 * STEPS):
        try:
            net(torch.ones(2, 4 + index % 2))
        except RuntimeError:
            assert index % 2
        else:
            assert not index % 2


def infer_in_threads():
    import threading
    nets = [Net().eval() for _ in range(4)]
    threads = [threading.Thread(target=infer, args=(net,)) for net in nets]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def compiled():
    """Nothing breaks the graph, neither here nor in a function around a model."""
    net = Net().eval()
    whole = torch.compile(net, backend="eager", fullgraph=True)
    around = torch.compile(lambda inputs: net(inputs) * 2, backend="eager", fullgraph=True)
    for _ in range(STEPS):
        assert torch.equal(whole(torch.ones(2, 4)) * 2, around(torch.ones(2, 4)))


def compiled_in_place():
    net = Net().eval()
    net.compile(backend="eager", fullgraph=True)
    infer(net)


def saved():
    """What a program saves has nothing of Harpe."""
    import io
    net = Net().to("cpu")
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    train(net, optimizer)
    for one in (net, optimizer):
        file = io.BytesIO()
        torch.save(one, file)
        assert b"harpe" not in file.getvalue()
    traced = torch.fx.symbolic_trace(net)
    assert "self.first" in traced.code, traced.code
    torch.jit.script(net)


def taken_along():
    """A script's class and its object go to a Python that has nothing of Harpe, as Ray does it."""
    import subprocess
    import cloudpickle
    net = Net().eval()
    expected = net(torch.ones(1, 4))
    text = cloudpickle.dumps(net)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", "import pickle, sys, torch\n"
                           "net = pickle.load(sys.stdin.buffer)\nprint(net(torch.ones(1, 4)).item())"],
                          input=text, env={"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, check=True)
    assert float(done.stdout) == expected.item(), (done.stdout, expected)


def forked():
    """A process that trains in a forked child, as some launchers do."""
    child = os.fork()
    if child == 0:
        train()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def distributed(wrap):
    torch.distributed.init_process_group("gloo")
    net = wrap(Net())
    train(net, torch.optim.SGD(net.parameters(), 0.01))
    torch.distributed.destroy_process_group()


def ddp():
    distributed(torch.nn.parallel.DistributedDataParallel)


def fsdp():
    from torch.distributed.fsdp import FullyShardedDataParallel
    distributed(lambda net: FullyShardedDataParallel(net, device_id=torch.device("cpu")))


def fsdp2():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def wrap(net):
        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        fully_shard(net.rest, mesh=mesh)
        fully_shard(net, mesh=mesh)
        return net

    distributed(wrap)


def sharded_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer
    torch.distributed.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(Net())
    train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.01))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
