"""What a task can say and ask while it runs: its progress, its checkpoints, whether it is cancelled, which job it is."""

from __future__ import annotations

import json
import logging
import operator
import threading
import time
from typing import Any, Dict, Optional, Tuple

from . import _messages as messages
from ._channel import Channel, Given
from ._payload import to_json

# More reports of progress than this one are not sent; the last one always is.
_PROGRESS_EVERY = 0.01

# The job that this process runs. A worker runs one at a time; the threads of a task may ask, too.
_current: Optional["Context"] = None
# And the numbers of the attempt for which a thread speaks: the one that ran when it first did. It may outlive that.
_of_thread = threading.local()
_LOG = logging.getLogger("offload")


class Context:
    """One attempt of one job."""

    def __init__(self, channel: Channel, given: Given) -> None:
        self._channel = channel
        # Not its input, which is large, and which the threads of a task would keep.
        self._run, self._checkpoint = given.run, given.checkpoint
        self._told = 0.0
        self._began = time.monotonic()

    @property
    def id(self) -> int:
        """The number of the job within its supervisor."""
        return self._run.job

    @property
    def attempt(self) -> int:
        """The number of this attempt, counted from 1."""
        return self._run.attempt

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._run.task

    @property
    def media_type(self) -> str:
        """What the input is."""
        return self._run.media_type

    @property
    def metadata(self) -> Dict[str, str]:
        """What the client attached to the job."""
        return dict(self._run.metadata)

    @property
    def remaining(self) -> Optional[float]:
        """The seconds that are left until the worker is killed or nobody wants the answer; `None` without a limit."""
        limits = [limit for limit in (self._run.timeout_ms, self._run.deadline_ms) if limit]
        return max(0.0, self._began + min(limits) / 1000 - time.monotonic()) if limits else None

    @property
    def numbers(self) -> Tuple[int, int]:
        """Those of the job and of the attempt."""
        return self._run.job, self._run.attempt

    def cancelled(self) -> bool:
        inbox = self._channel.inbox
        return self.id in inbox.cancelled or self.numbers != (inbox.running, inbox.attempt)

    def progress(self, done: float, total: float) -> None:
        units = _units(done, total)
        if units is None:
            return
        now = time.monotonic()
        if now - self._told < _PROGRESS_EVERY and done != total:
            return
        self._told = now
        self._send(messages.Progress(self.id, self.attempt, *units))

    def checkpoint(self, state: Any) -> None:
        data = to_json(state)
        if len(data) > messages.CHECKPOINT_MAX:
            raise ValueError(f"a checkpoint of {len(data)} bytes, at most {messages.CHECKPOINT_MAX} are allowed")
        self._send(messages.Checkpoint(self.id, self.attempt), data)

    def _send(self, message: Any, payload: bytes = b"") -> None:
        # The bytes of a child that the task has forked would come between those of the worker. A thread that the task has left
        # behind may say something, too, and the channel sends nothing of a job that has ended.
        if self._channel.is_ours():
            self._channel.send_of_job(message, payload)

    def resumed(self, default: Any) -> Any:
        state = self._checkpoint
        return default if state is None else json.loads(state)


def _units(done: Any, total: Any) -> Optional[Tuple[int, int]]:
    """Progress in whole units: integers as they are, other numbers in thousandths. `None` if it cannot be told."""
    try:
        units = operator.index(done), operator.index(total)
    except TypeError:
        units = _thousandths(done), _thousandths(total)
    return units if min(units) >= 0 and max(units) < 1 << 64 else None


def _thousandths(number: Any) -> int:
    """-1 if it is not finite. Raises `TypeError` for what is no number."""
    if not hasattr(number, "__float__") and not hasattr(number, "__index__"):  # `float` reads texts, too
        raise TypeError(f"a progress of {number!r}, which is no number")
    try:
        return round(1000 * float(number))
    except (ValueError, OverflowError):  # not a number, infinite, or too large
        return -1


def enter(context: Optional[Context]) -> None:
    """From now on, this is the job that runs."""
    global _current
    _current = context
    _of_thread.numbers = None if context is None else context.numbers


def _speaking() -> Optional[Context]:
    """The job for which this thread speaks, as long as it runs."""
    context, numbers = _current, _numbers_of_thread()
    if numbers is None and context is not None:
        numbers = _of_thread.numbers = context.numbers
    if numbers is None or (context is not None and context.numbers == numbers):
        return context
    return _ended(numbers)


def _numbers_of_thread() -> Optional[Tuple[int, int]]:
    return getattr(_of_thread, "numbers", None)


def _ended(numbers: Tuple[int, int]) -> None:
    """Says once that a thread has outlived the job for which it speaks."""
    if getattr(_of_thread, "is_told", None) != numbers:
        _of_thread.is_told = numbers
        _LOG.warning(
            "a thread that speaks for the job %s goes on after its end, and is not heard; in a pool of threads, hand them `job()`, "
            "and call `progress`, `checkpoint` and `cancelled` of that",
            numbers[0],
        )


def job() -> Context:
    """The job that runs: its `id`, `attempt`, `task`, `media_type`, `metadata`, and the seconds that are `remaining`.

    Raises `RuntimeError` outside of a job, and in a thread whose job has ended.
    """
    context = _speaking()
    if context is None:
        numbers = _numbers_of_thread()
        if numbers is not None:
            raise RuntimeError(f"the job {numbers[0]}, for which this thread speaks, has ended")
        raise RuntimeError("no job runs here: this is for tasks, while a worker runs them")
    return context


def progress(done: float, total: float = 0) -> None:
    """Says how far the job is, in units of work; `total` 0 means unknown. Does nothing outside of a job, nor in a forked child.

    At most 100 reports a second are sent, and the last one (`done == total`). Numbers that are no integers are told in thousandths.
    What is less than 0, not finite or too large is not told. Raises `TypeError` for what is no number.

    Another thread of a task speaks for the job during which it first did. When that has ended it says nothing, of which the log
    tells once. One that serves many jobs, as in a pool of threads, is given `job()` by the task, and calls `progress` and
    `checkpoint` of that.
    """
    context = _speaking()
    if context is not None:
        context.progress(done, total)


def cancelled() -> bool:
    """Whether nobody wants the answer any more. A task that then returns within 100 ms keeps its worker alive.

    It is asked of the supervisor by another thread: native code that holds the interpreter's lock hears nothing. Nobody wants the
    answer of a job that has ended: another thread of a task is told so, for the job during which it first asked or spoke.
    """
    context = _speaking()
    return _numbers_of_thread() is not None if context is None else context.cancelled()


def checkpoint(state: Any) -> None:
    """Saves a state from which another attempt can go on: anything that JSON can express, at most 64 KiB of it.

    For tasks with `checkpoints=True`. Does nothing outside of a job, nor in a forked child. Another thread speaks as with
    `progress`. Raises `ValueError` or `TypeError`.
    """
    context = _speaking()
    if context is not None:
        context.checkpoint(state)


def resumed(default: Any = None) -> Any:
    """The last state that an earlier attempt of this job saved, or `default`."""
    context = _speaking()
    return default if context is None else context.resumed(default)


class JobFilter(logging.Filter):
    """Gives each log record the fields `job` and `attempt`: `-` outside of a job."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = _current
        record.job = "-" if context is None else context.id
        record.attempt = "-" if context is None else context.attempt
        return True
