# SPDX-License-Identifier: Apache-2.0
"""Environment variables as settings of a script."""
from __future__ import annotations

import os
from typing import Optional, Type, TypeVar

__all__ = ["get_env"]

_T = TypeVar("_T")


def get_env(name: str, valtype: Type[_T], default: Optional[_T] = None) -> _T:
    """Returns the environment variable `name` as a value of the type, such as int, float or str; a
    bool is "true" or "false" in any case of letters. Returns `default` if the variable is not set.

    Raises:
        ValueError: The variable is not set and there is no default, or it has no such value.
    """
    text = os.environ.get(name)
    if text is None:
        if default is None:
            raise ValueError(f"the environment variable {name} is not set")
        return default
    if valtype is not bool:
        return valtype(text)  # type: ignore[call-arg]
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{name} is {text!r}, but must be true or false")
    return text.lower() == "true"  # type: ignore[return-value]
