# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers: the power limit optimizer as a callback of its Trainer. Two lines more
in a script:

    from harpe.integrations.transformers import HFGlobalPowerLimitOptimizer
    trainer.add_callback(HFGlobalPowerLimitOptimizer(ZeusMonitor()))

To take it out again: trainer.remove_callback(HFGlobalPowerLimitOptimizer).
"""
from harpe.optimizer.power_limit.hugging_face import HFGlobalPowerLimitOptimizer

__all__ = ["HFGlobalPowerLimitOptimizer"]
