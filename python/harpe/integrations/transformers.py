# SPDX-License-Identifier: Apache-2.0
"""Callbacks for the Trainer of Hugging Face transformers. Add two lines to the script:

    from harpe.integrations.transformers import EnergyCallback
    trainer.add_callback(EnergyCallback())

EnergyCallback only measures: the Trainer's log gets the energy. PowerLimitCallback finds and keeps
the best power limit; HFGlobalPowerLimitOptimizer does the same with the arguments and errors of
Zeus. To take one out again: trainer.remove_callback(EnergyCallback).
"""
from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence

from harpe.integrations._energy import (EVALUATION, TRAINING, EnergyTotals, Meter, own_gpus)
from harpe.integrations._power_limit import limiter_for
from harpe.optimizer.power_limit import GlobalPowerLimitOptimizer
from harpe.optimizer.power_limit.hugging_face import (ClosingCallback,
                                                      HFGlobalPowerLimitOptimizer)
from harpe.tuning import Tuning

if TYPE_CHECKING:
    class ExportableState:
        """Stands in for the class of transformers."""
else:
    try:
        from transformers.trainer_callback import ExportableState
    except ImportError:  # without transformers, or with a version whose callbacks have no state
        class ExportableState:
            """Stands in for the class of transformers."""

__all__ = ["EnergyCallback", "EnergyTotals", "HFGlobalPowerLimitOptimizer", "PowerLimitCallback"]


class EnergyCallback(ClosingCallback, ExportableState):
    """Measures the GPUs' energy while a Trainer trains, and adds it to the Trainer's own log, so
    that every reporter (TensorBoard, W&B, ...) shows it. It changes no GPU and never stops the
    training: if the energy cannot be measured, one line says why and the keys are missing.

        trainer = Trainer(..., callbacks=[EnergyCallback()])

    Each log of the training (each logging_steps) gets these keys; all GPUs of the job count:
        energy_j: energy of the training until now, in J. It continues when a training is resumed
            from a checkpoint.
        power_w: average power since the last such log, in W.
        energy_per_token_j: since the last such log. Tokens are those of
            TrainingArguments(include_num_input_tokens_seen=...). Without it: energy_per_sample_j.
        evaluation_energy_j: energy of the evaluations until now; not part of energy_j.
    The log of each evaluation gets eval_energy_j, the energy of this evaluation in J, also when
    evaluate() is called outside of train(). The last log of the training gets energy_j, and also train_energy_j, train_power_w and train_energy_per_token_j
    (or train_energy_per_sample_j), which count this call of train() alone. train() returns this log.
    """

    def __init__(self, gpu_indices: Optional[Sequence[int]] = None) -> None:
        """gpu_indices: the GPUs of this process; None: those that the Trainer uses."""
        super().__init__()
        self.gpu_indices = None if gpu_indices is None else list(gpu_indices)
        self._meter = Meter(self.gpu_indices)
        self._is_fresh = False  # totals have been added since the last log
        self._tokens_seen = 0
        self._samples_in_epoch = 0
        self._evaluated_j = 0.0  # evaluation energy that an evaluation's log has already had

    @property
    def totals(self) -> EnergyTotals:
        """Returns the totals of the job, as of the last log."""
        return self._meter.totals

    # ---- State in the checkpoint ----

    def state(self) -> Dict[str, Any]:
        """Returns what the Trainer saves in trainer_state.json."""
        return {"args": {"gpu_indices": self.gpu_indices},
                "attributes": {"saved_totals": self.totals.saved()}}

    @property
    def saved_totals(self) -> Dict[str, float]:
        """The totals as they are in a checkpoint. Assigning to it restores them."""
        return self.totals.saved()

    @saved_totals.setter
    def saved_totals(self, saved: Optional[Dict[str, float]]) -> None:
        self._meter.totals = EnergyTotals.loaded(saved)

    def _restore(self, state: Any) -> None:
        """Continues with the checkpoint's totals. The Trainer itself restores the states of
        callbacks only if it is told to. It raises KeyError when it saves, if the checkpoint was
        made without this callback and so has no state of it."""
        states = getattr(state, "stateful_callbacks", None)
        saved: Any = states if state.global_step > 0 else None
        for name in (type(self).__name__, "attributes", "saved_totals"):
            saved = saved[0] if isinstance(saved, list) and saved else saved
            saved = saved.get(name) if isinstance(saved, dict) else None
        self.saved_totals = saved
        if isinstance(states, dict):
            states.setdefault(type(self).__name__, self.state())

    # ---- Events of the training ----

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begins to measure."""
        _move_before_reporters(self, sys._getframe(1).f_locals.get("self"))
        self._restore(state)
        self._tokens_seen = getattr(state, "num_input_tokens_seen", 0)
        self._evaluated_j = self.totals.evaluation_energy_j
        self._is_fresh = False
        self._meter.begin(_gpus_of(args))
        if getattr(args, "eval_on_start", False):
            self._meter.switch(EVALUATION)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch begins."""
        self._samples_in_epoch = 0
        self._meter.switch(TRAINING)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step begins, after an evaluation perhaps."""
        self._meter.switch(TRAINING)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step has ended. With gradient accumulation, a step is an update of the weights."""
        self._count(args, state, kwargs.get("train_dataloader"))
        self._is_fresh = False
        self._before_log(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch has ended."""
        self._before_log(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A batch has been evaluated."""
        self._meter.switch(EVALUATION)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation has ended."""
        self._meter.switch(TRAINING)

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, Any]] = None,
               **kwargs: Any) -> None:
        """Adds the energy to the log that the reporters get next, and to the Trainer's history."""
        if logs is None or not self._meter.is_running:
            return
        found = self._metrics_for(logs)
        logs.update(found)
        if state.log_history and found:
            state.log_history[-1].update(found)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends the measurement."""
        self.close()

    def close(self) -> None:
        """Ends the measurement. A second call does nothing."""
        self._meter.end()

    @contextlib.contextmanager
    def while_evaluating(self, trainer: Any) -> Iterator[None]:
        """Measures evaluate(). Outside of train(), `totals` stay those of the training."""
        if self._meter.is_running:
            self._meter.switch(EVALUATION)
            yield
            return
        totals = self.totals
        _move_before_reporters(self, trainer.callback_handler)
        self._evaluated_j = totals.evaluation_energy_j
        self._meter.begin(_gpus_of(trainer.args), EVALUATION)
        try:
            yield
        finally:
            self._meter.end()
            self._meter.totals = totals

    # ---- Details ----

    def _count(self, args: Any, state: Any, dataloader: Any) -> None:
        """Counts the whole job's tokens or samples, on the first rank. The last step of an epoch
        may have fewer samples than the others."""
        if not state.is_world_process_zero:
            return
        seen = getattr(state, "num_input_tokens_seen", 0)
        samples = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        try:
            samples = min(samples, max(0, len(dataloader.dataset) - self._samples_in_epoch))
        except Exception:  # the length is not known
            pass
        self._samples_in_epoch += samples
        self._meter.count(seen - self._tokens_seen, samples)
        self._tokens_seen = seen

    def _before_log(self, control: Any) -> None:
        """Adds the ranks' energies if the Trainer logs or saves next, which all ranks then do."""
        if (control.should_log or control.should_save) and not self._is_fresh:
            self._is_fresh = self._meter.sync()
        if control.should_evaluate:
            self._meter.switch(EVALUATION)

    def _metrics_for(self, logs: Dict[str, Any]) -> Dict[str, float]:
        meter = self._meter
        if "train_runtime" in logs and "loss" not in logs:  # the last log, on all ranks
            if not meter.sync():
                return {}
            run = meter.run()
            found = {"energy_j": self.totals.energy_j, "train_energy_j": run.energy_j,
                     **run.rates("train_")}
            if run.evaluation_time_s > 0:
                found["train_evaluation_energy_j"] = run.evaluation_energy_j
            return found
        prefixes = [name[:-len("_runtime")] for name in logs if name.endswith("_runtime")]
        if prefixes and "loss" not in logs:  # an evaluation, on all ranks
            if meter.phase != EVALUATION or not meter.sync():
                return {}
            energy_j = self.totals.evaluation_energy_j - self._evaluated_j
            self._evaluated_j = self.totals.evaluation_energy_j
            return {f"{prefixes[0]}_energy_j": energy_j}
        return meter.metrics() if self._is_fresh and "loss" in logs else {}


class PowerLimitCallback(ClosingCallback):
    """Finds and keeps the best power limit while a Trainer trains, and restores the original limits
    when train() ends, also with an exception, and when no step has begun for some time. If limits
    cannot be set, one line says why, and training goes on. Each call of train() makes a new
    optimizer.

    An update of the weights is a step. The end of an epoch and an evaluation discard an unfinished
    measurement, which is repeated.
    """

    def __init__(self, gpu_indices: Optional[Sequence[int]] = None, **options: Any) -> None:
        """gpu_indices: the GPUs of this process; None: those that the Trainer uses.
        options: arguments of GlobalPowerLimitOptimizer: optimum_selector, wait_steps, warmup_steps,
            profile_steps, pl_step, profile_path, fleet; and idle_s: so many seconds after the last
            event, the original limits are restored until the next train() (600; None: never; with
            several ranks always never).
            With knob="clock" or "clock,limit": arguments of harpe.tuning.Tuning, which then finds
            the clock in place of a GlobalPowerLimitOptimizer.
        """
        super().__init__()
        self._limiter = limiter_for(gpu_indices, options)

    @property
    def optimizer(self) -> Optional[GlobalPowerLimitOptimizer]:
        """Returns the optimizer, also after the training; None before the training, and if limits
        cannot be set."""
        return self._limiter.optimizer

    @property
    def tuning(self) -> Optional[Tuning]:
        """Returns the tuning of a callback with `knob`, also after its end."""
        return self._limiter.tuning

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Makes the optimizer, which sets the highest limit."""
        self._limiter.begin(_gpus_of(args))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step begins."""
        self._limiter.step_begins()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A batch has been evaluated."""
        self._limiter.is_active()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation has interrupted the training."""
        self._limiter.interrupted()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch has ended."""
        self._limiter.interrupted()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restores the original limits."""
        self.close()

    def on_train_exception(self, why: str) -> None:
        """An exception has ended the training: restores the original limits, and says so."""
        self._limiter.give_back(why)

    def close(self) -> None:
        """Restores the original limits. A second call does nothing."""
        self._limiter.end()


def _gpus_of(args: Any) -> Optional[Sequence[int]]:
    """Returns the GPUs that the Trainer of this process uses; None: all."""
    if getattr(args, "n_gpu", 0) > 1:  # one process with torch.nn.DataParallel
        return list(range(args.n_gpu))
    return own_gpus(args.device, args.local_process_index, args.world_size)


def _move_before_reporters(callback: Any, handler: Any) -> None:
    """Moves a callback to the second place of the Trainer's callbacks, behind the one that decides
    when to log. The Trainer puts a script's callbacks behind its reporters, which have sent a log
    on when a later callback adds to it. No event has the list, so an event takes it from its
    caller, the Trainer's CallbackHandler. If a version has another caller, the history still gets
    the values. The loop over the list skips and repeats nothing when the current element moves
    forward."""
    callbacks: Optional[List[Any]] = getattr(handler, "callbacks", None)
    if isinstance(callbacks, list):
        for index, one in enumerate(callbacks):
            if one is callback and index > 1:
                callbacks.insert(1, callbacks.pop(index))
                return
