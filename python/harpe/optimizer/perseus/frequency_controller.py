# SPDX-License-Identifier: Apache-2.0
"""The names of harpe.optimizer.pipeline_frequency.frequency_controller."""
from harpe.optimizer.pipeline_frequency.frequency_controller import *  # noqa: F401,F403
