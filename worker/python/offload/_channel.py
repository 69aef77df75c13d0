"""A worker's end of the socket to its supervisor.

Two threads read it, one at a time: the main thread between jobs and while it waits for credit, and the listener while a job
runs. Whoever reads hands what comes to `Inbox`.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections import deque
from struct import Struct
from typing import Any, Callable, Deque, Dict, NamedTuple, Optional, Tuple

from . import _messages as messages
from ._linger import LINGER, Linger
from ._wire import COPIED_MAX, PAYLOAD_MAX_CEILING, Decoder, NotUnderstood, frame

_READ_MAX = 64 << 10

_RUN = messages.TO_WORKER.number_of(messages.Run)
_RUN_START = Struct("<IQI")


# The exit code of a child that a task has forked, when it goes on as if it were the worker.
_NO_WORKER = 70


class SupervisorGone(Exception):
    """The other end of the socket is closed."""


class ProtocolError(Exception):
    """The supervisor sent what no supervisor sends."""


class Given(NamedTuple):
    """A job that was given to this worker. If it is one that cannot be run, `refusal` says why, and `run` has only its numbers."""

    run: Any
    input: bytes
    checkpoint: Optional[bytes]
    refusal: str = ""


class Inbox:
    """What the supervisor has said."""

    def __init__(self) -> None:
        self.given: Deque[Given] = deque()
        self.cancelled: set = set()
        self.drain = False
        # So many bytes of parts the job that runs may send in all. Only whoever reads changes it.
        self.granted = 0
        self.capabilities = 0
        self.payload_max = PAYLOAD_MAX_CEILING
        # The job that runs now, if one does, and its attempt.
        self.running: Optional[int] = None
        self.attempt = 0
        self._checkpoints: Dict[int, bytes] = {}
        # The last Run from behind its numbers on, as bytes and read: that of the next job is usually the same.
        self._last = b""
        self._last_fields: Tuple[Any, ...] = ()

    def take(self, header: bytes, payload: bytes) -> None:
        if header[0] == _RUN and header[_RUN_START.size :] == self._last:
            _, job, attempt = _RUN_START.unpack_from(header)
            self._give(messages.Run(job, attempt, *self._last_fields), payload)
            return
        try:
            message = messages.TO_WORKER.decode(header)
        except NotUnderstood as error:  # only a Run has something that may not be understood
            self._refuse(header, str(error))
            return
        kind = type(message)
        if kind is messages.Run.type:
            self._last, self._last_fields = header[_RUN_START.size :], message[2:]
            self._give(message, payload)
        elif kind is messages.Cancel.type:
            self._cancel(message.job)
        elif kind is messages.Credit.type:
            if message.job == self.running:
                self.granted += message.bytes
        elif kind is messages.Drain.type:
            self.drain = True
        elif kind is messages.Resume.type:
            self._checkpoints[message.job] = payload
        elif kind is messages.Welcome.type:
            self._welcome(message)
        # Yield: this worker does not give a job back, as one whose job has just ended.

    def _give(self, run: Any, payload: bytes, refusal: str = "") -> None:
        checkpoint = self._checkpoints.pop(run.job, None) if self._checkpoints else None
        self.given.append(Given(run, payload, checkpoint, refusal))

    def _refuse(self, header: bytes, reason: str) -> None:
        _, job, attempt = _RUN_START.unpack_from(header)
        nothing = messages.Run(job, attempt, "", "", 0, 0, {})
        self._give(nothing, b"", f"this worker does not understand the job: {reason}")

    def _cancel(self, job: int) -> None:
        """A cancel of a job that has ended is ignored."""
        if job == self.running or any(given.run.job == job for given in self.given):
            self.cancelled.add(job)

    def _welcome(self, welcome: Any) -> None:
        if welcome.major != messages.VERSION_MAJOR:
            raise ProtocolError(
                f"the supervisor speaks protocol {welcome.major}.{welcome.minor}, this worker {messages.VERSION_MAJOR}."
                f"{messages.VERSION_MINOR}: use the Python package and the `offload` of the same version"
            )
        self.capabilities = welcome.capabilities
        self.payload_max = welcome.payload_max


class Channel:
    """The socket with what is read from it and what is not sent yet. It belongs to the process that made it."""

    def __init__(self, end: socket.socket) -> None:
        self._process = os.getpid()
        self.inbox = Inbox()
        self._socket = end
        self._decoder = Decoder()
        self._readiness = select.poll()
        self._readiness.register(end, select.POLLIN)
        self._reading = threading.Lock()
        # A signal handler of a task may say something of the job while its own thread writes. What it says is written then.
        self._writing = threading.RLock()
        self._is_writing = False
        self._said_meanwhile: Deque[Tuple[Tuple[Any, ...], Optional[Tuple[int, int]]]] = deque()
        self._unsent = bytearray()
        self._linger = Linger()

    def is_ours(self) -> bool:
        """Whether this is the worker, and no child that a task has forked."""
        return os.getpid() == self._process

    def leave_to_parent(self) -> None:
        """Ends a forked child: its parent would miss what it reads, and be blamed for what it sends. Its locks may stay held."""
        if not self.is_ours():
            os._exit(_NO_WORKER)

    def queue(self, message: Any) -> None:
        """Sends a message with whatever is sent next."""
        self._unsent += frame(messages.FROM_WORKER.encode(message))

    def queue_frame(self, data: bytes) -> None:
        """Sends the bytes of a frame with whatever is sent next."""
        self._unsent += data

    def queue_with(self, start: bytes, payload: bytes) -> None:
        """As `queue_frame`, with the payload apart. A long one is sent at once, because it is not copied."""
        self._unsent += start
        if len(payload) < COPIED_MAX:
            self._unsent += payload
            return
        self.flush(payload)

    def flush(self, payload: bytes = b"") -> None:
        """Sends what is queued, with the payload of the last frame of it if that is apart. Raises `SupervisorGone`."""
        if self._unsent:
            unsent, self._unsent = self._unsent, bytearray()
            self._send_all((unsent, payload) if payload else (unsent,))

    def send(self, message: Any, payload: bytes = b"") -> None:
        """Sends a message at once, while a job runs: nothing is queued then."""
        self._send_all((frame(messages.FROM_WORKER.encode(message), payload),))

    def send_of_job(self, message: Any, payload: bytes = b"") -> None:
        """Sends a message about an attempt of a job at once, unless that has ended. Any thread may call it, at any time."""
        self._send_all((frame(messages.FROM_WORKER.encode(message), payload),), (message.job, message.attempt))

    def _send_all(self, pieces: Tuple[Any, ...], attempt: Optional[Tuple[int, int]] = None) -> None:
        """Sends the pieces, and nothing of another thread between them; only while this attempt of a job runs, if it is of one."""
        self.leave_to_parent()
        said = self._said_meanwhile
        said.append((pieces, attempt))
        with self._writing:
            while said and not self._is_writing:
                self._is_writing = True
                try:
                    self._write(*said.popleft())
                finally:
                    self._is_writing = False

    def _write(self, pieces: Tuple[Any, ...], attempt: Optional[Tuple[int, int]]) -> None:
        if attempt is not None and attempt != (self.inbox.running, self.inbox.attempt):
            return
        try:
            for piece in pieces:
                self._socket.sendall(piece)
        except OSError as error:
            raise SupervisorGone() from error

    def job_began(self, job: int, attempt: int) -> None:
        """From now on the listener may read."""
        self.inbox.granted = messages.PARTS_CREDIT
        self.inbox.attempt = attempt
        self.inbox.running = job

    def job_ended(self, job: int) -> None:
        """When this returns, the listener does not read any more, and no thread sends anything of this job."""
        self.leave_to_parent()
        with self._reading, self._writing:
            self.inbox.running = None
            self.inbox.cancelled.discard(job)

    def wait(self) -> None:
        """Reads once, when there is something to read. Raises `SupervisorGone`."""
        linger = self._linger
        may_look = self.inbox.capabilities & messages.LINGERING and linger.begins()
        with self._reading:
            if not (may_look and self._look()):
                self._read(0)
        linger.came(len(self.inbox.given))

    def _look(self) -> bool:
        """Reads without going to sleep, for a short while. Whether something came."""
        end = time.perf_counter() + LINGER
        while not self._read(socket.MSG_DONTWAIT):
            if time.perf_counter() >= end:
                self._linger.looked(False)
                return False
        self._linger.looked(True)
        return True

    def wait_until(self, is_there: Callable[[], bool]) -> None:
        """Reads until `is_there()`. It is asked while the listener does not read, so nothing that it reads is missed."""
        self.leave_to_parent()
        with self._reading:
            while not is_there():
                self._read(0)

    def poll(self, seconds: float, job: int) -> None:
        """Waits for at most `seconds`, and reads if there is something and this job still runs."""
        if self._readiness.poll(seconds * 1000):
            with self._reading:
                if self.inbox.running == job:
                    self._read(socket.MSG_DONTWAIT)

    def _read(self, flags: int) -> bool:
        """Reads once. Whether there was something."""
        try:
            data = self._socket.recv(_READ_MAX, flags)
        except BlockingIOError:
            return False
        except OSError as error:
            raise SupervisorGone() from error
        if not data:
            raise SupervisorGone()
        for header, payload in self._decoder.feed(data):
            self.inbox.take(header, payload)
        return True


def job_of(given: Given) -> Tuple[int, int]:
    """The numbers of a job and of its attempt."""
    return given.run.job, given.run.attempt
