# SPDX-License-Identifier: Apache-2.0
"""Small tools for training scripts, under the names of Zeus."""
