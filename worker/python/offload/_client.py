"""`Client`: jobs for a supervisor that runs already, from programs without an event loop."""

from __future__ import annotations

import functools
import json
import os
import time
from typing import Any, Callable, Generator, List, Optional

from . import _messages as messages
from ._address import GREETING_TIMEOUT, default_socket
from ._connection import Connection, WaitedRequest, ask_apart
from ._dialogue import SENT, UNSENT
from ._errors import NotSent, OffloadError
from ._forks import tell_after_fork
from ._requests import JobRequest, call_request, check_text, job_request
from ._turns import Turn, Waiter

# The supervisor closes connections that were idle for 60 s.
IDLE_MAX = 30.0
# So long somebody who gives up a job waits for its id, to cancel it.
ID_PATIENCE = 5.0
# So often a `map` that submits looks whether a job has failed.
_LOOK_EVERY = 0.01
encode = messages.TO_SUPERVISOR.encode


class Job:
    """A job that was submitted."""

    def __init__(self, client: "Client", request: WaitedRequest, is_raw: bool = False) -> None:
        self._client = client
        self._request = request
        self._is_raw = is_raw

    @property
    def id(self) -> str:
        """Its id. Waits until the job is accepted; raises `Rejected` if it is not."""
        request = self._request
        request.connection.check_process()
        if request.job is None and not request.is_done:
            request.connection.wait(request.waiters, lambda: request.state is not SENT or request.is_done)
        if request.job is None:
            request.check_answered()
        return request.job or request.report.job

    def done(self) -> bool:
        """Whether it has ended. Does not wait."""
        request = self._request
        if not request.is_done and request.connection.is_ours():
            request.connection.look_now()
        return request.is_done

    def result(self) -> Any:
        """Waits for its output. Raises `JobError`, `Rejected` or `OutputError`."""
        self._wait()
        return self._request.result(self._is_raw)

    def report(self) -> Any:
        """Waits for its end: `outcome`, `error`, `attempts`, `receipt`, `media_type`, ... as a named tuple."""
        self._wait()
        return self._request.report

    def cancel(self) -> None:
        """Asks for its end: then it ends as `cancelled`, unless it has ended before."""
        job = self.id
        self._client._ask_apart(functools.partial(cancel, job=job))

    def _wait(self) -> None:
        self._request.connection.check_process()
        self._request.connection.wait_for_end(self._request)


class Client:
    """Submits jobs to the supervisor at a local socket.

    Any thread may use it, and a forked child gets a connection of its own. It connects when it is first used, and again after
    the connection was lost.

    - `socket`: its path; by default the one that the command line uses
    - `name`: the client's name for tables and fair shares; by default the process is a client of its own
    - `max_in_flight`: `submit` and `call` wait while so many jobs of this client have not ended; nothing else does
    """

    def __init__(self, socket: Optional[str] = None, *, name: str = "", max_in_flight: int = 1000) -> None:
        check_client(name, max_in_flight)
        self._path = None if socket is None else os.fspath(socket)
        self._name = name
        self._max_in_flight = max_in_flight
        self._connection: Optional[Connection] = None
        self._connecting = Turn()
        self._is_closed = False
        tell_after_fork(self)

    def call(self, task: str, input: Any = b"", **options: Any) -> Any:
        """Runs a task on an input, and returns its output.

        `bytes` and `str` are sent as they are, anything else as JSON; the output comes back so, as its media type says. A `str` is
        sent as UTF-8. With the `content_type` of JSON it is a document: `"21"` is the number.

        - `timeout`: how many seconds one attempt may run; `deadline`: how many seconds it may take in all, waiting included
        - `priority`: -10 to 10; jobs with a higher one start sooner
        - `attempts`: how often it may be tried, 1 to 100; by default once, or as configured if the task is idempotent
        - `idempotency_key`: submitting again under the same key gives the same job
        - `content_type`: the media type of the input; `metadata`: short texts for the task; `labels`: words to find the job by
        - `raw`: the output as a `Payload`, its bytes with their media type, whatever they are

        Raises `JobError` if it does not end well, `Rejected` if it is not accepted, `NoSupervisor` if there is none, and
        `OutputError`, which has the bytes, if the output is not what its media type says. If the call is interrupted, as by Ctrl-C,
        the job is cancelled, unless it has an idempotency key.
        """
        wanted = call_request(task, input, **options)
        request = WaitedRequest()
        try:
            self.ask(wanted.header, wanted.data, request)
            request.connection.wait_for_end(request)
        except BaseException as error:
            self._leave(request, error, keep=wanted.has_key)
            raise
        return request.result(wanted.is_raw)

    def submit(self, task: str, input: Any = b"", **options: Any) -> Job:
        """Submits a job and does not wait for it. Takes what `call` takes.

        `Rejected` comes from `Job.result`, but at once if the input is larger than the supervisor takes (`too_large`).
        """
        wanted = call_request(task, input, **options)
        request = WaitedRequest()
        job = Job(self, request, wanted.is_raw)
        try:
            self._submit(request, wanted)
            return job
        except BaseException as error:
            self._leave(request, error, keep=wanted.has_key)
            raise

    def _submit(self, request: WaitedRequest, wanted: JobRequest) -> None:
        self.ask(wanted.header, wanted.data, request)
        request.connection.keep_reading()

    def map(self, task: str, inputs: Any, **options: Any) -> List[Any]:
        """The outputs for many inputs, in their order. At the first job that fails, the others are cancelled."""
        requests: List[WaitedRequest] = []
        is_raw = False
        failed: List[WaitedRequest] = []
        waiters: List[Waiter] = []

        def ended(request: WaitedRequest) -> None:
            if not request.is_ok:
                failed.append(request)
            for waiter in tuple(waiters):
                waiter.wake()

        try:
            looked = time.monotonic()
            for input in inputs:
                if requests and time.monotonic() - looked > _LOOK_EVERY:
                    requests[-1].connection.look_now()
                    looked = time.monotonic()
                if failed:
                    break
                wanted = call_request(task, input, **options)
                is_raw = wanted.is_raw
                # Noted first: whatever interrupts it from here on, it is known what was sent.
                requests.append(WaitedRequest(ended))
                self._submit(requests[-1], wanted)
            for request in requests:
                request.connection.check_process()
                request.connection.wait(waiters, lambda: bool(failed) or request.is_done)  # noqa: B023
                if failed:
                    failed[0].check()
            return [request.result(is_raw) for request in requests]
        except BaseException:
            self._give_up(*requests, keep=options.get("idempotency_key") is not None)
            raise

    def stream(self, task: str, input: Any = b"", **options: Any) -> Generator[bytes, None, None]:
        """The output of a job in parts, as its task sends them. Whoever reads slowly makes the task wait.

        8 MiB are read ahead. If they wait for their reader for 10 s, the supervisor closes the connection (`ConnectionLost`).
        A stream has a connection of its own. Closing the iterator cancels the job, and so does an interrupt while it waits for a
        part. Takes what `call` takes, but neither `raw` nor `idempotency_key`. Raises as `call` does, also after some parts.
        """
        request = job_request(task, input, stream=True, **options)
        return self._stream(request)

    def status(self) -> dict:
        """The supervisor, as `offload status --json` shows it."""
        return self._show("status")

    def tasks(self) -> List[dict]:
        """The tasks that can be called, as `offload tasks --json` shows them."""
        return self._show("tasks")

    def close(self) -> None:
        """Ends the connection, for good: whatever is asked of the client from then on is an `OffloadError`.

        Its queued jobs are cancelled; those that run go on, and nobody hears of them. Never waits for another thread.
        """
        self._is_closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, build: Callable[[int], bytes], data: bytes, request: WaitedRequest) -> WaitedRequest:
        """For code of this package: sends a request.

        If the connection has ended meanwhile, as when the supervisor was started again, it goes over a new one.
        """
        try:
            self.connection().ask(build, data, request)
        except NotSent:
            self.connection().ask(build, data, request)
        return request

    def connection(self) -> Connection:
        """The connection, a new one if need be."""
        connection = self._connection
        if connection is not None and connection.is_usable(IDLE_MAX):
            return connection
        me = Waiter()
        try:
            self._connecting.take(me)
            # It may have to wait, as for the start of a pool. Meanwhile a signal handler may go first.
            me.only_waits = True
            return self._connected()
        finally:
            self._connecting.leave(me)

    def _connected(self) -> Connection:
        """The connection, a new one if need be. It is this thread's turn to make one."""
        connection = self._connection
        if connection is not None and connection.is_usable(IDLE_MAX):
            return connection
        if connection is not None:
            connection.close()
        made = self._connect(self._max_in_flight)
        connection = self._connection
        if connection is not None and connection.is_usable(IDLE_MAX):  # a signal handler has made one meanwhile
            made.close()
            return connection
        self._connection = made
        if self._is_closed:  # meanwhile
            self.close()
            made.close()
            self._check_open()
        return made

    def _connect(self, max_in_flight: int) -> Connection:
        """A new connection, unless the client is closed."""
        self._check_open()
        return Connection(self._address(), self._name, max_in_flight)

    def _check_open(self) -> None:
        if self._is_closed:
            raise OffloadError("this client is closed")

    def _address(self) -> str:
        return default_socket() if self._path is None else self._path

    def _stream(self, job: JobRequest) -> Generator[bytes, None, None]:
        connection, request = self._connect(1), WaitedRequest()
        try:
            connection.ask(job.header, job.data, request)
            connection.keep_reading()
            while not request.is_done or request.parts:
                while request.parts:
                    yield request.take_part()
                    connection.check_process()
                connection.wait_for_part(request)
            request.check()
            if request.output:
                yield request.output
        except BaseException as error:  # perhaps because it is closed
            self._leave(request, error)
            raise
        finally:
            connection.close()

    def _ask_apart(self, build: Callable[[int], bytes]) -> bytes:
        """Sends a request that is answered with a document. It has a connection of its own, so it waits for nobody's job."""
        self._check_open()
        (request,) = ask_apart(self._address(), self._name, [build])
        request.check_answered()
        return request.output

    def _drain(self) -> None:
        self._ask_apart(lambda ticket: encode(messages.DrainAll(ticket)))
        connection = self._connection
        if connection is not None:  # all jobs have ended, and their results are on the way
            connection.wait_for_all()

    def _show(self, view: str) -> Any:
        return json.loads(self._ask_apart(lambda ticket: encode(messages.Show(ticket, view))))

    def cancel_queued(self) -> None:
        """For code of this package: cancels all jobs of the supervisor that no worker has begun."""
        waiting = [job["job"] for job in self._show("jobs") if waits(job["state"])]
        ask_apart(self._address(), self._name, [functools.partial(cancel, job=job) for job in waiting])

    def _leave(self, request: WaitedRequest, error: BaseException, keep: bool = False) -> None:
        """Gives up a request whose caller is told this error, unless that says how it has ended."""
        if not (request.is_done and isinstance(error, OffloadError)):
            self._give_up(request, keep=keep)

    def _give_up(self, *requests: WaitedRequest, keep: bool = False) -> None:
        """Cancels the jobs of requests that nobody waits for any more, unless they have a key (`keep`): others may wait for them.
        A forked child cancels none of its parent.

        Their connection may have lost step, or may never be read again. So every wait here ends, and the cancel goes elsewhere.
        """
        ours = [] if keep else [request for request in requests if request.state is not UNSENT and request.connection.is_ours()]
        end = time.monotonic() + ID_PATIENCE
        for request in ours:
            request.connection.wait(request.waiters, lambda: request.state is not SENT or request.is_done, end)
        running = [request.job for request in ours if request.job is not None and request.finished is None]
        if running:
            try:
                cancels = [functools.partial(cancel, job=job) for job in running]
                ask_apart(ours[0].connection.path, self._name, cancels, GREETING_TIMEOUT)
            except OffloadError:  # the supervisor is gone
                pass

    def after_fork(self) -> None:
        """In a child: the connection and all turns are those of the parent."""
        self._connecting = Turn()
        self._connection = None


def waits(state: str) -> bool:
    """Whether no worker has a job that is in this state in a list: `OpenState::waits` of the supervisor."""
    return state in ("queued", "paused", "held")


def cancel(ticket: int, job: str) -> bytes:
    """A request that a job ends."""
    return encode(messages.CancelJob(ticket, job))


def check_client(name: str, max_in_flight: int) -> None:
    """Raises `ValueError` or `TypeError` for what no client can have."""
    check_text("name", name)
    if len(name.encode()) > messages.NAME_MAX:
        raise ValueError(f"the name of a client has at most {messages.NAME_MAX} bytes")
    if max_in_flight < 1:
        raise ValueError("max_in_flight has to be at least 1")
