"""Threads that take turns, although each of them may be interrupted at any moment.

An exception from a signal handler (Ctrl-C, an alarm) may come between any two steps of the interpreter, also between the one that
takes a lock and the `try` behind it. A lock that is lost so is never released. So whoever has a turn is known by name: the local
variable `me` of a function that still runs. A name that no running function has any more is struck out.
"""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType
from typing import List, Optional

from ._errors import OffloadError

# Whoever sleeps looks around so often, in seconds: whether its turn has come, and whether anybody looks after the connection.
CHECK_EVERY = 1.0
# Between two looks at the stack of a thread, in seconds: long enough that it is not seen twice in the same moment.
_PAUSE = 0.001


class Waiter:
    """A thread that sleeps until there is something to look at. In use as long as it is the variable `me` of a running function."""

    __slots__ = ("thread", "only_waits", "_is_woken", "_asleep")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        # Whether it has begun nothing yet, as long as it is in line. A signal handler of the same thread may go first then.
        self.only_waits = True
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
        """Whether a function runs whose `me` this is. In doubt it does: it is asked again, and two threads never have one turn."""
        if self.thread == threading.get_ident():
            return self._is_in(sys._getframe())
        if self._may_be_in_use():
            return True
        time.sleep(_PAUSE)
        return self._may_be_in_use()

    def _may_be_in_use(self) -> bool:
        """Whether it is found in the stack of another thread, or that has changed meanwhile: then what was seen is no stack."""
        top = sys._current_frames().get(self.thread)
        if top is None:
            return False
        before = top.f_lasti
        return self._is_in(top) or sys._current_frames().get(self.thread) is not top or top.f_lasti != before

    def _is_in(self, frame: Optional[FrameType]) -> bool:
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
        self._line: List[Waiter] = []

    def is_free(self) -> bool:
        """Whether nobody is in line."""
        return not self._line

    def take(self, me: Waiter) -> None:
        """Returns when it is the turn of `me`.

        Raises `OffloadError` in a signal handler that has interrupted the very thread whose turn it is: that one cannot go on.
        """
        me.only_waits = True
        self._line.append(me)
        if self._line[0] is not me:
            self._wait(me)
        me.only_waits = False

    def check(self) -> None:
        """Raises `OffloadError` where `take` would."""
        first = self._first()
        if first is not None and first.thread == threading.get_ident() and not first.only_waits and first.is_in_use():
            raise _refusal()

    def _wait(self, me: Waiter) -> None:
        while True:
            if me not in self._line:  # somebody has struck it out
                self._line.append(me)
            # Looked at once: if it leaves in the next moment, `me` may be the first itself.
            first = self._first()
            if first is me:
                return
            if first is None:
                continue
            if first.thread != me.thread:
                if not me.sleep() and not first.is_in_use():
                    self.leave(first)
            elif not first.is_in_use():
                self.leave(first)
            elif first.only_waits:  # `me` is in a signal handler that has interrupted it, and it goes on as if nothing had been
                self._remove(me)
                self._line.insert(0, me)
            else:
                raise _refusal()

    def _first(self) -> Optional[Waiter]:
        try:
            return self._line[0] if self._line else None
        except IndexError:  # the last one has left in between
            return None

    def leave(self, me: Waiter) -> None:
        """It may be left twice."""
        self._remove(me)
        if self._line:
            self._wake_first()

    def _remove(self, me: Waiter) -> None:
        try:
            self._line.remove(me)
        except ValueError:  # it has left, or was struck out
            pass

    def _wake_first(self) -> None:
        """Or rather, if it sleeps under a signal handler that waits behind it, that one: both are told."""
        waiting = tuple(self._line)
        for waiter in waiting:
            if waiter.thread == waiting[0].thread:
                waiter.wake()


def _refusal() -> OffloadError:
    return OffloadError("this signal handler has interrupted a call that it would have to wait for")
