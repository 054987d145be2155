# SPDX-License-Identifier: Apache-2.0
"""Repeats what a busy machine can disturb."""

ATTEMPTS = 20


def attempt(run, is_good, values=range(ATTEMPTS)):
    """Calls run(value) for each value until is_good(result). Returns the last result; the caller checks
    it."""
    for value in values:
        result = run(value)
        if is_good(result):
            break
    return result
