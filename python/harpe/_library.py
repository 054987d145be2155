# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libharpe, and turns its errors into exceptions. Everything else in the package
calls the library through `lib`. Importing this module loads nothing; the first call does."""
from __future__ import annotations

import ctypes as C
import os
import pathlib
import threading
from typing import Any, Callable, List, Optional

from harpe import _bindings as b

SONAME = "libharpe.so.0"


class HarpeError(RuntimeError):
    """What libharpe could not do: one line that says what, where and what to do about it."""

    def __init__(self, message: str, status: int = b.HARPE_INTERNAL, vendor_code: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.vendor_code = vendor_code


class InvalidArgumentError(HarpeError, ValueError):
    """A value outside its documented range, or a malformed file or text."""


class NotFoundError(HarpeError, LookupError):
    """A file, stage, instruction or plan that does not exist."""


class PermissionDeniedError(HarpeError, PermissionError):
    """The operating system or the driver refused."""


class UnavailableError(HarpeError):
    """No driver library, driver or GPU on this machine, or it cannot do what was asked."""


_EXCEPTIONS = {
    b.HARPE_INVALID_ARGUMENT: InvalidArgumentError,
    b.HARPE_INVALID_INPUT: InvalidArgumentError,
    b.HARPE_LIMIT_EXCEEDED: InvalidArgumentError,
    b.HARPE_NOT_FOUND: NotFoundError,
    b.HARPE_PERMISSION_DENIED: PermissionDeniedError,
    b.HARPE_NOT_SUPPORTED: UnavailableError,
    b.HARPE_UNAVAILABLE: UnavailableError,
}


def exception_of(error: b.harpe_error, status: int) -> HarpeError:
    """The exception for a status that a library function has returned."""
    if status == b.HARPE_OUT_OF_MEMORY:
        return MemoryError("libharpe: out of memory")  # type: ignore[return-value]
    message = error.message.decode("utf-8", "replace") or f"libharpe: status {status}"
    return _EXCEPTIONS.get(status, HarpeError)(message, status, error.vendor_code)


def _candidates() -> List[str]:
    """Where libharpe may be, best first: named, in the build tree, beside an installed package,
    where the loader looks."""
    named = os.environ.get("HARPE_LIBRARY")
    if named:
        return [named]
    package = pathlib.Path(__file__).resolve().parent
    found = [package.parents[1] / "build" / "release" / SONAME]
    for prefix in package.parents:
        if prefix.name.startswith("lib"):
            found += sorted(prefix.glob(f"*/{SONAME}")) + [prefix / SONAME]
    return [str(path) for path in found if path.is_file()] + [SONAME]


class _Library:
    """The loaded library: attributes are its functions, with their types."""

    def __init__(self) -> None:
        self._handle: Optional[C.CDLL] = None
        self._lock = threading.Lock()
        self.path: Optional[str] = None

    def _load(self) -> C.CDLL:
        with self._lock:
            if self._handle is not None:
                return self._handle
            reasons = []
            for path in _candidates():
                try:
                    handle = C.CDLL(path)
                except OSError as error:
                    reasons.append(str(error))
                    continue
                self.path = path
                self._handle = handle
                return handle
        raise UnavailableError(
            f"libharpe is not to be found ({'; '.join(reasons)}): install Harpe, or name the library "
            "in HARPE_LIBRARY", b.HARPE_UNAVAILABLE)

    def __getattr__(self, name: str) -> Any:
        if name not in b.FUNCTIONS:
            raise AttributeError(name)
        function = getattr(self._load(), name)
        function.restype, function.argtypes = b.FUNCTIONS[name]
        setattr(self, name, function)
        return function


lib = _Library()


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function whose last argument is a harpe_error *; raises what it reports."""
    error = b.harpe_error()
    status = function(*arguments, C.byref(error))
    if status != b.HARPE_OK:
        raise exception_of(error, status)


def text_of(address: Optional[int]) -> str:
    """A text that the library has allocated, which is freed."""
    if not address:
        return ""
    try:
        return C.string_at(address).decode("utf-8")
    finally:
        _free(address)


_libc = C.CDLL(None)
_free = _libc.free
_free.restype, _free.argtypes = None, [C.c_void_p]


def encoded(text: Optional[Any]) -> Optional[bytes]:
    """A str or path for a `const char *`; None stays None."""
    return None if text is None else os.fsencode(text)
