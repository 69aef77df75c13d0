"""Threads that take turns, although each of them may be interrupted at any moment.

An exception from a signal handler (Ctrl-C, an alarm) may come between any two steps of the interpreter, also between the one that
takes a lock and the `try` behind it. A lock that is lost so is never released. So whoever has a turn is known by name: the local
variable `me` of a function that still runs. A name that no running function has any more is struck out.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import Deque, Optional

from ._errors import OffloadError

# Whoever sleeps looks around so often, in seconds: whether its turn has come, and whether anybody looks after the connection.
CHECK_EVERY = 1.0


class Waiter:
    """A thread that sleeps until there is something to look at. In use as long as it is the variable `me` of a running function."""

    __slots__ = ("thread", "only_waits", "_is_woken", "_asleep")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        # Whether it has its turn and does nothing yet. A signal handler of the same thread may go first then.
        self.only_waits = False
        self._is_woken = False
        # Most never sleep, and a lock takes longer to make than all the rest.
        self._asleep: Optional[threading.Lock] = None

    def wake(self) -> None:
        self._is_woken = True
        asleep = self._asleep
        if asleep is not None:
            try:
                asleep.release()
            except RuntimeError:  # it was told already
                pass

    def sleep(self, end: Optional[float] = None) -> bool:
        """Returns when it is woken, at `end`, or after `CHECK_EVERY`. Whether it was woken."""
        if self._asleep is None:
            asleep = threading.Lock()
            asleep.acquire()
            self._asleep = asleep
        if not self._is_woken:
            self._asleep.acquire(timeout=CHECK_EVERY if end is None else min(CHECK_EVERY, max(0.0, end - time.monotonic())))
        is_woken, self._is_woken = self._is_woken, False
        return is_woken

    def is_in_use(self) -> bool:
        """Whether a function runs whose `me` this is."""
        frame = sys._current_frames().get(self.thread)
        while frame is not None:
            if "me" in frame.f_code.co_varnames and frame.f_locals.get("me") is self:
                return True
            frame = frame.f_back
        return False


class Turn:
    """The right to do something that only one thread may do at a time. The first in line has it.

        me = Waiter()
        try:
            turn.take(me)
            ...
        finally:
            turn.leave(me)
    """

    def __init__(self) -> None:
        self._line: Deque[Waiter] = deque()

    def take(self, me: Waiter) -> None:
        """Returns when it is the turn of `me`.

        Raises `OffloadError` in a signal handler that has interrupted the very thread whose turn it is: that one cannot go on.
        """
        self._line.append(me)
        if self._line[0] is not me:
            self._wait(me)

    def _wait(self, me: Waiter) -> None:
        line = self._line
        while line[0] is not me:
            first = line[0]
            is_mine = first.thread == me.thread
            if not is_mine and me.sleep():
                continue
            if not first.is_in_use():
                self.leave(first)
            elif is_mine and first.only_waits:
                line.remove(me)
                line.appendleft(me)
            elif is_mine:
                raise OffloadError("this signal handler has interrupted a call that it would have to wait for")

    def leave(self, me: Waiter) -> None:
        """It may be left twice."""
        line = self._line
        if me in line:
            line.remove(me)
        if line:
            self._wake_first()

    def _wake_first(self) -> None:
        try:
            self._line[0].wake()
        except IndexError:  # it has left meanwhile
            pass
