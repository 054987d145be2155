# SPDX-License-Identifier: Apache-2.0
"""Notices that a training loop has stood still for some time, for example because a debugger holds
it. Knows no optimizer."""
from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Callable, Optional

from harpe._library import abandon_in_children

__all__ = ["IDLE_S", "IdleWatch"]

IDLE_S = 600.0


class IdleWatch:
    """Calls a function once, in a thread of its own, when no event has come for some time.

    An event of the loop runs in a `with` block of the watch. The function and the blocks exclude
    each other. The watch does not keep the owner of the function alive.
    """

    def __init__(self, idle_s: Optional[float], when_idle: Callable[[str], Any]) -> None:
        """idle_s: seconds; None: never.
        when_idle: a method. It gets the reason as a text."""
        self._lock = threading.RLock()
        self._idle_s = idle_s
        self._when_idle = weakref.WeakMethod(when_idle)
        self._last_s = time.monotonic()
        self._stopped = threading.Event()
        self._stopped.set()
        abandon_in_children(self)

    def start(self) -> None:
        """Begins to watch. The time counts from now on."""
        self.stop()
        self._last_s = time.monotonic()
        if self._idle_s is None:
            return
        self._stopped = threading.Event()
        weakref.finalize(self, self._stopped.set)
        threading.Thread(target=_watch, args=(weakref.ref(self), self._stopped, self._idle_s),
                         name="harpe idle watch", daemon=True).start()

    def stop(self) -> None:
        """Ends the watch. The function is not called any more."""
        self._stopped.set()

    def abandon(self) -> None:
        """In a forked child, there is no thread and perhaps a lock that nobody unlocks."""
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._stopped.set()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._last_s = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._last_s = time.monotonic()
        self._lock.release()

    def _remaining_s(self, stopped: threading.Event, idle_s: float) -> Optional[float]:
        """Calls the function if it is time. Returns when to look again; None: never."""
        if not self._lock.acquire(blocking=False):
            return idle_s  # an event is being handled
        try:
            remaining_s = self._last_s + idle_s - time.monotonic()
            if remaining_s > 0 or stopped.is_set():
                return max(0.0, remaining_s)
            stopped.set()
            when_idle = self._when_idle()
            if when_idle is not None:
                when_idle(f"no step has begun for {idle_s:g} s")
            return None
        finally:
            self._lock.release()


def _watch(watch: Callable[[], Optional[IdleWatch]], stopped: threading.Event,
           idle_s: float) -> None:
    remaining_s: Optional[float] = idle_s
    while remaining_s is not None and not stopped.wait(remaining_s):
        this = watch()
        remaining_s = this._remaining_s(stopped, idle_s) if this is not None else None
        del this
