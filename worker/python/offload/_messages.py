"""All messages, by direction. `protocol/src/messages.rs` says what they mean and when they may be sent."""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple, Optional, Tuple

from ._wire import (
    BOOL,
    I8,
    I32,
    MAGIC,
    MEDIA_TYPE,
    TEXT,
    U16,
    U32,
    U64,
    U128,
    Choice,
    Direction,
    Labels,
    Listed,
    Maybe,
    Metadata,
    Record,
    Variants,
    frame,
)

WORKER_MAGIC = b"OFFLOADW"
CLIENT_MAGIC = b"OFFLOADC"
VERSION_MAJOR, VERSION_MINOR = 3, 0

# Capabilities: one bit each, used only if both ends state it.
PARTS = 1
LINGERING = 1 << 4
ENDS = 1 << 6
REASONS = 1 << 12

# Limits of the protocol that this package has to keep, in bytes.
MESSAGE_MAX = 1024
PART_MAX = 64 << 10
PARTS_CREDIT = 256 << 10
CHECKPOINT_MAX = 64 << 10
NAME_MAX = 64

OUTCOME = Choice(
    "ok", "app_error", "panic", "worker_crashed", "worker_oom", "worker_protocol", "confinement", "timeout", "cancelled",
    "poison", "indeterminate", "io_error", "io_panic", "overloaded", "quota", "too_large", "bad_request",
    "unauthenticated", "forbidden", "conflict", "unavailable", "storage_full", "unsupported", "unknown_task",
    "no_such_job",
)  # fmt: skip
LANE = Choice("cpu", "io")
FAILURE_KIND = Variants(
    app_error=None, panic=None, exited=I32, signalled=I32, timed_out=None, out_of_memory=None, deliberate=None,
)  # fmt: skip
VIEW = Choice("status", "workers", "jobs", "tasks", "dead")

Usage = Record("Usage", cpu_user_us=U64, cpu_system_us=U64, peak_rss_bytes=U64)
METADATA = Metadata()

# Supervisor to worker
Welcome = Record("Welcome", major=U16, minor=U16, capabilities=U64, payload_max=U64)
Run = Record("Run", job=U64, attempt=U32, task=TEXT, media_type=MEDIA_TYPE, timeout_ms=U64, deadline_ms=U64, metadata=METADATA)
Cancel = Record("Cancel", job=U64)
Drain = Record("Drain")
Resume = Record("Resume", job=U64)
Yield = Record("Yield", job=U64)
Credit = Record("Credit", job=U64, bytes=U64)
TO_WORKER = Direction("to_worker", Welcome, Run, Cancel, Drain, Resume, Yield, Credit)

# Worker to supervisor
TaskOffer = Record("TaskOffer", name=TEXT, idempotent=BOOL, lane=LANE, stepped=BOOL, checkpoints=BOOL, progress_ms=U32)
TaskDescription = Record(
    "TaskDescription", description=TEXT, accepts=Listed(MEDIA_TYPE), produces=MEDIA_TYPE, streams=BOOL,
    memory_bytes=U64, exclusive=BOOL,
)  # fmt: skip
WorkerHello = Record("Hello", magic=MAGIC, major=U16, minor=U16, capabilities=U64, sdk=TEXT)
Offer = Record("Offer", task=TaskOffer, about=TaskDescription, example_length=U32, schema_length=U32)
Ready = Record("Ready")
Started = Record("Started", job=U64, attempt=U32)
Finished = Record("Finished", job=U64, attempt=U32, run_ns=U64, media_type=MEDIA_TYPE, usage=Usage)
Failed = Record("Failed", job=U64, attempt=U32, run_ns=U64, kind=FAILURE_KIND, message=TEXT, usage=Usage)
Skipped = Record("Skipped", job=U64)
Progress = Record("Progress", job=U64, attempt=U32, done=U64, total=U64)
Checkpoint = Record("Checkpoint", job=U64, attempt=U32)
Yielded = Record("Yielded", job=U64, attempt=U32, run_ns=U64, usage=Usage)
Part = Record("Part", job=U64, attempt=U32)
FROM_WORKER = Direction(
    "from_worker", WorkerHello, Offer, Ready, Started, Finished, Failed, Skipped, Progress, Checkpoint, Yielded, Part,
)  # fmt: skip

# Client to supervisor
IdempotencyKey = Record("IdempotencyKey", key=TEXT, digest=U128())
SubmitOptions = Record(
    "SubmitOptions", timeout_ms=Maybe(U64), deadline_ms=Maybe(U64), attempts=Maybe(U32), lane=Maybe(LANE), priority=I8,
    idempotency=Maybe(IdempotencyKey), metadata=METADATA, labels=Labels(), stream=BOOL,
)  # fmt: skip
ClientHello = Record("Hello", magic=MAGIC, major=U16, minor=U16, capabilities=U64, client=TEXT)
Submit = Record("Submit", ticket=U64, task=TEXT, media_type=MEDIA_TYPE, detach=BOOL, options=SubmitOptions)
Wait = Record("Wait", ticket=U64, job=TEXT)
Result = Record("Result", ticket=U64, job=TEXT)
CancelJob = Record("Cancel", ticket=U64, job=TEXT)
Show = Record("Show", ticket=U64, view=VIEW)
DrainAll = Record("Drain", ticket=U64)
Stop = Record("Stop", ticket=U64)
TO_SUPERVISOR = Direction("to_supervisor", ClientHello, Submit, Wait, Result, CancelJob, Show, DrainAll, Stop)

# Supervisor to client
Receipt = Record(
    "Receipt", queued_us=U64, run_us=U64, returned_us=U64, worker_pid=U32, slot=U32, incarnation=U64, input_bytes=U64,
    output_bytes=U64, usage=Usage,
)  # fmt: skip
ErrorDetail = Record(
    "ErrorDetail", code=OUTCOME, message=TEXT, signal=Maybe(I32), exit_code=Maybe(I32), retry_after_ms=Maybe(U64),
)  # fmt: skip
Report = Record(
    "Report", job=TEXT, task=TEXT, outcome=OUTCOME, error=Maybe(ErrorDetail), attempts=U32, receipt=Receipt,
    media_type=MEDIA_TYPE, metadata=METADATA, labels=Labels(),
)  # fmt: skip
ClientWelcome = Record("Welcome", magic=MAGIC, major=U16, minor=U16, capabilities=U64, payload_max=U64)
Accepted = Record("Accepted", ticket=U64, job=TEXT)
Rejected = Record("Rejected", ticket=U64, code=OUTCOME, message=TEXT, retry_after_ms=Maybe(U64))
JobFinished = Record("Finished", ticket=U64, report=Report)
Answer = Record("Answer", ticket=U64)
Goodbye = Record("Goodbye", reason=TEXT)
JobPart = Record("Part", ticket=U64)
TO_CLIENT = Direction("to_client", ClientWelcome, Accepted, Rejected, JobFinished, Answer, Goodbye, JobPart)


# The start of nearly every header of a client's dialogue: the number of the message, and the ticket of its request.
TICKET_START = Struct("<IQ")


class Greeting(NamedTuple):
    """The start of a hello or a welcome, which is the same in every version."""

    magic: bytes
    major: int
    minor: int


def greeting_of(header: bytes) -> Optional[Greeting]:
    """Reads the start of a header that has a magic. `None` if it is no greeting of any version."""
    if len(header) < 16 or header[:4] != bytes(4):
        return None
    return Greeting(header[4:12], int.from_bytes(header[12:14], "little"), int.from_bytes(header[14:16], "little"))


# Numbers of the answers to nearly every job. Their frames are made by hand, because that is most of what a short job costs.
_STARTED, _FINISHED = FROM_WORKER.number_of(Started), FROM_WORKER.number_of(Finished)
_STARTED_FRAME, _FINISHED_START, _USAGE = Struct("<IIIQI"), Struct("<IIIQIQ"), Struct("<QQQ")


def started_frame(job: int, attempt: int) -> bytes:
    """The frame of a `Started`."""
    return _STARTED_FRAME.pack(_STARTED_FRAME.size - 8, 0, _STARTED, job, attempt)


def finished_start(start: Tuple[int, int, int], media_type: str, usage: Tuple[int, int, int], payload_length: int) -> bytes:
    """The frame of a `Finished` without its payload; `start` is job, attempt and run time."""
    written = MEDIA_TYPE.written(media_type)
    header_length = _FINISHED_START.size - 8 + len(written) + _USAGE.size
    return _FINISHED_START.pack(header_length, payload_length, _FINISHED, *start) + written + _USAGE.pack(*usage)


def failed_frame(start: Tuple[int, int, int], kind: Any, message: str, usage: Tuple[int, int, int]) -> bytes:
    """The frame of a `Failed`; `start` is job, attempt and run time."""
    return frame(FROM_WORKER.encode(Failed(*start, kind, message, usage)))


_TEXT_LENGTH = Struct("<Q")
_OUTCOME_AND_ERROR = Struct("<IB")
# Between the error of a report and its media type: attempts and receipt.
_ATTEMPTS_AND_RECEIPT = 4 + 3 * 8 + 2 * 4 + 3 * 8 + 3 * 8


def output_type(finished: bytes) -> Optional[str]:
    """The media type of the output, from the header of a `JobFinished` of a job that ended well; else `None`.

    Nearly all callers want nothing else of the report, and reading all of it takes most of the time of a short call.
    """
    at = 12
    for _ in range(2):  # ticket, then job and task
        at += 8 + _TEXT_LENGTH.unpack_from(finished, at)[0]
    outcome, has_error = _OUTCOME_AND_ERROR.unpack_from(finished, at)
    if outcome or has_error:
        return None
    at += _OUTCOME_AND_ERROR.size + _ATTEMPTS_AND_RECEIPT
    end = at + 8 + _TEXT_LENGTH.unpack_from(finished, at)[0]
    return str(finished[at + 8 : end], "ascii")
