"""A client's side of the protocol, without I/O: bytes come in, and requests change.

```text
 Hello ---> Welcome ---> requests, each with a ticket: Submit -> Accepted -> Part ... -> Finished
                                                             `-> Rejected
            or Goodbye, which says why not                Show, Drain, ... -> Answer or Rejected
```
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional

from . import _messages as messages
from ._errors import ConnectionLost, NoSupervisor, NotSent, OffloadError, OutputError, Rejected
from ._payload import Payload, from_payload
from ._requests import error_of, rejection
from ._wire import HEADER_MAX, Decoder, WireError, frame_start

# So many bytes of a stream wait for their reader before no more are read, each part counted with what Python adds to it.
AHEAD_MAX = 8 << 20
_OF_A_PART = 64
# A supervisor ends a connection whose answers are not taken for so many seconds.
_STALL_TIMEOUT = 10.0

_ACCEPTED, _FINISHED, _PART, _GOODBYE = map(
    messages.TO_CLIENT.number_of, (messages.Accepted, messages.JobFinished, messages.JobPart, messages.Goodbye)
)


# How far a request got. What is not sent has had no effect; of what is sent and not accepted nobody knows; a job that is accepted
# has an id.
UNSENT, SENT, ACCEPTED = "unsent", "sent", "accepted"


class Request:
    """One request, and what was answered so far. Headers are read when somebody asks for what is in them.

    Nothing that it has refers back to it, so that an output that the program has dropped is freed at once.
    """

    __slots__ = ("state", "accepted", "finished", "output", "parts", "error", "is_done", "_came", "_taken")

    def __init__(self) -> None:
        # Whoever sends it says `SENT` before the first byte leaves.
        self.state = UNSENT
        self.accepted: Optional[bytes] = None
        self.finished: Optional[bytes] = None
        self.output = b""
        self.parts: Deque[bytes] = deque()
        self.error: Optional[OffloadError] = None
        self.is_done = False
        # How much of a stream has come, as whoever reads the connection counts it, and how much of that its reader has taken.
        self._came = self._taken = 0

    def changed(self) -> None:
        """Called after each answer."""

    def part_came(self, part: bytes) -> None:
        self.parts.append(part)
        self._came += len(part) + _OF_A_PART

    def take_part(self) -> bytes:
        """The next part of a stream. There has to be one."""
        part = self.parts.popleft()
        self._taken += len(part) + _OF_A_PART
        return part

    @property
    def is_full(self) -> bool:
        """Whether so many parts wait for their reader that no more may be read."""
        return self._came - self._taken >= AHEAD_MAX

    @property
    def job(self) -> Optional[str]:
        """The id of the job, if it is accepted."""
        return None if self.accepted is None else messages.TO_CLIENT.decode(self.accepted).job

    @property
    def report(self) -> Any:
        """How the job ended, if it has."""
        return None if self.finished is None else messages.TO_CLIENT.decode(self.finished).report

    def result(self, is_raw: bool = False) -> Any:
        """The output of a job that has ended, as a `Payload` if `is_raw`. Raises `JobError` or `Rejected` unless it ended well."""
        media_type = self.check()
        if is_raw:
            return Payload(self.output, media_type)
        try:
            return from_payload(self.output, media_type)
        except ValueError as error:
            raise OutputError(str(error), self.output, media_type) from error.__cause__

    def check(self) -> str:
        """The media type of its output. Raises `JobError` or `Rejected` unless it ended well."""
        self.check_answered()
        assert self.finished is not None
        media_type = messages.output_type(self.finished)
        if media_type is None:
            raise error_of(self.report)
        return media_type

    def check_answered(self) -> None:
        """Raises what it was answered with, if that is an error.

        A copy: the traceback of what is raised refers to whoever has asked, and so to this request.
        """
        if self.error is not None:
            raise copy.copy(self.error)

    @property
    def is_ok(self) -> bool:
        """Whether a job has ended well."""
        return self.finished is not None and messages.output_type(self.finished) is not None

    def ended(self, error: Optional[OffloadError] = None) -> None:
        self.error = error
        self.is_done = True
        self.changed()


class Dialogue:
    """What is known of one connection. Nothing may be asked before `is_open`."""

    def __init__(self, where: str) -> None:
        self.is_open = False
        self.payload_max = 0
        self.requests: Dict[int, Request] = {}
        # The request whose end has come and is being noted. It is not among the others any more.
        self._ending: Optional[Request] = None
        self._where = where
        self._decoder = Decoder()
        self._goodbye: Optional[str] = None
        self._tickets = 0
        # Since when nothing is read because a stream is full, and how long that was at most.
        self._held_since: Optional[float] = None
        self._held = 0.0

    @staticmethod
    def hello(name: str) -> bytes:
        """The first bytes to send."""
        version = (messages.VERSION_MAJOR, messages.VERSION_MINOR)
        hello = messages.ClientHello(messages.CLIENT_MAGIC, *version, messages.PARTS, name)
        header = messages.TO_SUPERVISOR.encode(hello)
        return frame_start(header, 0)

    def ask(self, build: Callable[[int], bytes], request: Request, length: int = 0) -> bytes:
        """Notes a request, whose header `build` makes from a new ticket. The bytes to send before its payload.

        Raises `Rejected` for a payload over the supervisor's limit, and `ValueError` for a header over that of the protocol, with
        which the supervisor would end the connection. Nothing is to be sent then.
        """
        if length > self.payload_max:
            raise Rejected("too_large", f"an input of {length} bytes, the supervisor takes {self.payload_max} (its max_payload)")
        self._tickets += 1
        ticket = self._tickets
        header = build(ticket)
        if len(header) > HEADER_MAX:
            raise ValueError(f"the name of the task with its options takes {len(header)} bytes, at most {HEADER_MAX} can be sent")
        self.requests[ticket] = request
        return frame_start(header, length)

    def note_held(self, now: float) -> bool:
        """Whether nothing may be read because a stream is full. Notes how long that is so."""
        is_held = any(request.is_full for request in list(self.requests.values()))
        since = self._held_since
        if since is not None:
            self._held = max(self._held, now - since)
        self._held_since = (now if since is None else since) if is_held else None
        return is_held

    def withdraw(self, request: Request) -> bool:
        """Forgets a request. Whether it was there: then nobody else has ended it, and nobody will."""
        return any(asked is request and self._take_out(ticket) for ticket, asked in list(self.requests.items()))

    def _take_out(self, ticket: int) -> bool:
        """One step of the interpreter: of several threads that ask, one is told so, and that one says how the request ends."""
        return self.requests.pop(ticket, None) is not None

    def receive(self, data: bytes) -> None:
        """Takes what has arrived. Raises `NoSupervisor` or `WireError` if this connection is of no use."""
        for header, payload in self._decoder.feed(data):
            if self.is_open:
                self._take(header, payload)
            else:
                self._greeting(header, payload)

    def _greeting(self, header: bytes, payload: bytes) -> None:
        greeting = messages.greeting_of(header)
        if greeting is not None and greeting.magic == messages.CLIENT_MAGIC and greeting.major != messages.VERSION_MAJOR:
            raise NoSupervisor(
                f"the supervisor at {self._where} speaks protocol {greeting.major}.{greeting.minor}, this package "
                f"{messages.VERSION_MAJOR}.{messages.VERSION_MINOR}: use the package and the `offload` of the same version"
            )
        message = messages.TO_CLIENT.decode(header)
        if isinstance(message, messages.Goodbye.type):
            raise NoSupervisor(f"the supervisor at {self._where} refused: {message.reason}")
        if not isinstance(message, messages.ClientWelcome.type) or message.magic != messages.CLIENT_MAGIC:
            raise WireError("malformed", "the first message is not a welcome")
        self.payload_max = message.payload_max
        self.is_open = True

    def _take(self, header: bytes, payload: bytes) -> None:
        """All messages but Goodbye begin with the ticket of their request."""
        if len(header) < messages.TICKET_START.size or header[0] == _GOODBYE:
            self._goodbye = messages.TO_CLIENT.decode(header).reason
            return
        number, ticket = messages.TICKET_START.unpack_from(header)
        request = self.requests.get(ticket)
        if request is None:
            return
        if number == _ACCEPTED:
            request.accepted = header
            request.state = ACCEPTED
            request.changed()
        elif number == _PART:
            request.part_came(payload)
            request.changed()
        else:
            self._ending = request
            if self._take_out(ticket):
                self._end(request, number, header, payload)
            self._ending = None

    def _end(self, request: Request, number: int, header: bytes, payload: bytes) -> None:
        if number == _FINISHED:
            request.finished = header
            request.output = payload
            request.ended()
            return
        message = messages.TO_CLIENT.decode(header)
        if isinstance(message, messages.Rejected.type):
            request.ended(rejection(message))
        else:
            request.output = payload
            request.ended()

    def lost(self, reason: str, is_in_hand: Callable[[Request], bool] = lambda request: False) -> None:
        """Ends all requests, because the connection has ended. One that is in hand is left to whoever is sending it."""
        for ticket, request in list(self.requests.items()):
            # In this order: whoever sends a request takes it in hand before noting it here, and may withdraw it at any moment.
            if not is_in_hand(request) and self._take_out(ticket):
                request.ended(self.loss_of(request, reason))

    def end_interrupted(self, reason: str) -> None:
        """Ends the request whose end could not be noted, because of an exception. To be called when the connection has ended, by whoever
        has the turn to read."""
        request = self._ending
        if request is not None and not request.is_done:
            request.ended(self.loss_of(request, reason))

    def loss_of(self, request: Request, reason: str) -> OffloadError:
        """What the end of the connection means for a request: of one that was not sent it is known that it had no effect."""
        if self._goodbye:
            reason = f"the supervisor at {self._where} closed the connection: {self._goodbye}"
        elif self._held >= _STALL_TIMEOUT:
            reason = (
                f"the supervisor at {self._where} closed the connection: for {self._held:.0f} s nobody took the parts of this "
                f"stream, of which {AHEAD_MAX >> 20} MiB wait here, and the supervisor waits for {_STALL_TIMEOUT:.0f} s"
            )
        if request.state is UNSENT:
            return NotSent(reason)
        return ConnectionLost("indeterminate", f"{reason}; nobody knows whether the job was done", job=request.job or "")
