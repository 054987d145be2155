# SPDX-License-Identifier: Apache-2.0
"""Runs each forward and backward of a pipeline-parallel job at the clock that `harpe serve`
chooses, and reports measured times and energies to the server.

    optimizer = PipelineFrequencyOptimizer(rank, dp_rank, pp_rank, tp_rank, device_id, dp_degree,
                                           pp_degree, tp_degree, world_size, server_url)
    for batch in loader:
        optimizer.on_step_begin()
        for each instruction of this rank:
            optimizer.on_instruction_begin("forward")
            ...
            optimizer.on_instruction_end("forward")
        optimizer.on_step_end()
    optimizer.close()

The adapters in harpe.integrations make these calls inside a training framework. The modules
`common` and `server` hold what the server and its schedulers need; they do not load this optimizer.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harpe.optimizer.pipeline_frequency.optimizer import (PipelineFrequencyOptimizer,
                                                              PipelineFrequencyStatus)

__all__ = ["PipelineFrequencyOptimizer", "PipelineFrequencyStatus"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harpe.optimizer.pipeline_frequency import optimizer
    globals()[name] = getattr(optimizer, name)
    return globals()[name]
