"""A thread that reads connections that nobody else reads.

A supervisor ends a connection that does not take its answers for 10 s. A program that submits jobs and then does something else for
a minute wants its results all the same.
"""

from __future__ import annotations

import select
import threading
import time
import weakref
from typing import List, Optional, Protocol, Set

from ._forks import tell_after_fork
from ._turns import CHECK_EVERY

# A connection that nobody has used for so many seconds, and on which nothing is in flight, is not looked at any more.
_IDLE = 10.0


class Kept(Protocol):
    """A connection, as it is seen here."""

    def fileno(self) -> int: ...

    def is_in_use(self, since: float) -> bool: ...

    def is_left_alone(self, now: float) -> bool: ...

    def read_for_others(self) -> None: ...

    def close(self) -> None: ...


class Keeper:
    """At most one thread for all connections of this process. It ends when it has nothing to look at.

    Once a second it looks for connections that are left alone, and reads them until somebody else does. It holds none of them, so
    one that the program has dropped is closed as ever.
    """

    def __init__(self) -> None:
        # Not by number: that of a connection that has gone may be given to another one.
        self._kept: "Set[weakref.ref[Kept]]" = set()
        self._thread: Optional[threading.Thread] = None
        tell_after_fork(self)

    def keep(self, connection: Kept) -> None:
        """From now on it is read, also while nobody waits, as long as something is in flight.

        To be called each time something is submitted, because the last call may have been interrupted, or have found no thread.
        """
        self._kept.add(weakref.ref(connection))
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._run, name="offload keeper", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter ends, or there may be no more threads: then only those who wait read
                return
            # Only now: if this is interrupted before, there may be two of them, which does no harm, but never none.
            self._thread = thread

    def after_fork(self) -> None:
        """In a child, the thread is not there."""
        self._kept = set()
        self._thread = None

    def _run(self) -> None:
        while True:
            while self._kept:
                self._look()
            self._thread = None
            if not self._kept:
                return
            self._thread = threading.current_thread()

    def _look(self) -> None:
        """Reads what comes within `CHECK_EVERY` on the connections that are left alone."""
        try:
            alone = self._left_alone()
            if alone:
                self._read(alone)
                return
        except Exception:  # out of memory, perhaps for a moment
            pass
        time.sleep(CHECK_EVERY)

    def _read(self, alone: List[Kept]) -> None:
        poll, by_number = select.poll(), {}
        for connection in alone:
            number = connection.fileno()
            if number >= 0:
                by_number[number] = connection
                poll.register(number, select.POLLIN)
        for number, _ in poll.poll(CHECK_EVERY * 1000):
            try:
                by_number[number].read_for_others()
            except BaseException:  # perhaps of a callback: what it has interrupted can be read no further, and all others can
                by_number[number].close()

    def _left_alone(self) -> List[Kept]:
        now, alone = time.monotonic(), []
        for reference in list(self._kept):
            connection = reference()
            if connection is None or not connection.is_in_use(now - _IDLE):
                self._drop(reference, now)
            elif connection.is_left_alone(now):
                alone.append(connection)
        return alone

    def _drop(self, reference: "weakref.ref[Kept]", now: float) -> None:
        """Looks at a connection no more, unless somebody has begun to use it in this very moment."""
        self._kept.discard(reference)
        connection = reference()
        if connection is not None and connection.is_in_use(now - _IDLE):
            self._kept.add(reference)


keeper = Keeper()
