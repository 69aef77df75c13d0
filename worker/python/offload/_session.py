"""The life of a worker: one job after another, each announced before it starts and answered when it has ended.

```text
 greet: Hello, set-up, Offer for each task, Ready
   |
   v
 wait for a job <---------------------------------.
   |  |                                           |
   |  `-- Drain and no job waits: end             |
   v                                              |
 cancelled meanwhile? --> Skipped --------------->|
   |                                              |
 Started is written --> the task runs --> Finished or Failed is queued: sent with the next Started,
                            |             or before waiting
                            `-- the listener reads: Cancel, Credit, further jobs
```
"""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import time
from typing import Any, Callable, Dict, Generator, Iterable, Optional, Tuple, Union

from . import _messages as messages
from ._channel import Channel, Given, ProtocolError, SupervisorGone, job_of
from ._context import Context, enter
from ._errors import TaskError
from ._failure import Failure, failure, failure_of
from ._meter import Meter
from ._payload import BYTES, IS_BYTES, JSON_LINES, to_json, to_payload
from ._tasks import Task
from ._version import VERSION

# A job that runs longer than this has a listener, so that it learns of Cancel. The supervisor waits 100 ms for an answer to it.
_LISTEN_AFTER = 0.02
# Without a job for so long, the listener does not look any more.
_IDLE_TICKS = 50

# How a task ended: a failure, or its output with the media type.
Outcome = Union[Failure, Tuple[bytes, str]]


class Session:
    """One worker process, from its greeting to its end."""

    def __init__(self, channel: Channel, tasks: Dict[str, Task]) -> None:
        self._channel = channel
        self._inbox = channel.inbox
        self._tasks = tasks
        self._meter = Meter()
        self._listener = Listener(channel)

    def run(self, set_ups: Iterable[Callable[[], Any]] = ()) -> None:
        """Serves the supervisor until it says Drain or is gone."""
        try:
            self._greet(set_ups)
            while True:
                given = self._next_job()
                if given is None:
                    return
                self._run_job(given)
        except SupervisorGone:
            return

    def _greet(self, set_ups: Iterable[Callable[[], Any]]) -> None:
        channel = self._channel
        version = (messages.VERSION_MAJOR, messages.VERSION_MINOR)
        capabilities = messages.PARTS | messages.LINGERING | messages.ENDS | messages.REASONS
        channel.queue(messages.WorkerHello(messages.WORKER_MAGIC, *version, capabilities, f"offload-python {VERSION}"))
        channel.flush()
        for set_up in set_ups:
            set_up()
        for task in self._tasks.values():
            channel.queue_frame(task.offer())
        channel.queue(messages.Ready())
        channel.flush()

    def _next_job(self) -> Optional[Given]:
        inbox = self._inbox
        while True:
            while inbox.given:
                given = inbox.given.popleft()
                if given.run.job not in inbox.cancelled:
                    return given
                inbox.cancelled.discard(given.run.job)
                self._channel.queue(messages.Skipped(given.run.job))
            self._channel.flush()
            if inbox.drain:
                return None
            self._channel.wait()

    def _run_job(self, given: Given) -> None:
        job, attempt = job_of(given)
        task = self._tasks.get(given.run.task)
        if task is None and not given.refusal:
            raise ProtocolError(f"a job of the task {given.run.task!r}, which was not offered")
        self._channel.queue_frame(messages.started_frame(job, attempt))
        self._channel.job_began(job, attempt)
        self._channel.flush()
        self._listener.job_began()
        began = time.perf_counter_ns()
        self._meter.start(began)
        outcome = failure(given.refusal) if task is None else self._outcome(task, given)
        run_ns = time.perf_counter_ns() - began
        self._channel.job_ended(job)
        self._answer((job, attempt, run_ns), outcome)

    def _outcome(self, task: Task, given: Given) -> Outcome:
        """How the task ended: a failure, or the output with its media type."""
        enter(Context(self._channel, given))
        try:
            value = task.run(given.input, given.run.media_type)
            is_stream = task.is_generator and inspect.isgenerator(value)  # a decorator may have collected its parts
            output, media_type = self._stream(given, value) if is_stream else to_payload(value)
        except SupervisorGone:
            raise
        except BaseException as error:
            return failure_of(error, self._inbox.capabilities)
        finally:
            enter(None)
        most = self._inbox.payload_max
        if len(output) > most:
            return failure(f"the output has {len(output)} bytes, at most {most} can be sent")
        return output, media_type

    def _stream(self, given: Given, generator: Generator[Any, None, Any]) -> Tuple[bytes, str]:
        """Sends the parts of an output. Returns the rest of it and the media type of the whole, which is that of all parts."""
        media_type: Optional[str] = None
        kept, sent = [], 0
        can_send = self._inbox.capabilities & messages.PARTS
        # Closed when it is cancelled, so that what it has to finish is done before the answer.
        with contextlib.closing(_values_of(generator)) as values:
            for value in values:
                data, kind = _part(value)
                media_type = kind if media_type in (None, kind) else BYTES
                self._check_wanted(given)
                if can_send:
                    self._send_parts(given, data, sent)
                    sent += len(data)
                else:
                    kept.append(data)
        return b"".join(kept), media_type or BYTES

    def _send_parts(self, given: Given, data: bytes, sent: int) -> None:
        """Sends data behind `sent` bytes of parts. Waits for credit, and looks out for Cancel meanwhile."""
        (job, attempt), inbox = job_of(given), self._inbox
        for start in range(0, len(data), messages.PART_MAX):
            part = data[start : start + messages.PART_MAX]
            needed = sent + start + len(part)
            if inbox.granted < needed:
                self._channel.wait_until(lambda: inbox.granted >= needed or job in inbox.cancelled)
                self._check_wanted(given)
            self._channel.send(messages.Part(job, attempt), part)

    def _check_wanted(self, given: Given) -> None:
        """Raises `TaskError` if the job is cancelled."""
        if given.run.job in self._inbox.cancelled:
            raise TaskError("cancelled")

    def _answer(self, start: Tuple[int, int, int], outcome: Outcome) -> None:
        """Queues the answer. If it cannot be written, whatever the task has made it of, that is the answer."""
        usage = self._meter.stop(start[2])
        try:
            frame, output = _written(start, outcome, usage)
        except Exception as error:
            frame, output = _written(start, failure_of(error, capabilities=0), usage)
        self._channel.queue_with(frame, output)


def _written(start: Tuple[int, int, int], outcome: Outcome, usage: Tuple[int, int, int]) -> Tuple[bytes, bytes]:
    """An answer as it is sent: the start of its frame, and the payload."""
    if isinstance(outcome, Failure):
        return messages.failed_frame(start, outcome.kind, outcome.message, usage), b""
    output, media_type = outcome
    return messages.finished_start(start, media_type, usage, len(output)), output


class Listener:
    """A thread that reads the socket while a job runs for long. It costs short jobs nothing but a look every 20 ms."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._began = threading.Event()
        self._jobs = 0
        self._thread: Optional[threading.Thread] = None

    def job_began(self) -> None:
        self._jobs += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen, name="offload listener", daemon=True)
            self._thread.start()
        if not self._began.is_set():
            self._began.set()

    def _listen(self) -> None:
        try:
            while True:
                self._began.wait()
                self._look()
        except (SupervisorGone, ProtocolError, ValueError):
            # Nobody waits for the answer of the job that runs, and nobody else would end it.
            os._exit(0)

    def _look(self) -> None:
        """Looks every 20 ms whether the same job still runs, and reads for it as long as it does."""
        idle, seen = 0, 0
        while idle < _IDLE_TICKS:
            time.sleep(_LISTEN_AFTER)
            running = self._channel.inbox.running
            idle = idle + 1 if running is None and seen == self._jobs else 0
            if running is not None and seen == self._jobs:
                self._channel.poll(_LISTEN_AFTER, running)
            seen = self._jobs
        self._began.clear()
        if seen != self._jobs:
            self._began.set()


def _values_of(generator: Generator[Any, None, Any]) -> Generator[Any, None, None]:
    """What a generator yields and, if that is a value, what it returns. Closing this closes the generator."""
    returned = yield from generator
    if returned is not None:
        yield returned


def _part(value: Any) -> Tuple[bytes, str]:
    """What a generator yielded: bytes, text, or a value that becomes a line of JSON."""
    if isinstance(value, (*IS_BYTES, str)):
        return to_payload(value)
    return to_json(value) + b"\n", JSON_LINES
