"""Jobs as clients ask for them, and what their answers mean."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterable, NamedTuple, Optional, Union

from . import _messages as messages
from ._errors import JobError, Rejected
from ._payload import from_payload, to_payload
from ._wire import check_labels, check_media_type, check_metadata

Seconds = Union[int, float]


class JobRequest(NamedTuple):
    """A job that is to be submitted."""

    task: str
    data: bytes
    media_type: str
    options: Any

    def message(self, ticket: int) -> Any:
        return messages.Submit(ticket, self.task, self.media_type, False, self.options)


def job_request(
    task: str,
    input: Any = b"",
    *,
    timeout: Optional[Seconds] = None,
    deadline: Optional[Seconds] = None,
    priority: int = 0,
    idempotency_key: Optional[str] = None,
    attempts: Optional[int] = None,
    content_type: Optional[str] = None,
    metadata: Optional[Dict[str, str]] = None,
    labels: Iterable[str] = (),
    stream: bool = False,
) -> JobRequest:
    """Checks what was asked for. Raises `ValueError` or `TypeError`; nothing was sent then."""
    data, media_type = to_payload(input)
    if content_type is not None:
        media_type = check_media_type(content_type)
    key = None if idempotency_key is None else _key(idempotency_key, media_type, data)
    if not -10 <= priority <= 10:
        raise ValueError(f"a priority of {priority}; -10 to 10 are possible")
    if attempts is not None and not 1 <= attempts <= 100:
        raise ValueError(f"{attempts} attempts; 1 to 100 are possible")
    options = messages.SubmitOptions(
        _milliseconds("timeout", timeout),
        _milliseconds("deadline", deadline),
        attempts,
        None,
        priority,
        key,
        check_metadata(metadata or {}),
        check_labels(list(labels)),
        stream,
    )
    return JobRequest(task, data, media_type, options)


def _milliseconds(what: str, seconds: Optional[Seconds]) -> Optional[int]:
    if seconds is None:
        return None
    if not 0 < seconds < 1e12:
        raise ValueError(f"a {what} of {seconds} s; it is a positive number of seconds, or None")
    return max(1, round(seconds * 1000))


def _key(key: str, media_type: str, data: bytes) -> Any:
    """The key with a digest of the input, as the command line makes it, so that both name the same job."""
    if not 1 <= len(key.encode()) <= messages.NAME_MAX:
        raise ValueError(f"an idempotency key has 1 to {messages.NAME_MAX} bytes")
    digest = hashlib.sha256(media_type.encode() + b"\0" + data).digest()
    return messages.IdempotencyKey(key, int.from_bytes(digest[:16], "big"))


def output_of(report: Any, data: bytes) -> Any:
    """The output of a job that ended so. Raises `JobError` unless it ended well."""
    if report.outcome == "ok":
        return from_payload(data, report.media_type)
    raise error_of(report)


def error_of(report: Any) -> JobError:
    """Why a job did not end with `ok`."""
    detail = report.error or messages.ErrorDetail(report.outcome, "", None, None, None)
    return JobError(
        report.outcome,
        detail.message,
        code=detail.code,
        signal=detail.signal,
        exit_code=detail.exit_code,
        attempts=report.attempts,
        job=report.job,
    )


def rejection(message: Any) -> Rejected:
    """Why a job was not accepted."""
    after = message.retry_after_ms
    return Rejected(message.code, message.message, None if after is None else after / 1000)
