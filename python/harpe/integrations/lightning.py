# SPDX-License-Identifier: Apache-2.0
"""Callbacks for the Trainer of Lightning (the packages lightning and pytorch_lightning). Add two
lines to the script:

    from harpe.integrations.lightning import EnergyCallback
    trainer = Trainer(..., callbacks=[EnergyCallback()])

EnergyCallback only measures: the Trainer's loggers get the energy. PowerLimitCallback finds and
keeps the best power limit.
"""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Sequence

from harpe.integrations._energy import (EVALUATION, TRAINING, EnergyTotals, Meter, own_gpus,
                                        size_of)
from harpe.integrations._power_limit import limiter_for
from harpe.optimizer.power_limit import GlobalPowerLimitOptimizer
from harpe.tuning import Tuning

__all__ = ["EnergyCallback", "EnergyTotals", "PowerLimitCallback"]


def _callback_class() -> Any:
    """Returns the class Callback of the package that the script uses. Without both packages, a
    class that nothing can use."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    if names[0] not in sys.modules and names[1] in sys.modules:
        names.reverse()
    for name in names:
        try:
            __import__(name)
        except ModuleNotFoundError:
            continue
        return sys.modules[name].Callback
    return object


if TYPE_CHECKING:
    _Callback = object
else:
    _Callback = _callback_class()


def _gpus_of(trainer: Any) -> Optional[Sequence[int]]:
    """Returns the GPUs of this process; None: all that it sees."""
    return own_gpus(trainer.strategy.root_device, trainer.local_rank, trainer.world_size)


class EnergyCallback(_Callback):  # type: ignore[misc]
    """Measures the GPUs' energy while Trainer.fit trains, and logs it with LightningModule.log, so
    that every logger and `trainer.callback_metrics` have it. It changes no GPU and never stops the
    training: if the energy cannot be measured, one line says why and the values are missing.

    Every `log_every_n_steps` updates of the weights these values are logged; all GPUs of the job
    count:
        energy_j: energy of the training until now, in J. It continues when a training is resumed
            from a checkpoint.
        power_w: average power since the values were logged last, in W.
        energy_per_token_j, or without tokens energy_per_sample_j: since then.
        evaluation_energy_j: energy of the validations until now; not part of energy_j.
    Each validation within the training logs val_energy_j. At the end of the training the loggers
    get train_energy_j, train_power_w and train_energy_per_token_j for this call of fit() alone.
    """

    def __init__(self, gpu_indices: Optional[Sequence[int]] = None,
                 tokens: Optional[Callable[[Any], int]] = None) -> None:
        """gpu_indices: the GPUs of this process; None: those that the Trainer uses.
        tokens: computes the number of tokens of a batch; None: the size of batch["input_ids"], if
            the batch has it. Otherwise samples are counted, by the first dimension of the batch's
            first tensor.
        """
        super().__init__()
        self._meter = Meter(None if gpu_indices is None else list(gpu_indices))
        self._tokens = tokens
        self._steps = self._last_step = 0
        self._evaluated_j = 0.0  # evaluation energy that has been logged as val_energy_j

    @property
    def totals(self) -> EnergyTotals:
        """Returns the totals of the job, as of the last time that they were logged."""
        return self._meter.totals

    # ---- State in the checkpoint ----

    def state_dict(self) -> Dict[str, Any]:
        """Returns what Lightning saves in a checkpoint."""
        return self.totals.saved()

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Continues with a checkpoint's totals."""
        self._meter.totals = EnergyTotals.loaded(state_dict)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        """Saves the totals of this moment. All ranks take part in saving a checkpoint."""
        if self._meter.sync() and "callbacks" in checkpoint:
            checkpoint["callbacks"][self.state_key] = self.state_dict()

    # ---- Events of the training ----

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Forgets the totals of an earlier fit(), unless this one goes on where that has ended. A
        checkpoint is loaded afterwards, and may have no totals."""
        if stage == "fit" and (trainer.ckpt_path is not None or trainer.global_step == 0):
            self._meter.totals = EnergyTotals()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to measure, after the sanity check."""
        self._steps = self._last_step = trainer.global_step
        self._evaluated_j = self.totals.evaluation_energy_j
        self._meter.begin(_gpus_of(trainer))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any,
                           batch_idx: int) -> None:
        """A batch has ended. With gradient accumulation, several batches make one update."""
        self._count(batch)
        if trainer.global_step == self._last_step:
            return
        self._last_step = trainer.global_step
        self._steps += 1
        every = trainer.log_every_n_steps
        if every > 0 and self._steps % every == 0 and self._meter.sync():
            self._log(pl_module, self._meter.metrics(), on_step=True, on_epoch=False)

    def _count(self, batch: Any) -> None:
        tokens = self._tokens
        self._meter.count_batch(
            lambda: size_of(batch) if tokens is None
            else {**size_of(batch), "tokens": int(tokens(batch))})

    @staticmethod
    def _log(pl_module: Any, values: Dict[str, float], **options: bool) -> None:
        for name, value in values.items():
            pl_module.log(name, value, batch_size=1, **options)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """A validation interrupts the training."""
        self._meter.switch(EVALUATION)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Logs the energy of the validation."""
        if self._meter.phase == EVALUATION and self._meter.sync():
            energy_j = self.totals.evaluation_energy_j - self._evaluated_j
            self._evaluated_j = self.totals.evaluation_energy_j
            self._log(pl_module, {"val_energy_j": energy_j}, on_step=False, on_epoch=True)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """The training goes on."""
        self._meter.switch(TRAINING)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Logs the energy of this call of fit()."""
        if self._meter.sync():
            run = self._meter.run()
            values = {"energy_j": self.totals.energy_j, "train_energy_j": run.energy_j,
                      **run.rates("train_")}
            for logger in trainer.loggers:
                logger.log_metrics(values, step=trainer.global_step)
        self._meter.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """An exception has ended the training."""
        self._meter.end()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Ends the measurement, whatever has ended the training."""
        self._meter.end()


class PowerLimitCallback(_Callback):  # type: ignore[misc]
    """Finds and keeps the best power limit while Trainer.fit trains, and restores the original
    limits at its end. If limits cannot be set, one line says why, and training goes on.

    An update of the weights is a step. The end of an epoch and a validation discard an unfinished
    measurement, which is repeated.
    """

    def __init__(self, gpu_indices: Optional[Sequence[int]] = None, **options: Any) -> None:
        """gpu_indices: the GPUs of this process; None: those that the Trainer uses.
        options: arguments of GlobalPowerLimitOptimizer: optimum_selector, wait_steps, warmup_steps,
            profile_steps, pl_step, profile_path, fleet; and idle_s: so many seconds after the last
            event, the original limits are restored until the next fit() (600; None: never; with
            several ranks always never).
            With knob="clock" or "clock,limit": arguments of harpe.tuning.Tuning, which then finds
            the clock in place of a GlobalPowerLimitOptimizer.
        """
        super().__init__()
        self._limiter = limiter_for(gpu_indices, options)
        self._last_step = -1

    @property
    def optimizer(self) -> Optional[GlobalPowerLimitOptimizer]:
        """Returns the optimizer, also after the training; None before the training, and if limits
        cannot be set."""
        return self._limiter.optimizer

    @property
    def tuning(self) -> Optional[Tuning]:
        """Returns the tuning of a callback with `knob`, also after its end."""
        return self._limiter.tuning

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Makes the optimizer, which sets the highest limit."""
        self._last_step = -1
        self._limiter.begin(_gpus_of(trainer))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any,
                             batch_idx: int) -> None:
        """The first batch of an update of the weights begins a step."""
        if trainer.global_step != self._last_step:
            self._last_step = trainer.global_step
            self._limiter.step_begins()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """A validation interrupts the training."""
        self._limiter.interrupted()

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """A batch has been evaluated."""
        self._limiter.is_active()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """An epoch has ended."""
        self._limiter.interrupted()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Restores the original limits."""
        self._limiter.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Restores the original limits, and says so."""
        self._limiter.give_back(f"the training has ended with {type(exception).__name__}")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Restores the original limits, whatever has ended the training."""
        self._limiter.end()
