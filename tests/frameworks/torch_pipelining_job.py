# SPDX-License-Identifier: Apache-2.0
"""One rank of a job that trains a tiny GPT with the schedules of torch.distributed.pipelining, on
CPUs (gloo) and emulated GPUs, under Harpe. Started by test_torch_pipelining.py; prints one line of
JSON.

For each call of a stage, the emulated GPU of this rank runs an instruction of the measured profile.
The job enqueues this instruction before the call, as a training host enqueues kernels. The
instruction becomes ready when the calls whose results it needs have ended. The ranks share the times
of these ends in a file. The emulated GPUs therefore wait for each other as real GPUs do, and the
speed of the machine does not affect their time and energy. A call ends only when its GPU has the
clock of the plan."""
import ctypes
import json
import mmap
import os
import pathlib
import sys
import time

import job_process
import torch
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining import stage as torch_stage

from harpe.integrations import torch_pipelining as harpe_pipelining

VOCABULARY, WIDTH, HEADS, LENGTH, BATCH = 32, 16, 2, 8, 4
LIMIT_S = 300
LATE_S = 0.9  # the emulator applies a clock from the start of the work if it comes within 1 s

TORCH_2_5 = torch.__version__.startswith("2.5.")
HELD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


# ---- A GPT ----

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before = torch.nn.LayerNorm(WIDTH)
        self.attention = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.joined = torch.nn.Linear(WIDTH, WIDTH)
        self.after = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch = x.shape[0]
        query, key, value = self.attention(self.before(x)).reshape(
            batch, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        score = query @ key.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        future = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)
        x = x + self.joined((score.masked_fill(future, -1e9).softmax(-1) @ value)
                            .transpose(1, 2).reshape(batch, LENGTH, WIDTH))
        return x + self.down(torch.nn.functional.gelu(self.up(self.after(x))))


class Embedding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.places = torch.nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens):
        return self.tokens(tokens) + self.places(torch.arange(LENGTH))


def part_of_model(index, count):
    """Returns one of `count` stages of the model: a block each, the embedding, and the head."""
    torch.manual_seed(index)
    parts = [Embedding()] if index == 0 else []
    parts.append(Block())
    if index == count - 1:
        parts += [torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, VOCABULARY)]
    return torch.nn.Sequential(*parts)


def loss_of(output, target):
    EVENTS.append("loss")
    return torch.nn.functional.cross_entropy(output.reshape(-1, VOCABULARY), target.reshape(-1))


def batch_of(step, microbatches):
    """Returns sequences of an arithmetic progression, and the tokens that follow."""
    first = torch.arange(BATCH * microbatches)[:, None] * 5 + step
    tokens = (first + 3 * torch.arange(LENGTH + 1)) % VOCABULARY
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


# ---- What happens ----

EVENTS = []  # of the optimizer, in order, and "loss"
ACTIONS = []  # of the stages: [text, MHz of the GPU, seconds on the GPU]


class Gpu:
    """This rank's emulated GPU, and the times at which calls of all ranks have ended."""

    def __init__(self, index, directory, places):
        self.index, self.plan, self.next = index, None, 0
        self.late = False  # a clock came too late for the emulator's correction
        self.is_in_pair = False  # of calls that are one instruction together
        self.begin_ns, self.done_ns, self.stages = 0, 0, 0
        self.library = ctypes.CDLL(os.environ["HARPE_NVML_LIBRARY"])
        self.library.harpe_emulator_now_ns.restype = ctypes.c_int64
        self.must("nvmlInit_v2")
        self.handle = ctypes.c_void_p()
        self.must("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self.handle))
        self.must("harpe_emulator_wait", index, 1)
        self.places = places
        with open(pathlib.Path(directory) / "ended", "r+b") as file:
            self.ended = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    def must(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: error {code}")

    def clock(self):
        mhz = ctypes.c_uint()
        self.must("nvmlDeviceGetClockInfo", self.handle, 0, ctypes.byref(mhz))
        return mhz.value

    def energy_j(self, at_ns):
        joules = ctypes.c_double()
        self.must("harpe_emulator_energy", self.index, ctypes.c_int64(at_ns), ctypes.byref(joules))
        return joules.value

    def place(self, action):
        kind, stage, microbatch = action
        return (stage * self.places + microbatch) * 2 + (kind != "F")

    def ready_ns(self, actions):
        """Returns when the results of other stages were there. Functions of a script receive them
        themselves, and so have not received them yet."""
        ready_ns, end_s = self.done_ns, time.monotonic() + LIMIT_S
        for kind, stage, microbatch in actions:
            needed = {"F": stage - 1, "W": -1}.get(kind, stage + 1)
            if not 0 <= needed < self.stages:
                continue
            place = self.place((kind, needed, microbatch))
            while self.ended[place] <= self.begin_ns:
                if time.monotonic() > end_s:
                    raise TimeoutError(f"stage {needed} has not ended microbatch {microbatch}")
                time.sleep(0.0002)
            ready_ns = max(ready_ns, self.ended[place])
        return ready_ns

    def run(self, actions, name, call):
        """Runs the call while its work is on the GPU. Returns the result of the call."""
        result, began_s = [], time.monotonic()

        def held(_user):
            try:
                if not result:
                    result.append((call(), None))
            except BaseException as error:  # pylint: disable=broad-except
                result.append((None, error))
            return 0

        ready_ns, ended_ns = self.ready_ns(actions), ctypes.c_int64()
        self.must("harpe_emulator_instruction_held", self.index, actions[0][1], name.encode(),
                  ctypes.c_double(1), ctypes.c_int64(ready_ns), HELD(held), None,
                  ctypes.byref(ended_ns))
        if result[0][1] is not None:
            raise result[0][1]
        self.late |= time.monotonic() - began_s > LATE_S
        for action in actions:
            if action[0] != "W":
                self.ended[self.place(action)] = ended_ns.value
        self.done_ns = ended_ns.value
        ACTIONS[-1].append((self.done_ns - ready_ns) * 1e-9)
        return result[0][0]

    def hold(self, text):
        """Waits until the GPU has the plan's clock of the next instruction."""
        if self.plan is None:
            ACTIONS.append([text, self.clock()])
            return
        wanted = self.plan[self.next][1] if self.next < len(self.plan) else None
        self.next += 1
        end_s = time.monotonic() + LIMIT_S / 5
        while self.clock() != wanted and time.monotonic() < end_s:
            time.sleep(0.0002)
        ACTIONS.append([text, self.clock()])

    def begin_step(self, at_ns):
        self.next, self.late, self.begin_ns, self.done_ns = 0, False, at_ns, at_ns


def text_of(action):
    return f"{action[1]}{action[0]}{action[2]}"


def kind_of(method, arguments, named):
    """Returns the letter of a stage's call."""
    if method == "backward_one_chunk":
        full = named.get("full_backward", arguments[2] if len(arguments) > 2 else True)
        return "B" if full else "I"
    return {"forward_one_chunk": "F", "backward_weight_one_chunk": "W"}[method]


NAMES = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}
METHODS = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")


def observe_stages(gpu):
    """Makes the class's methods record that they ran. They run inside of Harpe's marks, which are
    in the object."""
    base = torch_stage._PipelineStageBase
    for method in METHODS:
        def observed(stage, *arguments, _method=method, _run=getattr(base, method), **named):
            result = _run(stage, *arguments, **named)
            if not gpu.is_in_pair:
                action = (kind_of(_method, arguments, named), stage.stage_index, arguments[0])
                gpu.hold(text_of(action))
            return result
        setattr(base, method, observed)


def put_on_gpu(gpu, stages):
    """Makes the calls of these stages also run on the GPU. The GPU's work begins before the
    marks."""
    for stage in stages:
        for method in METHODS:
            def on_gpu(*arguments, _stage=stage, _method=method, _run=getattr(stage, method),
                       **named):
                if gpu.is_in_pair or not _stage.has_backward:
                    return _run(*arguments, **named)
                action = (kind_of(_method, arguments, named), _stage.stage_index, arguments[0])
                return gpu.run([action], NAMES[action[0]], lambda: _run(*arguments, **named))
            setattr(stage, method, on_gpu)


# ---- Functions of a script, which run instead of PyTorch's ----

class Functions:
    """Registered for forwards and for overlapped pairs. They do what PyTorch does, but without the
    methods of the stage object, in which an adapter could have put its marks."""

    def __init__(self, gpu):
        self.gpu = gpu

    @staticmethod
    def _stages(context):
        return {stage.stage_index: stage for stage in context.schedule_ref._stages}

    def forward(self, action, context):
        schedule, (index, _, chunk, _) = context.schedule_ref, action
        stages = self._stages(context)
        if index > 0 and index - 1 not in stages:
            torch_schedules._wait_batch_p2p(schedule.fwd_recv_ops.pop((index, chunk)))
        output = type(stages[index]).forward_one_chunk(
            stages[index], chunk, context.arg_mbs[chunk], context.kwarg_mbs[chunk])
        schedule._maybe_compute_loss(stages[index], output, context.target_mbs, chunk)
        if index + 1 in stages:
            stages[index + 1].set_local_fwd_input(output, chunk)

    def backward(self, action, context):
        schedule, (index, kind, chunk, _) = context.schedule_ref, action
        stages = self._stages(context)
        if not stages[index].is_last and index + 1 not in stages:
            torch_schedules._wait_batch_p2p(schedule.bwd_recv_ops.pop((index, chunk)))
        is_full = kind.value == "B"
        schedule.backward_counter[index] += is_full
        stages[index].backward_one_chunk(
            chunk, loss=schedule._maybe_get_loss(stages[index], chunk), full_backward=is_full,
            last_backward=schedule.backward_counter[index] == schedule._n_microbatches)
        if index - 1 in stages:
            stages[index - 1].set_local_bwd_input(stages[index].get_local_bwd_output(chunk), chunk)

    def pair(self, action, context):
        self.gpu.is_in_pair = True
        self.forward(action.sub_actions[0], context)
        self.backward(action.sub_actions[1], context)
        self.gpu.is_in_pair = False
        self.gpu.hold(str(action))


def put_functions_on_gpu(gpu, schedule):
    """The same as put_on_gpu for registered functions."""
    def on_gpu(run):
        def call(action, context):
            if not schedule._has_backward:
                run(action, context)
                return
            parts = [(one.computation_type.value, one.stage_index, one.microbatch_index)
                     for one in action.sub_actions or (action,)]
            name = "overlap_f_b" if action.sub_actions else NAMES[parts[0][0]]
            gpu.run(parts, name, lambda: run(action, context))
        return call

    functions = schedule._comp_type_to_function_map
    schedule._comp_type_to_function_map = {kind: on_gpu(functions[kind]) for kind in functions}


# ---- PyTorch 2.5 with gloo ----

class _All:
    """Waits for several messages."""

    def __init__(self, works):
        self._works = works

    def wait(self):
        for work in self._works:
            work.wait()


def keep_all_messages():
    """PyTorch 2.5 keeps only the last of several messages that it sends or receives together. With
    NCCL this is enough, but gloo does not complete a message that nobody keeps."""
    def batch(messages, desc=None):  # pylint: disable=unused-argument
        return _All(torch.distributed.batch_isend_irecv(messages)) if messages else None
    torch_schedules._batch_p2p = batch


# ---- The job ----

class Job:
    def __init__(self, settings, rank):
        self.settings, self.rank = settings, rank
        self.directory = pathlib.Path(settings["directory"])
        self.ranks, self.microbatches = settings["world_size"], settings["microbatches"]
        torch.distributed.init_process_group("gloo", rank=rank, world_size=self.ranks)
        self.gpu = Gpu(rank, self.directory, self.microbatches)
        observe_stages(self.gpu)
        if TORCH_2_5:
            keep_all_messages()

    def stages(self, indices, count):
        tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long)
        hidden = torch.zeros(BATCH, LENGTH, WIDTH)
        made = []
        for index in indices:
            # PyTorch 2.5 would find the outputs out with uninitialised tokens.
            outputs = {"output_args": hidden if index < count - 1 else
                       torch.zeros(BATCH, LENGTH, VOCABULARY)} if TORCH_2_5 else {}
            made.append(pipelining.PipelineStage(
                part_of_model(index, count), index, count, torch.device("cpu"),
                input_args=(hidden if index else tokens,), **outputs))
        return made

    def schedule(self, case):
        kind, places = case["kind"], case.get("stages", [[r] for r in range(self.ranks)])
        count = sum(map(len, places))
        self.gpu.stages = count
        stages = self.stages(places[self.rank], count)
        schedule_class = getattr(torch_schedules, kind)
        has_several = issubclass(schedule_class, torch_schedules.PipelineScheduleMulti)
        made = schedule_class(stages if has_several else stages[0], self.microbatches, loss_of)
        for format_, name in case.get("load", {}).items():
            made._load_csv(str(self.directory / name), format=format_)
        if "functions" in case:
            functions = Functions(self.gpu)
            made.register_custom_function(torch_schedules._ComputationType.OVERLAP_F_B,
                                          functions.pair)
            made.register_custom_function(torch_schedules.FORWARD, functions.forward)
        if self.rank == 0 and "dump" in case:
            made._dump_csv(str(self.directory / case["dump"]))
        return made, stages

    def write(self, name, text):
        """Writes a file that appears when it is complete."""
        (self.directory / "unfinished").write_text(text)
        os.replace(self.directory / "unfinished", self.directory / name)

    def agree(self, value_ns):
        """Returns the latest of all ranks' times."""
        tensor = torch.tensor([value_ns])
        torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)
        return int(tensor)

    def train(self, schedule, stages, optimizer, step, losses):
        """Runs one step. Returns its time and this GPU's energy."""
        tokens, target = batch_of(step, self.microbatches)
        del ACTIONS[:], EVENTS[:]
        begin_ns = self.agree(self.gpu.library.harpe_emulator_now_ns())
        self.gpu.begin_step(begin_ns)
        before_j, found = self.gpu.energy_j(begin_ns), []
        inputs = [tokens] if any(stage.is_first for stage in stages) else []
        schedule.step(*inputs, target=target, losses=found)
        end_ns = self.agree(self.gpu.done_ns)
        used_j = self.gpu.energy_j(end_ns) - before_j
        optimizer.step()
        optimizer.zero_grad()
        if found:
            losses.append(float(sum(found)) / len(found))
        return {"time_s": (end_ns - begin_ns) * 1e-9, "energy_j": used_j,
                "actions": [list(one) for one in ACTIONS], "events": EVENTS[:]}

    def answer(self, case, schedule):
        """Writes the schedule's order and waits for its plan."""
        name = case["name"]
        if self.rank == 0:
            harpe_pipelining.write_csv(schedule, self.directory / f"{name}.csv")
        end_s = time.monotonic() + LIMIT_S
        while not (self.directory / f"{name}.json").exists():
            if time.monotonic() > end_s:
                raise TimeoutError(f"no plan for {name}")
            time.sleep(0.02)
        return json.loads((self.directory / f"{name}.json").read_text())

    def run(self, case):
        schedule, stages = self.schedule(case)
        answer = self.answer(case, schedule)
        optimizer = torch.optim.Adam([parameter for stage in stages
                                      for parameter in stage.submod.parameters()], lr=0.01)
        losses, steps, result = [], 0, {"name": case["name"]}
        one = harpe_pipelining.install(
            schedule, server_url=answer["url"], job_key=case["name"], device_id=self.rank,
            iterations=1, warmup_iterations=0, minimum_dwell_s=0, poll_interval_s=0)
        one.optimizer.wait_for_round(0, LIMIT_S)
        job_process.record(one.optimizer, EVENTS)
        put_on_gpu(self.gpu, stages)
        if "functions" in case:
            put_functions_on_gpu(self.gpu, schedule)
        self.gpu.plan = answer["plan"][self.rank]
        while steps < 3 or (steps < 20 and not result["on_time"]):
            result.update(self.train(schedule, stages, optimizer, steps, losses))
            result["on_time"] = job_process.everywhere(not self.gpu.late)
            steps += 1
        self.gpu.plan = None
        result["misfits"] = one.optimizer.status().misfits
        result["round"] = one.optimizer.status().round
        # PyTorch 2.15 cannot evaluate if a rank has neighbouring stages.
        has_neighbours = any(index + 1 in rank for rank in case.get("stages", ())
                             for index in rank)
        if hasattr(schedule, "eval") and not has_neighbours:
            del EVENTS[:]
            tokens, target = batch_of(0, self.microbatches)
            schedule.eval(*([tokens] if any(stage.is_first for stage in stages) else []),
                          target=target, losses=[])
            result["evaluation"] = EVENTS[:]
        one.uninstall()
        result["uninstalled"] = self.train(schedule, stages, optimizer, steps, losses)["events"]
        return dict(result, losses=[losses[0], losses[-1]] if losses else [])


def is_known(case):
    """Tells whether this PyTorch has what the case needs. The runtime of PyTorch 2.5 runs only
    orders with split backwards."""
    runtime = torch_schedules._PipelineScheduleRuntime
    return (hasattr(torch_schedules, case["kind"])
            and ("functions" not in case or hasattr(runtime, "register_custom_function"))
            and not ("load" in case and TORCH_2_5))


def main():
    settings, rank = json.loads(sys.argv[1]), int(os.environ["RANK"])
    job = Job(settings, rank)
    known = [case for case in settings["cases"] if is_known(case)]
    if rank == 0:
        job.write("cases", json.dumps([case["name"] for case in known]))
    results = [job.run(case) for case in known]
    print(json.dumps({"rank": rank, "results": results, "torch": torch.__version__,
                      "classes": [name for name in torch_schedules.__all__
                                  if name.startswith("Schedule")]}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
