# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libharpe, and turns its errors into exceptions. Everything else in the package
calls the library through `lib`. Importing this module loads nothing; the first call does."""
from __future__ import annotations

import ctypes as C
import functools
import os
import threading
import weakref
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
    """A value outside its documented range, a malformed file or text, or a name already taken."""


class NotFoundError(HarpeError, LookupError):
    """A file, stage, instruction or plan that does not exist."""


class PermissionDeniedError(HarpeError, PermissionError):
    """The operating system or the driver refused."""


class UnavailableError(HarpeError):
    """No driver library, driver or GPU on this machine, or it cannot do what was asked."""


for _public in (HarpeError, InvalidArgumentError, NotFoundError, PermissionDeniedError,
                UnavailableError):
    _public.__module__ = "harpe"  # where users find them: tracebacks say so, too

_EXCEPTIONS = {
    b.HARPE_INVALID_ARGUMENT: InvalidArgumentError,
    b.HARPE_INVALID_INPUT: InvalidArgumentError,
    b.HARPE_ALREADY_EXISTS: InvalidArgumentError,
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


def _is_trusted(path: str) -> bool:
    """True if HARPE_LIBRARY may choose this file: `sudo -E` keeps the variable of a user without
    root's rights. The rules are those of the library for HARPE_PROGRAM; see SECURITY.md."""
    if os.getuid() != os.geteuid() or os.getgid() != os.getegid():
        return False
    try:
        status = os.stat(path)
    except OSError:
        return True  # a name for the loader; or opening it gives the error
    owners = {0, os.geteuid(), os.stat(__file__).st_uid}
    return status.st_uid in owners and not status.st_mode & 0o002


def _candidates() -> List[str]:
    """Where libharpe may be, best first: named, in the build tree, beside an installed package,
    where the loader looks."""
    named = os.environ.get("HARPE_LIBRARY")
    if named and _is_trusted(named):
        return [named]
    import pathlib  # takes as long as all the rest; only needed once the library is

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
            f"libharpe is not to be found ({'; '.join(reasons)}): install Harpe, or name the "
            "library in HARPE_LIBRARY", b.HARPE_UNAVAILABLE)

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


# ---- What C calls back --------------------------------------------------------------------------


def member(struct: Any, name: str, function: Callable[..., Any]) -> Any:
    """`function` as the function pointer `name` of a C struct. The caller keeps it as long as C may
    call it."""
    return next(kind for field, kind, *_ in struct._fields_ if field == name)(function)


def report(exception: BaseException, error: Any) -> int:
    """Tells C of an exception: fills `error`, a pointer that may be NULL; returns the status."""
    if error:
        line = " ".join(str(exception).split()) or type(exception).__name__
        error.contents.message = line.encode("utf-8")[:b.harpe_error.message.size - 1]
        error.contents.vendor_code = getattr(exception, "vendor_code", 0)
    return int(getattr(exception, "status", b.HARPE_UNAVAILABLE))


@functools.lru_cache(maxsize=None)
def log_to(name: str) -> b.harpe_log:
    """A harpe_log that hands its lines to Python's logging under `name`. It lasts as long as the
    process: C may write to it at any time."""
    import logging
    logger = logging.getLogger(name)

    def write(_user: Optional[int], level: int, line: bytes) -> None:
        logger.log(10 * (level + 1), "%s", line.decode("utf-8", "replace"))

    return outside_forks(write)


@functools.lru_cache(maxsize=None)
def _separate_lines_and_forks() -> None:
    """Forks wait for the lines of C's threads. These hooks are registered after those of logging,
    so that they run before logging takes its lock, which a line may need."""
    import logging  # noqa: F401
    os.register_at_fork(before=lib.harpe_log_before_fork,
                        after_in_parent=lib.harpe_log_after_fork)


def outside_forks(write: Callable[[Optional[int], int, bytes], None]) -> b.harpe_log:
    """A harpe_log that calls `write`, but not while this process forks: in CPython 3.11, a child
    waits forever for a lock of the interpreter when a thread of C enters Python at that moment.
    The caller keeps the harpe_log as long as C may call it."""
    _separate_lines_and_forks()
    inner = b.harpe_log(member(b.harpe_log, "write", write), None)
    kind = next(kind for field, kind, *_ in b.harpe_log._fields_ if field == "write")
    log = b.harpe_log(C.cast(lib.harpe_log_write_outside_forks, kind), C.addressof(inner))
    log.inner = inner
    return log


# ---- Forked children ----------------------------------------------------------------------------

_owners: "weakref.WeakSet[Any]" = weakref.WeakSet()


def abandon_in_children(owner: Any) -> None:
    """Has `owner.abandon()` called in every process that is forked from this one. What C holds
    there is a copy without its threads, whose settings of GPUs are the parent's: the owner forgets
    it, so that nothing in the child uses or frees it."""
    _owners.add(owner)


def _abandon_all() -> None:
    for owner in list(_owners):
        owner.abandon()
    _owners.clear()


os.register_at_fork(after_in_child=_abandon_all)
