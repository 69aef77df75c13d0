"""Jobs as clients ask for them, and what their answers mean."""

from __future__ import annotations

import functools
import hashlib
import operator
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from . import _messages as messages
from ._errors import JobError, Rejected
from ._payload import IS_BYTES, check_utf8, to_payload
from ._wire import check_labels, check_media_type, check_metadata

Seconds = Union[int, float]


_SUBMIT = messages.TO_SUPERVISOR.number_of(messages.Submit)


class JobRequest(NamedTuple):
    """A job that is to be submitted: its input, the header of its `Submit` from behind the ticket on, whether it has an idempotency
    key, and whether its output is wanted as a `Payload`."""

    data: bytes
    header_rest: bytes
    has_key: bool = False
    is_raw: bool = False

    def header(self, ticket: int) -> bytes:
        return messages.TICKET_START.pack(_SUBMIT, ticket) + self.header_rest


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
        if not isinstance(input, IS_BYTES):
            check_utf8(media_type, data)
    if stream and idempotency_key is not None:
        raise ValueError("nothing of a stream is kept, so it cannot have an idempotency key")
    priority = operator.index(priority)
    if idempotency_key is None and not metadata and not labels:
        return JobRequest(data, _plain(task, media_type, timeout, deadline, priority, attempts, stream))
    key = None if idempotency_key is None else _key(idempotency_key, media_type, data)
    attached = (key, _checked_metadata(metadata or {}), _checked_labels(labels))
    header = _header_rest(task, media_type, timeout, deadline, priority, attempts, stream, attached)
    return JobRequest(data, header, has_key=key is not None)


def call_request(task: str, input: Any, *, raw: bool = False, **options: Any) -> JobRequest:
    """As `job_request`, for a job whose output is wanted as a whole; `raw`: as a `Payload`."""
    if options.pop("stream", False):
        raise TypeError("an output in parts is what `stream` is for")
    request = job_request(task, input, **options)
    return request._replace(is_raw=True) if raw else request


def _header_rest(
    task: str,
    media_type: str,
    timeout: Optional[Seconds],
    deadline: Optional[Seconds],
    priority: int,
    attempts: Optional[int],
    stream: bool,
    attached: Tuple[Any, Dict[str, str], List[str]] = (None, {}, []),
) -> bytes:
    check_text("task", task)
    if not -10 <= priority <= 10:
        raise ValueError(f"a priority of {priority}; -10 to 10 are possible")
    if attempts is not None and not 1 <= operator.index(attempts) <= 100:
        raise ValueError(f"{attempts} attempts; 1 to 100 are possible")
    limits = (_milliseconds("timeout", timeout), _milliseconds("deadline", deadline))
    options = messages.SubmitOptions(*limits, attempts, None, priority, *attached, stream)
    submit = messages.Submit(0, task, media_type, False, options)
    return messages.TO_SUPERVISOR.encode(submit)[messages.TICKET_START.size :]


# Most jobs of a program differ in their input only.
_plain = functools.lru_cache(maxsize=256)(_header_rest)


def _milliseconds(what: str, seconds: Optional[Seconds]) -> Optional[int]:
    if seconds is None:
        return None
    if not 0 < seconds < 1e12:
        raise ValueError(f"a {what} of {seconds} s; it is a positive number of seconds, or None")
    return max(1, round(seconds * 1000))


def check_text(what: str, text: Any) -> str:
    """The text. Raises `TypeError` if it is none."""
    if not isinstance(text, str):
        raise TypeError(f"{what}: {text!r} is no text")
    return text


def _checked_metadata(metadata: Dict[str, str]) -> Dict[str, str]:
    return check_metadata({check_text("a key of metadata", k): check_text(f"metadata {k!r}", v) for k, v in dict(metadata).items()})


def _checked_labels(labels: Iterable[str]) -> List[str]:
    if isinstance(labels, str):
        raise TypeError(f"labels are a list: [{labels!r}]")
    return check_labels([check_text("a label", label) for label in labels])


def _key(key: str, media_type: str, data: bytes) -> Any:
    """The key with a digest of the input, as the command line makes it, so that both name the same job."""
    check_text("idempotency_key", key)
    if not 1 <= len(key.encode()) <= messages.NAME_MAX:
        raise ValueError(f"an idempotency key has 1 to {messages.NAME_MAX} bytes")
    digest = hashlib.sha256(media_type.encode() + b"\0" + data).digest()
    return messages.IdempotencyKey(key, int.from_bytes(digest[:16], "big"))


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
