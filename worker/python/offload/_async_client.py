"""`AsyncClient`: jobs from asyncio. A call is one future; cancelling it cancels the job."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import select
import socket
import time
import weakref
from typing import Any, AsyncGenerator, AsyncIterator, Callable, Iterable, List, Optional

from . import _messages as messages
from ._address import AGAIN, GREETING_TIMEOUT, AcceptsNobody, connect_now, default_socket
from ._client import ID_PATIENCE, IDLE_MAX, cancel, check_client, encode
from ._dialogue import SENT, Dialogue, Request
from ._errors import NoSupervisor, NotSent, OffloadError
from ._forks import tell_after_fork
from ._requests import JobRequest, call_request, job_request
from ._wire import WireError


class _Asked(Request):
    """A request of a coroutine, which waits for its next answer."""

    __slots__ = ("_next", "_is_unwanted", "_is_cancelling", "_heard", "_connection")

    def __init__(self, connection: "_Connection") -> None:
        super().__init__()
        self._next: Optional[asyncio.Future] = None
        self._connection = connection
        self._is_unwanted = self._is_cancelling = False
        # Done when the supervisor has heard that nobody wants the job any more.
        self._heard: Optional[asyncio.Future] = None

    async def change(self) -> None:
        """Returns after the next answer."""
        self._next = self._connection.loop.create_future()
        await self._next

    async def give_up(self) -> None:
        """Nobody waits for it any more: cancels the job as soon as its id is known.

        Returns when the supervisor has heard of it, so that the connection may be closed and the loop end, or after `ID_PATIENCE`.
        """
        if self.is_done or self._connection.is_lost:
            return
        self._is_unwanted = True
        self._heard = self._connection.loop.create_future()
        self._connection.resume()
        self._cancel_job()
        await asyncio.wait([self._heard], timeout=ID_PATIENCE)

    def changed(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        if self.is_full and not self._is_unwanted:
            self._connection.pause()
        if self._is_unwanted:
            self.parts.clear()
            self._cancel_job()

    def _cancel_job(self) -> None:
        if self.is_done:
            self.was_heard()
        elif self.job is not None and self._heard is not None and not self._is_cancelling:
            self._is_cancelling = True
            try:
                self._connection.tell(functools.partial(cancel, job=self.job), b"", _Cancel(self))
            except OffloadError:  # the supervisor is gone
                self.was_heard()

    def was_heard(self) -> None:
        """The supervisor has heard that nobody wants the job any more, or is gone."""
        if self._heard is not None and not self._heard.done():
            self._heard.set_result(None)


class _Cancel(Request):
    """A request that the job of another one ends."""

    __slots__ = ("_of",)

    def __init__(self, of: _Asked) -> None:
        self._of = of
        super().__init__()

    def changed(self) -> None:
        self._of.was_heard()


class _Connection(asyncio.Protocol):
    """One connection to a supervisor, on one loop."""

    def __init__(self, path: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.path = path
        self.dialogue = Dialogue(path)
        self.is_lost = False
        self.used = self.loop.time()
        self._transport: Any = None
        # Hears of the end of the socket, which the loop may not have noticed yet.
        self._end = select.poll()
        self._greeted: asyncio.Future = self.loop.create_future()
        self._may_write = asyncio.Event()
        self._may_write.set()
        # In a forked child, only the descriptor of it may be closed.
        self._socket: Optional[socket.socket] = None
        tell_after_fork(self)

    @classmethod
    async def open(cls, path: str, name: str) -> "_Connection":
        """Connects. Raises `NoSupervisor`."""
        loop = asyncio.get_running_loop()
        end = await _connected(path)
        _, connection = await loop.create_unix_connection(lambda: cls(path), sock=end)
        connection._socket = end
        connection._end.register(end, select.POLLRDHUP)
        connection._transport.write(Dialogue.hello(name))
        try:
            # Before Python 3.12 `wait_for` loses a cancellation that comes together with what is awaited; `wait` does not.
            await asyncio.wait([connection._greeted], timeout=GREETING_TIMEOUT)
            if not connection._greeted.done():
                raise NoSupervisor(f"the supervisor at {path} does not answer within {GREETING_TIMEOUT:.0f} s")
            connection._greeted.result()
        except BaseException:
            connection.close()
            raise
        return connection

    def has_ended(self) -> bool:
        """Whether nothing can be sent any more. There may still be answers to read."""
        return self.is_lost or bool(self._end.poll(0))

    def is_idle(self) -> bool:
        """Whether nobody has used it for so long that the supervisor may close it at any moment."""
        return not self.dialogue.requests and self.loop.time() - self.used > IDLE_MAX

    async def ask(self, build: Callable[[int], bytes], data: bytes = b"") -> _Asked:
        """Sends a request. Waits while the supervisor does not read. Raises `NotSent` or `Rejected`."""
        while not self._may_write.is_set():  # of all who wait, the first to wake may fill the socket again
            await self._may_write.wait()
        request = _Asked(self)
        self.tell(build, data, request)
        return request

    def tell(self, build: Callable[[int], bytes], data: bytes, request: Request) -> None:
        """As `ask`, and does not wait."""
        if self.has_ended():
            raise self.dialogue.loss_of(request, self._gone())
        start = self.dialogue.ask(build, request, len(data))
        request.state = SENT
        self._transport.write(start)
        if data:
            self._transport.write(data)
        self.used = self.loop.time()

    def pause(self) -> None:
        """Reads no more until `resume`."""
        self.dialogue.note_held(time.monotonic())
        if not self.is_lost:
            self._transport.pause_reading()

    def resume(self) -> None:
        self.dialogue.note_held(time.monotonic())
        if not self.is_lost:
            self._transport.resume_reading()

    def close(self) -> None:
        self._lose(f"this program has closed its connection to {self.path}")

    def after_fork(self) -> None:
        """In a child: closes its copy of the descriptor. Supervisor and loop are those of the parent, and hear nothing."""
        if self._socket is not None and self._socket.fileno() >= 0:
            # Another loop than that of asyncio may hold the socket, which then stays open when it is closed here.
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, self._socket.fileno(), inheritable=False)
            os.close(nothing)
        self.leave_to_nobody()

    def leave_to_nobody(self) -> None:
        """Closes the socket without the loop, which is closed, or that of another process."""
        self.is_lost = True
        if self._socket is not None:
            self._socket.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self.dialogue.receive(data)
        except NoSupervisor as error:
            self._refuse(error)
        except WireError as error:
            self._refuse(NoSupervisor(f"what listens at {self.path} is no supervisor: {error}"))
        else:
            if self.dialogue.is_open and not self._greeted.done():
                self._greeted.set_result(None)

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._refuse(NoSupervisor(f"the supervisor at {self.path} does not answer: {error or 'it closed the connection'}"))
        self._lose(self._gone())

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def _refuse(self, error: NoSupervisor) -> None:
        if not self._greeted.done():
            self._greeted.set_exception(error)
            self._greeted.exception()  # if nobody waits for it any more, that is no reason for a warning
        self._lose(str(error))

    def _lose(self, reason: str) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._transport.close()  # when it has written what it has, perhaps a Cancel
        self.dialogue.lost(reason)
        self._may_write.set()

    def _gone(self) -> str:
        return f"the supervisor at {self.path} is gone"


class _OnLoop:
    """What a client has on one loop."""

    def __init__(self, max_in_flight: int) -> None:
        self.connection: Optional[_Connection] = None
        self.is_closed = False
        self.connecting = asyncio.Lock()
        self.places = asyncio.Semaphore(max_in_flight)

    def usable(self) -> Optional[_Connection]:
        """The connection, if it can be used. One that has ended is left to the loop, which reads what has come before."""
        connection = self.connection
        if connection is None or connection.has_ended():
            return None
        if connection.is_idle():
            connection.close()
            return None
        return connection


class _Ends:
    """Calls that are under way, as a `map` waits for them."""

    def __init__(self) -> None:
        self._count = 0
        self._failed: Optional[asyncio.Future] = None
        self._next: Optional[asyncio.Future] = None

    def wait_for(self, call: asyncio.Future) -> None:
        self._count += 1
        call.add_done_callback(self._ended)

    async def at_most(self, count: int) -> None:
        """Returns when no more than so many are under way. Raises what the first one raised that failed."""
        while self._failed is None and self._count > count:
            self._next = asyncio.get_running_loop().create_future()
            await self._next
        if self._failed is not None:
            self._failed.result()

    def _ended(self, call: asyncio.Future) -> None:
        self._count -= 1
        if self._failed is None and (call.cancelled() or call.exception() is not None):
            self._failed = call
        if self._next is not None and not self._next.done():
            self._next.set_result(None)


class AsyncClient:
    """Submits jobs to the supervisor at a local socket, from coroutines.

    It may be used on several loops, as in tests that have one each; on each it has a connection of its own, which is made when it
    is first used, and again after it was lost. It is closed on each loop apart. The arguments are those of `Client`.
    """

    def __init__(self, socket: Optional[str] = None, *, name: str = "", max_in_flight: int = 1000) -> None:
        check_client(name, max_in_flight)
        self._path = None if socket is None else os.fspath(socket)
        self._name = name
        self._max_in_flight = max_in_flight
        self._loops: "weakref.WeakKeyDictionary[Any, _OnLoop]" = weakref.WeakKeyDictionary()
        tell_after_fork(self)

    async def call(self, task: str, input: Any = b"", **options: Any) -> Any:
        """Runs a task on an input, and returns its output: see `Client.call`.

        If it is cancelled, so is the job, unless it has an idempotency key: then it may be that of others, too.
        """
        wanted = call_request(task, input, **options)
        request = await self._run(wanted)
        return request.result(wanted.is_raw)

    async def map(self, task: str, inputs: Iterable[Any], **options: Any) -> List[Any]:
        """The outputs for many inputs, in their order. At the first job that fails, the others are cancelled.

        No more inputs are taken than jobs may be in flight, and none after a failure.
        """
        calls: List[asyncio.Future] = []
        ends = _Ends()
        try:
            for input in inputs:
                call = asyncio.ensure_future(self.call(task, input, **options))
                calls.append(call)
                ends.wait_for(call)
                await ends.at_most(self._max_in_flight - 1)
            await ends.at_most(0)
            return [call.result() for call in calls]
        finally:
            for call in calls:
                call.cancel()
            # Until the supervisor has heard of it, because what comes next may close the connection or end the loop.
            await asyncio.gather(*calls, return_exceptions=True)

    def stream(self, task: str, input: Any = b"", **options: Any) -> AsyncGenerator[bytes, None]:
        """The output of a job in parts, as its task sends them. Whoever reads slowly makes the task wait.

        8 MiB are read ahead. If they wait for their reader for 10 s, the supervisor closes the connection (`ConnectionLost`).
        A stream has a connection of its own. Leaving the loop over it, or cancelling it, cancels the job. Takes what `call`
        takes, but neither `raw` nor `idempotency_key`.
        """
        return self._stream(job_request(task, input, stream=True, **options))

    async def _stream(self, job: JobRequest) -> AsyncGenerator[bytes, None]:
        connection = await self._connect()
        try:
            request = await connection.ask(job.header, job.data)
            try:
                async for part in _parts(connection, request):
                    yield part
            finally:
                await request.give_up()
            request.check()
            if request.output:
                yield request.output
        finally:
            connection.close()

    async def status(self) -> dict:
        """The supervisor, as `offload status --json` shows it."""
        return await self._show("status")

    async def tasks(self) -> List[dict]:
        """The tasks that can be called, as `offload tasks --json` shows them."""
        return await self._show("tasks")

    async def close(self) -> None:
        """Ends the connection of this loop, for good: whatever is asked on this loop from then on is an `OffloadError`.

        Its queued jobs are cancelled; those that run go on, and nobody hears of them.
        """
        here = self._on_loop()
        here.is_closed = True
        if here.connection is not None:
            here.connection.close()
            here.connection = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _here(self) -> _OnLoop:
        """What it has on this loop. Raises `OffloadError` if it was closed here."""
        here = self._on_loop()
        if here.is_closed:
            raise OffloadError("this client is closed")
        return here

    def _on_loop(self) -> _OnLoop:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._drop_closed_loops()
            self._loops[loop] = _OnLoop(self._max_in_flight)
        return self._loops[loop]

    def _drop_closed_loops(self) -> None:
        """A connection knows its loop, so neither would ever be dropped."""
        for reference in self._loops.keyrefs():  # a copy: threads with loops of their own come and go meanwhile
            loop = reference()
            if loop is not None and loop.is_closed():
                there = self._loops.pop(loop, None)
                if there is not None and there.connection is not None:
                    there.connection.leave_to_nobody()

    def after_fork(self) -> None:
        """In a child: connections and loops are those of the parent."""
        self._loops = weakref.WeakKeyDictionary()

    async def _open(self) -> _Connection:
        here = self._here()
        connection = here.usable()
        if connection is None:
            async with here.connecting:
                connection = here.usable()
                if connection is None:
                    connection = here.connection = await self._connect()
        return connection

    async def _connect(self) -> _Connection:
        """A new connection, unless the client is closed on this loop, also meanwhile."""
        here = self._here()
        connection = await _Connection.open(await self._address(), self._name)
        if here.is_closed:
            connection.close()
            self._here()
        return connection

    async def _address(self) -> str:
        """Where the supervisor is, asked before each connection."""
        return default_socket() if self._path is None else self._path

    async def _run(self, job: JobRequest) -> _Asked:
        async with self._here().places:
            request = await self._ask(job.header, job.data)
            try:
                while not request.is_done:
                    await request.change()
            except BaseException:
                if not job.has_key:
                    await request.give_up()
                raise
            return request

    async def _ask(self, build: Callable[[int], bytes], data: bytes = b"") -> _Asked:
        """Sends a request. If the connection has ended meanwhile, as when the supervisor was started again, a new one is made."""
        try:
            return await (await self._open()).ask(build, data)
        except NotSent:
            return await (await self._open()).ask(build, data)

    async def _show(self, view: str) -> Any:
        request = await self._ask(lambda ticket: encode(messages.Show(ticket, view)))
        while not request.is_done:
            await request.change()
        request.check_answered()
        return json.loads(request.output)


async def _connected(path: str) -> socket.socket:
    """As `connect`, and leaves the loop to others while it waits."""
    loop = asyncio.get_running_loop()
    end = loop.time() + GREETING_TIMEOUT
    while True:
        try:
            return connect_now(path)
        except AcceptsNobody:
            if loop.time() > end:
                raise
        await asyncio.sleep(AGAIN)


async def _parts(connection: _Connection, request: _Asked) -> AsyncIterator[bytes]:
    """The parts as they come. While too many wait for their reader, no more are read."""
    while True:
        while request.parts:
            was_full = request.is_full
            part = request.take_part()
            if was_full and not request.is_full:
                connection.resume()
            yield part
        if request.is_done:
            return
        await request.change()
