"""A client's side of the protocol, without I/O: bytes come in, and requests change.

```text
 Hello ---> Welcome ---> requests, each with a ticket: Submit -> Accepted -> Part ... -> Finished
                                                             `-> Rejected
            or Goodbye, which says why not                Show, Drain, ... -> Answer or Rejected
```
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Dict, Optional

from . import _messages as messages
from ._errors import ConnectionLost, NoSupervisor, OffloadError, Rejected
from ._requests import rejection
from ._wire import Decoder, WireError, frame_start


class Request:
    """One request, and what was answered so far. `changed` is called after each answer."""

    __slots__ = ("job", "report", "output", "parts", "error", "is_done", "changed")

    def __init__(self, changed: Callable[[], None]) -> None:
        self.job: Optional[str] = None
        self.report: Any = None
        self.output = b""
        self.parts: Deque[bytes] = deque()
        self.error: Optional[OffloadError] = None
        self.is_done = False
        self.changed = changed

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
        self._where = where
        self._decoder = Decoder()
        self._goodbye: Optional[str] = None
        self._tickets = 0

    @staticmethod
    def hello(name: str) -> bytes:
        """The first bytes to send."""
        version = (messages.VERSION_MAJOR, messages.VERSION_MINOR)
        hello = messages.ClientHello(messages.CLIENT_MAGIC, *version, messages.PARTS, name)
        header = messages.TO_SUPERVISOR.encode(hello)
        return frame_start(header, 0)

    def ask(self, build: Callable[[int], Any], request: Request, length: int = 0) -> bytes:
        """Notes a request, whose message `build` makes from a new ticket. The bytes to send before its payload.

        Raises `Rejected` for a payload over the supervisor's limit. Nothing is to be sent then.
        """
        if length > self.payload_max:
            raise Rejected("too_large", f"an input of {length} bytes, the supervisor takes {self.payload_max} (its max_payload)")
        self._tickets += 1
        ticket = self._tickets
        header = messages.TO_SUPERVISOR.encode(build(ticket))
        self.requests[ticket] = request
        return frame_start(header, length)

    def receive(self, data: bytes) -> None:
        """Takes what has arrived. Raises `NoSupervisor` or `WireError` if this connection is of no use."""
        for header, payload in self._decoder.feed(data):
            if self.is_open:
                self._take(messages.TO_CLIENT.decode(header), payload)
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

    def _take(self, message: Any, payload: bytes) -> None:
        kind = type(message)
        if kind is messages.Goodbye.type:
            self._goodbye = message.reason
            return
        request = self.requests.get(message.ticket)
        if request is None:
            return
        if kind is messages.Accepted.type:
            request.job = message.job
            request.changed()
        elif kind is messages.JobPart.type:
            request.parts.append(payload)
            request.changed()
        else:
            del self.requests[message.ticket]
            self._end(request, message, payload)

    def _end(self, request: Request, message: Any, payload: bytes) -> None:
        kind = type(message)
        if kind is messages.JobFinished.type:
            request.report = message.report
            request.output = payload
            request.ended()
        elif kind is messages.Answer.type:
            request.output = payload
            request.ended()
        else:
            request.ended(rejection(message))

    def lost(self, reason: str) -> ConnectionLost:
        """Ends all requests, because the connection has ended. Returns the error that they end with."""
        why = f"the supervisor at {self._where} closed the connection: {self._goodbye}" if self._goodbye else reason
        message = f"{why}; nobody knows whether the job was done"
        requests, self.requests = self.requests, {}
        for request in requests.values():
            request.ended(ConnectionLost("indeterminate", message, job=request.job or ""))
        return ConnectionLost("indeterminate", message)
