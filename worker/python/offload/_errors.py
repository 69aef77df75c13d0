"""The errors of this package. All of them are `OffloadError`."""

from __future__ import annotations

import operator
from typing import Optional


class OffloadError(Exception):
    """Anything that this package raises on its own account."""


class NoSupervisor(OffloadError, ConnectionError):
    """No supervisor can be reached: none listens at the socket, or it does not answer or take this client."""


class NotSent(NoSupervisor):
    """The connection has ended before the first byte of a request. Within this package: another connection may be tried."""


class Rejected(OffloadError):
    """The supervisor did not accept the job. It had no effect.

    `code` is a word such as `overloaded` or `unknown_task`; `retry_after` says after how many seconds it may be worth trying
    again, and is `None` if the supervisor did not say.
    """

    def __init__(self, code: str, message: str, retry_after: Optional[float] = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_after = retry_after

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return type(self), (self.code, self.message, self.retry_after)


class JobError(OffloadError):
    """An accepted job has ended, and not with `ok`.

    - `outcome`: how it ended, a word such as `app_error`, `timeout`, `worker_crashed`, `cancelled`, `poison`
    - `code`: the cause; the same word, but for a `poison` job what ended its last attempt
    - `message`: the reason, for people
    - `signal`, `exit_code`: how its worker process ended, or `None`
    - `attempts`: how many attempts were started
    - `job`: its id
    """

    def __init__(
        self,
        outcome: str,
        message: str,
        *,
        code: Optional[str] = None,
        signal: Optional[int] = None,
        exit_code: Optional[int] = None,
        attempts: int = 0,
        job: str = "",
    ) -> None:
        super().__init__(f"{outcome}: {message}")
        self.outcome = outcome
        self.code = code or outcome
        self.message = message
        self.signal = signal
        self.exit_code = exit_code
        self.attempts = attempts
        self.job = job

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return type(self)._restored, (self.outcome, self.message, self.__dict__)

    @classmethod
    def _restored(cls, outcome: str, message: str, state: dict) -> "JobError":
        error = cls(outcome, message)
        error.__dict__.update(state)
        return error


class ConnectionLost(JobError, ConnectionError):
    """The supervisor is gone, or has closed the connection, before the job ended.

    Nobody knows whether the job was done, so its `outcome` is `indeterminate`.
    """

    def __init__(self, outcome: str, message: str, **details: object) -> None:
        super().__init__(outcome, message, **details)  # type: ignore[arg-type]


class OutputError(OffloadError, ValueError):
    """The job has ended well, and its output is not what its media type says, such as text that is no UTF-8.

    `data` has the bytes, `content_type` their media type. Asked for with `raw=True`, an output is never read.
    """

    def __init__(self, reason: str, data: bytes, content_type: str) -> None:
        super().__init__(f"the output, {content_type}, is {reason}")
        self.reason = reason
        self.data = data
        self.content_type = content_type

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return type(self), (self.reason, self.data, self.content_type)


class TaskError(OffloadError):
    """For tasks to raise: the job ends as `app_error` with exactly this message, and no traceback is logged.

    The message is for whoever called the task, so everybody is told it. What other exceptions say is told only to callers that
    may use the supervisor's socket or have shown a token.

    If a program that the task ran has failed, `exit_code` (0 to 255) or `signal` says how; whoever submitted the job reads it
    there.
    """

    # For subclasses that do not call `__init__`.
    exit_code: Optional[int] = None
    signal: Optional[int] = None

    def __init__(self, *message: object, exit_code: Optional[int] = None, signal: Optional[int] = None) -> None:
        super().__init__(*message)
        if exit_code is not None and not 0 <= operator.index(exit_code) <= 255:
            raise ValueError(f"an exit code of {exit_code}; 0 to 255 are possible")
        if signal is not None and not 1 <= operator.index(signal) <= 64:
            raise ValueError(f"signal {signal}; 1 to 64 are possible")
        self.exit_code = exit_code
        self.signal = signal
