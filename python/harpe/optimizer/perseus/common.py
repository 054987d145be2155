# SPDX-License-Identifier: Apache-2.0
"""The names of harpe.optimizer.pipeline_frequency.common."""
from harpe.optimizer.pipeline_frequency.common import *  # noqa: F401,F403
