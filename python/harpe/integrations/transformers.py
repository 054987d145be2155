# SPDX-License-Identifier: Apache-2.0
"""The power limit optimizer as a callback of the Trainer of Hugging Face transformers. Add two
lines to the script:

    from harpe.integrations.transformers import HFGlobalPowerLimitOptimizer
    trainer.add_callback(HFGlobalPowerLimitOptimizer(ZeusMonitor()))

To take it out again: trainer.remove_callback(HFGlobalPowerLimitOptimizer).
"""
from harpe.optimizer.power_limit.hugging_face import HFGlobalPowerLimitOptimizer

__all__ = ["HFGlobalPowerLimitOptimizer"]
