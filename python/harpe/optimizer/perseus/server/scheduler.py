# SPDX-License-Identifier: Apache-2.0
"""The names of harpe.optimizer.pipeline_frequency.server.scheduler."""
from harpe.optimizer.pipeline_frequency.server.scheduler import *  # noqa: F401,F403
