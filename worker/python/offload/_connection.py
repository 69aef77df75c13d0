"""A connection that many threads share, without a thread of its own as long as they use it.

```text
 a thread that waits for an answer   looks: it reads what comes, for all, until its own answer is there
 further threads that wait           sleep until their answer is there, or until whoever looks stops: then one of them looks
 a thread that sends                 looks while the socket takes nothing: a supervisor whose answers nobody takes reads nothing
 nobody for a second, and            the keeper, a thread that does nothing else (`_keeper.py`), until somebody looks again
   something is in flight
```

So a call costs no change of threads, and nothing that was submitted is lost because the program does something else meanwhile.

Whoever looks says when it stops (`_stop_looking`, which passes it on). If an exception or a signal handler that takes long keeps
it from that, it has not looked for `_STALE` seconds, and another one does. It waits without a turn; to read what has come is one
step for one thread at a time, a turn, which survives an exception as well (`_turns.py`). A step ends after a second, also if
nothing has come, so that everybody looks around now and then; in the main thread much sooner, because there a signal handler may go
first, and read what the call that it has interrupted waits for.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Iterable, List, Optional

from ._address import connect
from ._dialogue import SENT, UNSENT, Dialogue, Request
from ._errors import NoSupervisor, OffloadError
from ._forks import tell_after_fork
from ._keeper import keeper
from ._turns import CHECK_EVERY, Turn, Waiter
from ._wire import COPIED_MAX, WireError

# For `map`, once: how much to read, and how to read and send.
_READ_SIZE = (64 << 10,)
_DO_NOT_WAIT = (socket.MSG_DONTWAIT,)
# How a socket says that its other end is closed, or that it was closed here.
_OTHER_END_CLOSED = (errno.EPIPE, errno.ECONNRESET, errno.EBADF)
# Whoever looks says so every second. After so many seconds without it, nobody does.
_STALE = 2.5 * CHECK_EVERY
# How long the main thread waits at most in one step.
_WITH_HANDLERS = 0.05


class WaitedRequest(Request):
    """A request that threads wait for, or whose end is told to `on_end`, by the thread that reads."""

    __slots__ = ("connection", "waiters", "_on_end")

    # The connection that it was asked on.
    connection: "Connection"

    def __init__(self, on_end: Optional[Callable[["WaitedRequest"], None]] = None) -> None:
        # Threads that sleep until it changes.
        self.waiters: List[Waiter] = []
        self._on_end = on_end
        super().__init__()

    def changed(self) -> None:
        # A copy: whoever wakes leaves the list.
        for waiter in tuple(self.waiters):
            waiter.wake()
        if self.is_done:
            on_end, self._on_end = self._on_end, None
            if on_end is not None:
                on_end(self)


class Connection:
    """One connection to a supervisor. Any thread may use it."""

    def __init__(self, path: str, name: str, max_in_flight: int) -> None:
        """Connects. Raises `NoSupervisor`."""
        self.path = path
        self._process = os.getpid()
        self._max_in_flight = max_in_flight
        self._dialogue = Dialogue(path)
        self._reading = Turn()
        self._sending = Turn()
        # Who looks for what comes, since when it was last seen to, and who sleeps meanwhile.
        self._looking: Optional[Waiter] = None
        self._looked = time.monotonic()
        self._asleep: Deque[Waiter] = deque()
        # The request that a thread is sending. Only that thread knows whether a part of it has left.
        self._in_hand: Optional[WaitedRequest] = None
        self._for_room: List[Waiter] = []
        self._received: Deque[bytes] = deque()
        self._is_lost = self._is_closing = False
        self._used = time.monotonic()
        self._socket = connect(path)
        tell_after_fork(self)
        try:
            self._greet(name)
        except BaseException:
            self._socket.close()
            raise

    def _greet(self, name: str) -> None:
        try:
            self._socket.sendall(Dialogue.hello(name))
            while not self._dialogue.is_open:
                _receive(self._socket, self._dialogue)
        except WireError as error:
            raise NoSupervisor(f"what listens at {self.path} is no supervisor: {error}") from None
        except NoSupervisor:
            raise
        except (EOFError, OSError) as error:
            raise NoSupervisor(f"the supervisor at {self.path} does not answer: {error}") from None
        self._socket.settimeout(None)

    def is_usable(self, idle_max: float) -> bool:
        """Whether it is alive. One that nobody used for `idle_max` seconds may be closed by the supervisor at any moment."""
        return not self._is_lost and (bool(self._dialogue.requests) or time.monotonic() - self._used <= idle_max)

    def is_in_use(self, since: float) -> bool:
        """Whether something is in flight, or was asked `since`."""
        return bool(self._dialogue.requests) or self._used >= since

    def ask(self, build: Callable[[int], bytes], data: bytes, request: WaitedRequest) -> None:
        """Submits a job. Waits while as many as are allowed are in flight.

        Raises `Rejected`, `NotSent`, `ConnectionLost`, or `ValueError` for a header that is too long.
        If it is interrupted, the `state` of the request says how far it got.
        """
        # In a signal handler that could not read the answer, nothing is sent.
        self._reading.check()
        request.connection = self
        me = Waiter()
        try:
            self._take_room(me)
            self._ask(build, data, request)
        finally:
            self._sending.leave(me)
            self._close_if_unused()
        self._used = time.monotonic()

    def _ask(self, build: Callable[[int], bytes], data: bytes, request: WaitedRequest) -> None:
        """As `ask`. It is this thread's turn to send."""
        if self._is_lost:
            raise self._dialogue.loss_of(request, self._gone())
        # How much has left, piece by piece.
        sent: List[int] = []
        try:
            self._in_hand, request.state = request, SENT
            start = self._dialogue.ask(build, request, len(data))
            if len(data) < COPIED_MAX:
                self._send(start + data, sent)
            else:
                self._send(start, sent)
                self._send(data, sent)
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
        if not sent:
            raise self._dialogue.loss_of(request, self._gone())
        if self._is_lost and self._dialogue.withdraw(request):
            request.ended(self._dialogue.loss_of(request, self._gone()))
            request.check_answered()

    def wait(self, waiters: List[Waiter], is_there: Callable[[], bool], end: Optional[float] = None) -> None:
        """Returns when `is_there()`, which answers bring about that wake the waiters, or at `end`, if that is sooner."""
        if is_there():
            return
        me = Waiter()
        try:
            waiters.append(me)
            while not is_there() and (end is None or time.monotonic() < end):
                if self._may_look(me):
                    self._read_or_lose(me, is_there, end)
                else:
                    self._sleep(me, is_there, end)
        finally:
            if me in waiters:
                waiters.remove(me)
            self._stop_looking(me)

    def wait_for_end(self, request: WaitedRequest) -> None:
        """Returns when the request is answered. Raises what it was answered with, if that is an error."""
        if not request.is_done:
            self.wait(request.waiters, lambda: request.is_done)
        request.check_answered()

    def wait_for_part(self, request: WaitedRequest) -> None:
        """Returns when there is another part of a stream, or its end."""
        self._dialogue.note_held(time.monotonic())
        self.wait(request.waiters, lambda: bool(request.parts) or request.is_done)

    def wait_for_loss(self) -> None:
        """Returns when the connection has ended, and what came before is read: for a thread that does nothing else."""
        self.wait([], lambda: self._is_lost)

    def wait_for_all(self) -> None:
        """Returns when nothing is in flight."""
        self.wait(self._for_room, lambda: self._is_lost or not self._dialogue.requests)

    def look_now(self) -> None:
        """Reads what has come, unless another thread does, and does not wait for more."""
        me = Waiter()
        try:
            if self._may_look(me):
                self._read_or_lose(me)
        finally:
            self._stop_looking(me)

    def keep_reading(self) -> None:
        """Has the keeper read as long as something is in flight and nobody else does."""
        keeper.keep(self)

    def is_left_alone(self, now: float) -> bool:
        """For the keeper: whether something is in flight and may be read, and nobody looks."""
        patience = CHECK_EVERY if self._looking is None else _STALE
        return bool(self._dialogue.requests) and now - self._looked > patience and not self._dialogue.note_held(now)

    def fileno(self) -> int:
        """For the keeper: the descriptor to poll; less than 0 if it is closed."""
        return self._socket.fileno()

    def read_for_others(self) -> None:
        """For the keeper: takes what has come."""
        me = Waiter()
        self._read_or_lose(me)

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
            self.after_fork()
            return
        self._lose(f"this program has closed its connection to {self.path}")
        self._is_closing = True
        self._shut_down()
        self._close_if_unused()

    def _shut_down(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _close_if_unused(self) -> None:
        """Whoever leaves last closes it, so that no thread is about to use its number, which may be that of another file then."""
        if self._is_closing and self._reading.is_free() and self._sending.is_free():
            self._socket.close()

    def after_fork(self) -> None:
        """In a child: closes its copy of the descriptor, and says nothing to the supervisor."""
        self._is_lost = True
        self._socket.close()

    def _take_room(self, me: Waiter) -> None:
        """Returns when it is the turn of `me` to send, and there is room for another job."""
        while True:
            if not self._has_room():
                self.wait(self._for_room, self._has_room)
            self._sending.take(me)
            if self._has_room():
                return
            self._sending.leave(me)  # others have taken the room meanwhile

    def _has_room(self) -> bool:
        return self._is_lost or len(self._dialogue.requests) < self._max_in_flight

    def _may_look(self, me: Waiter) -> bool:
        """Whether `me` is the one who looks. It is, too, if a signal handler of the same thread has interrupted the one who did."""
        now, looking = time.monotonic(), self._looking
        if looking is not None and looking.thread != me.thread and now - self._looked < _STALE:
            return False
        self._looking, self._looked = me, now
        return True

    def _stop_looking(self, me: Waiter) -> None:
        """Every thread that has looked or slept leaves by this: if nobody looks now, one who sleeps does."""
        if self._looking is me:
            self._looking = None
        if self._looking is None:
            try:
                # Taken out, so that one who was interrupted and has gone without leaving misses one call at most.
                self._asleep.popleft().wake()
            except IndexError:  # nobody sleeps
                pass

    def _sleep(self, me: Waiter, is_there: Callable[[], bool], end: Optional[float]) -> None:
        """Sleeps until an answer wakes `me`, or nobody looks any more, or for a second."""
        try:
            self._asleep.append(me)
            # Whoever looks wakes one who sleeps when it stops. It may have stopped before this one was there.
            if not is_there() and self._looking is not None:
                me.sleep(end)
        finally:
            try:
                self._asleep.remove(me)
            except ValueError:  # whoever woke it has taken it out
                pass

    def _ready_for(self, interest: int, seconds: float) -> int:
        """What the socket is ready for, after so many seconds at the latest: of what is of interest, or its end."""
        poll = select.poll()
        try:
            poll.register(self._socket, interest)
        except ValueError:  # another thread has closed it meanwhile
            return select.POLLHUP
        ready = poll.poll(max(0.0, seconds) * 1000)
        return ready[0][1] if ready else 0

    def _send(self, data: bytes, sent: List[int]) -> None:
        """Sends all of it, unless the connection ends, and adds to `sent` what has left."""
        unsent = memoryview(data)
        while unsent and not self._is_lost:
            try:
                # One step of the interpreter, so that no interrupt comes between what is sent and the note of it.
                sent.extend(map(self._socket.send, (unsent,), _DO_NOT_WAIT))
                unsent = unsent[sent[-1] :]
            except BlockingIOError:
                self._read_or_wait_to_send()
            except OSError as error:
                if error.errno not in _OTHER_END_CLOSED:  # such as out of memory: nothing that comes would say that it has ended
                    self._lose(f"the connection to the supervisor at {self.path} is lost: {error}")
                    self._shut_down()
                # A local socket whose other end is closed says so at once, so nothing of this was sent. What the supervisor sent
                # before, perhaps a Goodbye, can still be read.
                self.wait_for_loss()

    def _is_in_hand(self, request: Request) -> bool:
        return request is self._in_hand

    def _read_or_wait_to_send(self) -> None:
        me = Waiter()
        try:
            may_look = self._may_look(me)
            ready = self._ready_for(select.POLLOUT | (select.POLLIN if may_look else 0), CHECK_EVERY)
            if may_look and ready & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._read_or_lose(me)
        finally:
            self._stop_looking(me)

    def _read_or_lose(self, me: Waiter, is_there: Optional[Callable[[], bool]] = None, end: Optional[float] = None) -> None:
        """One step. It waits for what comes if `is_there` is given, at most until `end`. If the connection has ended, all requests
        have."""
        if is_there is not None and not self._comes(me, is_there, end):
            return
        try:
            self._reading.take(me)
            if self._is_lost:
                self._dialogue.end_interrupted(self._gone())
            elif self._may_read(me):
                self._read()
        except EOFError:
            self._lose(self._gone())
        except (WireError, NoSupervisor, OSError) as error:
            self._lose(f"the connection to the supervisor at {self.path} is lost: {error}")
            self._dialogue.end_interrupted(self._gone())
        finally:
            self._reading.leave(me)
            self._close_if_unused()
        if self._is_lost:
            self._dialogue.lost(self._gone(), self._is_in_hand)

    def _comes(self, me: Waiter, is_there: Callable[[], bool], end: Optional[float]) -> bool:
        """Waits until there is something to read, at most for one step. Not if another one has read meanwhile what `me` waits for.

        It has no turn meanwhile, so a signal handler that takes long holds up nobody. The wait ends by the clock, however often it
        is interrupted.
        """
        if not self._reading.is_free():  # perhaps just that is being read
            try:
                self._reading.take(me)
            finally:
                self._reading.leave(me)
        if is_there():  # from here on, only `me` reads
            return False
        if self._received:  # by one who was interrupted before it looked at that
            return True
        seconds = _WITH_HANDLERS if me.thread == threading.main_thread().ident else CHECK_EVERY
        if end is not None:
            seconds = min(seconds, end - time.monotonic())
        return bool(self._ready_for(select.POLLIN, seconds))

    def _may_read(self, me: Waiter) -> bool:
        """Whether `me` is the one who looks, or nobody does. Asked in turn: another one may look by now."""
        looking = self._looking
        return looking is me or looking is None or time.monotonic() - self._looked >= _STALE

    def _read(self) -> None:
        """Takes what has come. An interrupt before it has come loses nothing; one while it is looked at ends the connection."""
        received = self._received
        try:
            if not received:
                # A signal is handled between two steps of the interpreter. This is one: what comes is kept before it can be lost.
                received.extend(map(self._socket.recv, _READ_SIZE, _DO_NOT_WAIT))
        except BlockingIOError:  # nothing, or another thread has taken it
            return
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
            self._dialogue.end_interrupted(self._gone())
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


def ask_apart(path: str, name: str, builds: Iterable[Callable[[int], bytes]], patience: Optional[float] = None) -> List[Request]:
    """Sends requests over a connection of its own, one after the other, and waits for the answers, whatever they are.

    For what must not wait for jobs, and for when another connection may have lost step. With `patience` no wait for an answer is
    longer than so many seconds. Raises `NoSupervisor`.
    """
    dialogue, requests = Dialogue(path), []
    with connect(path) as end:
        try:
            end.sendall(Dialogue.hello(name))
            while not dialogue.is_open:
                _receive(end, dialogue)
            end.settimeout(patience)
            for build in builds:
                requests.append(Request())
                end.sendall(dialogue.ask(build, requests[-1]))
                while dialogue.requests:
                    _receive(end, dialogue)
        except (EOFError, OSError, WireError) as error:
            raise NoSupervisor(f"the supervisor at {path} does not answer: {error}") from None
    return requests


def _receive(end: socket.socket, dialogue: Dialogue) -> None:
    """Reads once. Raises `EOFError`, `OSError`, `WireError` or `NoSupervisor`."""
    data = end.recv(*_READ_SIZE)
    if not data:
        raise EOFError("it closed the connection")
    dialogue.receive(data)
