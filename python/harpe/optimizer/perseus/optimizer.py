# SPDX-License-Identifier: Apache-2.0
"""PipelineFrequencyOptimizer under its older name."""
from harpe.optimizer.pipeline_frequency.optimizer import (
    PipelineFrequencyOptimizer as PerseusOptimizer)

__all__ = ["PerseusOptimizer"]
