"""A connection that many threads share, without a thread of its own.

Of the threads that wait for an answer, one reads the socket for all of them. When it has its own answer, it wakes another one,
which goes on reading. So a program with one thread costs no change of threads.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable, Deque, Iterable, List, Optional

from ._address import connect
from ._dialogue import SENT, UNSENT, Dialogue, Request
from ._errors import NoSupervisor, OffloadError
from ._wire import WireError

# For `map`, once: how much to read, and how to send.
_READ_SIZE = (64 << 10,)
_DO_NOT_WAIT = (socket.MSG_DONTWAIT,)
# An input of at least so many bytes is not copied behind its header.
_COPIED_MAX = 32 << 10


class Waiter:
    """A thread that sleeps until there is something to look at."""

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:  # it was told already
            pass

    def sleep(self, end: Optional[float] = None) -> None:
        """Returns when it is woken, or at `end`."""
        self._asleep.acquire(timeout=-1 if end is None else max(0.0, end - time.monotonic()))


class WaitedRequest(Request):
    """A request that threads wait for, or whose end is told to `on_end`, by the thread that reads."""

    __slots__ = ("connection", "waiters", "_on_end")

    # The connection that it was asked on.
    connection: "Connection"

    def __init__(self, on_end: Optional[Callable[["WaitedRequest"], None]] = None) -> None:
        # Threads that sleep until it changes.
        self.waiters: List[Waiter] = []
        self._on_end = on_end
        super().__init__(self._tell)

    def _tell(self) -> None:
        # A copy: whoever wakes leaves the list.
        for waiter in tuple(self.waiters):
            waiter.wake()
        if self._on_end is not None and self.is_done:
            self._on_end(self)


class Connection:
    """One connection to a supervisor. Any thread may use it."""

    def __init__(self, path: str, name: str, max_in_flight: int) -> None:
        """Connects. Raises `NoSupervisor`."""
        self.path = path
        self._process = os.getpid()
        self._max_in_flight = max_in_flight
        self._dialogue = Dialogue(path)
        self._reading = threading.Lock()
        self._sending = threading.Lock()
        # The request that a thread is sending. Only that thread knows whether a part of it has left.
        self._in_hand: Optional[WaitedRequest] = None
        self._for_room: List[Waiter] = []
        self._received: Deque[bytes] = deque()
        self._is_lost = False
        self._used = time.monotonic()
        self._socket = connect(path)
        _connections.add(self)
        try:
            self._greet(name)
        except BaseException:
            self._socket.close()
            raise

    def _greet(self, name: str) -> None:
        try:
            self._socket.sendall(Dialogue.hello(name))
            while not self._dialogue.is_open:
                self._read()
        except WireError as error:
            raise NoSupervisor(f"what listens at {self.path} is no supervisor: {error}") from None
        except NoSupervisor:
            raise
        except (EOFError, OSError) as error:
            raise NoSupervisor(f"the supervisor at {self.path} does not answer: {error}") from None
        self._socket.settimeout(None)

    def is_usable(self, idle_max: float) -> bool:
        """Whether it is alive. One that nobody used for `idle_max` seconds may be closed by the supervisor at any moment."""
        is_idle = not self._dialogue.requests and time.monotonic() - self._used > idle_max
        return not (self._is_lost or is_idle)

    def ask(self, build: Callable[[int], bytes], data: bytes, request: WaitedRequest) -> None:
        """Sends a request. Waits while as many as are allowed are in flight. Raises `Rejected`, `NotSent` or `ConnectionLost`.

        If it is interrupted, the `state` of the request says how far it got.
        """
        if len(self._dialogue.requests) >= self._max_in_flight:
            self._wait_for_room()
        request.connection = self
        with self._sending:
            if self._is_lost:
                raise self._dialogue.loss_of(request, self._gone())
            self._in_hand, request.state = request, SENT
            # How much has left, piece by piece.
            sent: List[int] = []
            try:
                start = self._dialogue.ask(build, request, len(data))
                if len(data) < _COPIED_MAX:
                    self._send(start + data, sent)
                else:
                    self._send(start, sent)
                    self._send(data, sent)
            except OffloadError:
                raise
            except BaseException:
                if sent and sum(sent) < len(start) + len(data):  # interrupted in a message, behind which no other could be read
                    self.close()
                    if self._dialogue.withdraw(request):
                        request.ended(self._dialogue.loss_of(request, self._gone()))
                raise
            finally:
                if not sent:  # from here on it has nothing to do with this connection, and may go over another one
                    self._dialogue.withdraw(request)
                    request.state = UNSENT
                self._in_hand = None
            if not sent or (self._is_lost and self._dialogue.withdraw(request)):
                raise self._dialogue.loss_of(request, self._gone())
        self._used = time.monotonic()

    def wait(self, waiters: List[Waiter], is_there: Callable[[], bool], end: Optional[float] = None) -> None:
        """Returns when `is_there()`, which answers bring about that wake the waiters, or at `end`, if that is sooner."""
        try:
            while not is_there() and (end is None or time.monotonic() < end):
                if self._reading.acquire(blocking=False):
                    self._read_until(is_there, end)
                else:
                    self._sleep(waiters, is_there, end)
        finally:
            self._pass_on()

    def _sleep(self, waiters: List[Waiter], is_there: Callable[[], bool], end: Optional[float]) -> None:
        """Sleeps until an answer wakes the waiters, or nobody reads any more."""
        waiter = Waiter()
        waiters.append(waiter)
        try:
            # Whoever reads wakes a waiter when it stops. It may have stopped before this one was there.
            if not is_there() and self._reading.locked():
                waiter.sleep(end)
        finally:
            waiters.remove(waiter)

    def wait_for_end(self, request: WaitedRequest) -> None:
        """Returns when the request is answered. Raises what it was answered with, if that is an error."""
        if not request.is_done:
            self.wait(request.waiters, lambda: request.is_done)
        if request.error is not None:
            raise request.error

    def read_for_all(self) -> None:
        """Reads until the connection ends: for a thread that does nothing else."""
        with self._reading:
            while not self._is_lost:
                self._read_or_lose()

    def is_ours(self) -> bool:
        """Whether this process has made it. A forked child has only a copy, and leaves the connection to its parent."""
        return os.getpid() == self._process

    def check_process(self) -> None:
        """Raises `OffloadError` in a forked child."""
        if not self.is_ours():
            raise OffloadError("this job was submitted before the fork: only the parent gets its result")

    def close(self) -> None:
        """Ends the connection: queued jobs of it are cancelled. A forked child only forgets it."""
        if not self.is_ours():
            self.forget()
            return
        self._lose(f"this program has closed its connection to {self.path}")
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def forget(self) -> None:
        """For a forked child: closes its copy of the descriptor, and says nothing to the supervisor."""
        self._is_lost = True
        self._socket.close()

    def _wait_for_room(self) -> None:
        self.wait(self._for_room, lambda: self._is_lost or len(self._dialogue.requests) < self._max_in_flight)

    def _read_until(self, is_there: Callable[[], bool], end: Optional[float]) -> None:
        """Reads for all. The lock for that is held, and is given up."""
        try:
            while not is_there() and (end is None or self._has_something(end)):
                self._read_or_lose()
        finally:
            self._reading.release()

    def _has_something(self, end: float) -> bool:
        """Whether there is something to read before `end`."""
        return self._is_lost or bool(self._received) or bool(self._ready_for(select.POLLIN, end))

    def _ready_for(self, interest: int, end: Optional[float] = None) -> int:
        """What the socket is ready for, at `end` at the latest: of what is of interest, or its end."""
        poll = select.poll()
        try:
            poll.register(self._socket, interest)
        except ValueError:  # another thread has closed it meanwhile
            return select.POLLHUP
        ready = poll.poll(None if end is None else max(0.0, end - time.monotonic()) * 1000)
        return ready[0][1] if ready else 0

    def _pass_on(self) -> None:
        """Wakes a thread that waits, if one does and nobody reads."""
        requests: Any = self._dialogue.requests
        if not (requests or self._for_room) or self._reading.locked():
            return
        for waiters in (self._for_room, *(request.waiters for request in list(requests.values()))):
            for waiter in waiters:
                waiter.wake()
                return

    def _send(self, data: bytes, sent: List[int]) -> None:
        """Sends all of it, unless the connection ends, and adds to `sent` what has left.

        It reads meanwhile: a supervisor whose answers nobody takes reads no requests.
        """
        unsent = memoryview(data)
        while unsent and not self._is_lost:
            try:
                # One step of the interpreter, so that no interrupt comes between what is sent and the note of it.
                sent.extend(map(self._socket.send, (unsent,), _DO_NOT_WAIT))
                unsent = unsent[sent[-1] :]
            except BlockingIOError:
                self._read_or_wait_to_send()
            except OSError:  # a local socket whose other end is closed says so at once, so nothing of this was sent
                self._read_the_rest()

    def _is_in_hand(self, request: Request) -> bool:
        return request is self._in_hand

    def _read_the_rest(self) -> None:
        """The supervisor does not read any more. What it sent before, perhaps a Goodbye, can still be read."""
        with self._reading:
            while not self._is_lost:
                self._read_or_lose()

    def _read_or_wait_to_send(self) -> None:
        may_read = self._reading.acquire(blocking=False)
        try:
            ready = self._ready_for(select.POLLOUT | (select.POLLIN if may_read else 0))
            if may_read and ready & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._read_or_lose()
        finally:
            if may_read:
                self._reading.release()

    def _read_or_lose(self) -> None:
        """Reads once. If the connection has ended, all requests have."""
        try:
            if not self._is_lost:
                self._read()
        except EOFError:
            self._lose(self._gone())
        except (OSError, WireError, NoSupervisor) as error:
            self._lose(f"the connection to the supervisor at {self.path} is lost: {error}")
        if self._is_lost:
            self._dialogue.lost(self._gone(), self._is_in_hand)

    def _read(self) -> None:
        """Reads once. An interrupt while it waits loses nothing; one while it looks at what has come ends the connection."""
        received = self._received
        if not received:
            # A signal is handled between two steps of the interpreter. This is one: what comes is kept before it can be lost.
            received.extend(map(self._socket.recv, _READ_SIZE))
        try:
            data = received.popleft()
            if not data:
                raise EOFError("it closed the connection")
            before = len(self._dialogue.requests)
            self._dialogue.receive(data)
            if self._for_room and len(self._dialogue.requests) < before:
                self._wake_for_room()
        except (EOFError, WireError, NoSupervisor):
            raise
        except BaseException:
            self.close()
            raise

    def _lose(self, reason: str) -> None:
        self._is_lost = True
        self._dialogue.lost(reason, self._is_in_hand)
        self._wake_for_room()

    def _gone(self) -> str:
        return f"the supervisor at {self.path} is gone"

    def _wake_for_room(self) -> None:
        for waiter in tuple(self._for_room):
            waiter.wake()


def ask_apart(path: str, name: str, builds: Iterable[Callable[[int], bytes]]) -> None:
    """Sends requests over a connection of its own, one after the other, and waits for the answers, whatever they are.

    For what has to be said when another connection may have lost step. No wait is longer than the one for a greeting. Raises
    `NoSupervisor`.
    """
    dialogue = Dialogue(path)

    def receive() -> None:
        data = end.recv(*_READ_SIZE)
        if not data:
            raise EOFError("it closed the connection")
        dialogue.receive(data)

    with connect(path) as end:
        try:
            end.sendall(Dialogue.hello(name))
            while not dialogue.is_open:
                receive()
            for build in builds:
                end.sendall(dialogue.ask(build, Request(_ignore)))
                while dialogue.requests:
                    receive()
        except (EOFError, OSError, WireError) as error:
            raise NoSupervisor(f"the supervisor at {path} does not answer: {error}") from None


def _ignore() -> None:
    pass


_connections: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for connection in list(_connections):
        connection.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
