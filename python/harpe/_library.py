# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libharpe, and turns its errors into exceptions. Everything else in the package
calls the library through `lib`. Importing this module loads nothing; the first call does."""
from __future__ import annotations

import ctypes as C
import functools
import os
import sys
import threading
import weakref
from typing import Any, Callable, List, Optional

from harpe import _bindings as b

SONAME = "libharpe.so.0"


class HarpeError(RuntimeError):
    """An operation of libharpe has failed. The text is one line that says what failed, where, and
    what to do."""

    def __init__(self, message: str, status: int = b.HARPE_INTERNAL, vendor_code: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.vendor_code = vendor_code


class InvalidArgumentError(HarpeError, ValueError):
    """A value outside its documented range, a malformed file or text, or a name already taken."""


class NotFoundError(HarpeError, LookupError):
    """A file, stage, instruction or plan that does not exist."""


class PermissionDeniedError(HarpeError, PermissionError):
    """The operating system or the driver refused the operation."""


class UnavailableError(HarpeError):
    """This machine has no driver library, no driver or no GPU, or it does not support the
    operation."""


for _public in (HarpeError, InvalidArgumentError, NotFoundError, PermissionDeniedError,
                UnavailableError):
    _public.__module__ = "harpe"  # Tracebacks and users name these classes by the public module.

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
    """Returns the exception for the status that a library function has returned."""
    if status == b.HARPE_OUT_OF_MEMORY:
        return MemoryError("libharpe: out of memory")  # type: ignore[return-value]
    message = error.message.decode("utf-8", "replace") or f"libharpe: status {status}"
    return _EXCEPTIONS.get(status, HarpeError)(message, status, error.vendor_code)


def _is_trusted(path: str) -> bool:
    """Returns true if the file that HARPE_LIBRARY names may be loaded. `sudo -E` keeps this
    variable of a user who has no root rights. The rules are those that the library applies to
    HARPE_PROGRAM; see SECURITY.md."""
    if os.getuid() != os.geteuid() or os.getgid() != os.getegid():
        return False
    try:
        status = os.stat(path)
    except OSError:
        return True  # a name that the loader looks up, or an error that opening the file reports
    owners = {0, os.geteuid(), os.stat(__file__).st_uid}
    return status.st_uid in owners and not status.st_mode & 0o002


def _candidates() -> List[str]:
    """Returns the places where libharpe may be, in the order in which they are tried: the file that
    HARPE_LIBRARY names, the wheel, the build tree, the prefix of an installed package, and the
    loader's search path."""
    named = os.environ.get("HARPE_LIBRARY")
    if named and _is_trusted(named):
        return [named]
    # Importing pathlib takes as long as all other imports together, so it happens only here.
    import pathlib

    package = pathlib.Path(__file__).resolve().parent
    found = [package / "_bundled" / "lib" / SONAME,
             package.parents[1] / "build" / "release" / SONAME]
    for prefix in package.parents:
        if prefix.name.startswith("lib"):
            found += sorted(prefix.glob(f"*/{SONAME}")) + [prefix / SONAME]
    return [str(path) for path in found if path.is_file()] + [SONAME]


class _Library:
    """Holds the loaded library. Its attributes are the library's functions, with their types."""

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
            f"cannot find libharpe ({'; '.join(reasons)}): install Harpe, or name the "
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
    """Calls a function whose last argument is a harpe_error *, and raises the error that it
    reports."""
    error = b.harpe_error()
    status = function(*arguments, C.byref(error))
    if status != b.HARPE_OK:
        raise exception_of(error, status)


def text_of(address: Optional[int]) -> str:
    """Returns a text that the library has allocated, and frees the library's copy."""
    if not address:
        return ""
    try:
        return C.string_at(address).decode("utf-8")
    finally:
        _free(address)


_libc = C.CDLL(None)
_free = _libc.free
_free.restype, _free.argtypes = None, [C.c_void_p]


def without_nul(text: bytes) -> bytes:
    """Returns the text. All text for C passes through here, because C ends a string at a NUL: it
    would open another file, or take two names for one. The error does not quote the text, which may
    be a token."""
    if b"\0" in text:
        raise InvalidArgumentError(
            f"a text contains a NUL character, after {text.index(0)} bytes: remove it",
            b.HARPE_INVALID_ARGUMENT)
    return text


def encoded(path: Optional[Any]) -> Optional[bytes]:
    """Converts a path, or a str that is treated like one, to a `const char *`. None stays None."""
    return None if path is None else without_nul(os.fsencode(path))


def utf8(text: str, errors: str = "strict") -> bytes:
    """Converts a str to a `const char *`, or to a text of a given length, in UTF-8."""
    return without_nul(text.encode("utf-8", errors))


# ---- Functions that C calls ---------------------------------------------------------------------


def _type_of_member(struct: Any, name: str) -> Any:
    return next(kind for field, kind, *_ in struct._fields_ if field == name)


def member(struct: Any, name: str, function: Callable[..., Any]) -> Any:
    """Returns `function` as the function pointer `name` of a C struct. The caller keeps it as long
    as C may call it."""
    return _type_of_member(struct, name)(function)


def report(exception: BaseException, error: Any) -> int:
    """Reports an exception to C: fills in `error`, a pointer that may be NULL, and returns the
    status."""
    if error:
        line = " ".join(str(exception).split()) or type(exception).__name__
        error.contents.message = line.encode("utf-8")[:b.harpe_error.message.size - 1]
        error.contents.vendor_code = getattr(exception, "vendor_code", 0)
    return int(getattr(exception, "status", b.HARPE_UNAVAILABLE))


LogWriter = Callable[[Optional[int], int, bytes], None]


def writer_to(name: str) -> LogWriter:
    """Returns a function that passes C's log lines to Python's logging under `name`."""
    import logging
    logger = logging.getLogger(name)

    def write(_user: Optional[int], level: int, line: bytes) -> None:
        logger.log(10 * (level + 1), "%s", line.decode("utf-8", "replace"))

    return write


@functools.lru_cache(maxsize=None)
def log_to(name: str) -> b.harpe_log:
    """Returns a harpe_log that passes its lines to Python's logging under `name`. It lasts as long
    as the process, because C may write to it at any time."""
    return outside_forks(writer_to(name))


@functools.lru_cache(maxsize=None)
def _separate_lines_and_forks() -> None:
    """Makes forks wait for the log lines of C's threads. The hooks are registered after those of
    logging, so that they run before logging takes its lock, which a line may need."""
    import logging  # noqa: F401
    os.register_at_fork(before=lib.harpe_log_before_fork,
                        after_in_parent=lib.harpe_log_after_fork)


def outside_forks(write: LogWriter) -> b.harpe_log:
    """Returns a harpe_log that calls `write`, except while this process forks. In CPython 3.11, if
    a thread of C enters Python at that moment, the child waits forever for a lock of the
    interpreter. The caller keeps the harpe_log as long as C may call it."""
    _separate_lines_and_forks()
    inner = b.harpe_log(member(b.harpe_log, "write", write), None)
    kind = _type_of_member(b.harpe_log, "write")
    log = b.harpe_log(C.cast(lib.harpe_log_write_outside_forks, kind), C.addressof(inner))
    log.inner = inner
    return log


# ---- The end of a worker ------------------------------------------------------------------------

def call_at_end_of_worker(function: Callable[[], Any]) -> None:
    """Calls `function` at the end of this process if multiprocessing has started the process. A
    forked worker ends without the functions of atexit, and so without the finalizers of weakref.
    The call comes after the worker has written the traceback of its exception. It may come when
    everything is already closed."""
    process = sys.modules.get("multiprocessing.process")
    register = getattr(threading, "_register_atexit", None)
    if process is None or process.parent_process() is None or register is None:
        return
    try:
        register(function)
    except RuntimeError:  # the worker is already ending
        pass


# ---- Forked children ----------------------------------------------------------------------------

_owners: "weakref.WeakSet[Any]" = weakref.WeakSet()


def abandon_in_children(owner: Any) -> None:
    """Calls `owner.abandon()` in every process that is forked from this one. The C objects in the
    child are copies without their threads, and the GPU settings that they hold belong to the
    parent. The owner therefore forgets them, so that nothing in the child uses or frees them."""
    _owners.add(owner)


def _abandon_all() -> None:
    for owner in list(_owners):
        owner.abandon()
    _owners.clear()


os.register_at_fork(after_in_child=_abandon_all)
