# SPDX-License-Identifier: Apache-2.0
"""Energy and power limits in a training loop with Hugging Face accelerate. The loop is the user's
own, so it makes the calls:

    from harpe.integrations.accelerate import EnergyMeter

    with EnergyMeter(accelerator) as energy:
        for step, batch in enumerate(loader):
            with accelerator.accumulate(model):
                ...
            energy.count(batch)
            if step % 10 == 9:
                energy.log({"loss": loss.item()}, step=step)

EnergyMeter only measures: the Accelerator's trackers get the energy. PowerLimit finds and keeps the
best power limit.
"""
from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import Any, Dict, Iterator, Optional, Sequence

from harpe.integrations._energy import (EVALUATION, LOGGER, TRAINING, EnergyTotals, Meter,
                                        own_gpus, size_of)
from harpe.integrations._power_limit import limiter_for
from harpe.optimizer.power_limit import GlobalPowerLimitOptimizer
from harpe.tuning import Tuning

__all__ = ["EnergyMeter", "EnergyTotals", "PowerLimit"]

FILE = "harpe_energy.json"  # in the directory of a checkpoint


def _gpus_of(accelerator: Any) -> Optional[Sequence[int]]:
    """Returns the GPUs of this process; None: all that it sees."""
    return own_gpus(accelerator.device, accelerator.local_process_index, accelerator.num_processes)


class EnergyMeter:
    """Measures the GPUs' energy of a training loop, from its making to close() or the end of the
    `with` block. It changes no GPU and never stops the training: if the energy cannot be measured,
    one line says why and metrics() is empty.

    The Accelerator's save_state() also saves the totals, in a file of its own, harpe_energy.json,
    and load_state() continues with them. Checkpoints that were made with an EnergyMeter can be
    loaded without it, and the other way round.
    """

    def __init__(self, accelerator: Any, gpu_indices: Optional[Sequence[int]] = None) -> None:
        """accelerator: the job's Accelerator.
        gpu_indices: the GPUs of this process; None: those that the Accelerator uses."""
        self._accelerator = accelerator
        self._meter = Meter(None if gpu_indices is None else list(gpu_indices))
        # With register_for_checkpointing, load_state() would refuse every older checkpoint.
        accelerator.register_save_state_pre_hook(self._save)
        accelerator.register_load_state_pre_hook(self._load)
        self._meter.begin(_gpus_of(accelerator))

    @property
    def totals(self) -> EnergyTotals:
        """Returns the totals of the job, as of the last metrics(), log() or saved state."""
        return self._meter.totals

    def count(self, batch: Any = None, *, tokens: Optional[int] = None,
              samples: Optional[int] = None) -> None:
        """Counts a batch that this rank has trained on: batch["input_ids"] as tokens, or the first
        dimension of its first tensor as samples; or the numbers that are given."""
        given = {name: value for name, value in (("tokens", tokens), ("samples", samples))
                 if value is not None}
        self._meter.count_batch(lambda: {**size_of(batch), **given})

    def metrics(self) -> Dict[str, float]:
        """Returns energy_j (of the training until now), power_w and energy_per_token_j or
        energy_per_sample_j (since the last call), and evaluation_energy_j if there was an
        evaluation. All GPUs of the job count, so all ranks must call it. Returns an empty
        dictionary if a rank cannot measure."""
        return self._meter.metrics() if self._meter.sync() else {}

    def log(self, values: Dict[str, Any], step: Optional[int] = None,
            **options: Any) -> Dict[str, Any]:
        """Calls accelerator.log with these values and metrics(), and returns both. All ranks must
        call it."""
        values = {**values, **self.metrics()}
        self._accelerator.log(values, step=step, **options)
        return values

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[None]:
        """Counts the energy of the `with` block as evaluation and not as training."""
        self._meter.switch(EVALUATION)
        try:
            yield
        finally:
            self._meter.switch(TRAINING)

    def _save(self, _models: Any, _weights: Any, folder: Any) -> None:
        """The Accelerator calls this on all ranks."""
        saved = self.state_dict()
        try:
            if self._accelerator.is_main_process:
                with open(os.path.join(folder, FILE), "w", encoding="utf-8") as file:
                    json.dump(saved, file)
        except OSError as error:
            logging.getLogger(LOGGER).warning("the energies are not saved: %s; training goes on",
                                              error)

    def _load(self, _models: Any, folder: Any) -> None:
        saved = None
        try:
            with open(os.path.join(folder, FILE), encoding="utf-8") as file:
                saved = json.load(file)
        except FileNotFoundError:  # a checkpoint that was made without an EnergyMeter
            pass
        except (OSError, ValueError) as error:
            logging.getLogger(LOGGER).warning(
                "the energies of the checkpoint cannot be read: %s; they begin at 0; training "
                "goes on", error)
        self.load_state_dict(saved or {})

    def state_dict(self) -> Dict[str, Any]:
        """Returns what is saved in a checkpoint. All ranks must call it."""
        self._meter.sync()
        return self.totals.saved()

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Continues with the totals of a checkpoint. What was measured before belongs to no
        training."""
        self._meter.totals = EnergyTotals.loaded(state_dict)
        if self._meter.can_measure:
            self._meter.begin(_gpus_of(self._accelerator))

    def close(self) -> None:
        """Ends the measurement. A second call does nothing."""
        self._meter.end()

    def __enter__(self) -> EnergyMeter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PowerLimit:
    """Finds and keeps the best power limit while a loop trains, and restores the original limits
    after close() or the `with` block. If limits cannot be set, one line says why, and training goes
    on.

        with PowerLimit(accelerator) as limit:
            for epoch in range(epochs):
                for batch in loader:
                    with accelerator.accumulate(model):
                        ...
                    limit.step()
                limit.end_epoch()
    """

    def __init__(self, accelerator: Any, gpu_indices: Optional[Sequence[int]] = None,
                 **options: Any) -> None:
        """All ranks must make one.

        gpu_indices: the GPUs of this process; None: those that the Accelerator uses.
        options: arguments of GlobalPowerLimitOptimizer: optimum_selector, wait_steps, warmup_steps,
            profile_steps, pl_step, profile_path, fleet; and idle_s: so many seconds after the last
            call, the original limits are restored for good (600; None: never; with several ranks
            always never).
            With knob="clock" or "clock,limit": arguments of harpe.tuning.Tuning, which then finds
            the clock in place of a GlobalPowerLimitOptimizer.
        """
        self._accelerator = accelerator
        self._limiter = limiter_for(gpu_indices, options)
        self._limiter.begin(_gpus_of(accelerator))
        self._limiter.step_begins()

    @property
    def optimizer(self) -> Optional[GlobalPowerLimitOptimizer]:
        """Returns the optimizer; None if limits cannot be set."""
        return self._limiter.optimizer

    @property
    def tuning(self) -> Optional[Tuning]:
        """Returns the tuning of a callback with `knob`, also after its end."""
        return self._limiter.tuning

    def step(self) -> None:
        """A batch has ended. If its gradients were applied, the next step begins."""
        if self._accelerator.sync_gradients:
            self._limiter.step_begins()

    def end_epoch(self) -> None:
        """An epoch has ended, or an evaluation has interrupted it. An unfinished measurement is
        discarded and repeated."""
        self._limiter.interrupted()

    def close(self) -> None:
        """Restores the original limits. A second call does nothing."""
        self._limiter.end()

    def __enter__(self) -> PowerLimit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
