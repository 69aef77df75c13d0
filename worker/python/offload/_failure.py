"""What is said of a job whose task has failed.

Nothing here raises, whatever an exception does that is asked for its text: else whoever can send an input could end the worker.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, NamedTuple

from . import _messages as messages
from ._errors import TaskError
from ._wire import cut


class Failure(NamedTuple):
    """A kind of failure with a message that can be sent."""

    kind: Any
    message: str


_NOTHING_TO_SAY = Failure("app_error", "the task has failed, and its exception cannot be put into words")


def failure(reason: str) -> Failure:
    """A failure that this package has noticed itself."""
    return Failure("app_error", cut(reason, messages.MESSAGE_MAX))


def failure_of(error: BaseException, says_ends: bool) -> Failure:
    """What is said of what a task raised. Only a supervisor that understands it is told how a program ended (`says_ends`)."""
    try:
        kind = kind_of(error)
        return Failure(kind if says_ends or isinstance(kind, str) else "app_error", message_of(error))
    except BaseException:
        return _NOTHING_TO_SAY


def kind_of(error: BaseException) -> Any:
    """What is said of an exception: how a program ended, if a task ran one that failed."""
    # sys.exit and an interrupt are no way for a task to fail: nobody who calls it meant to end the worker.
    if not isinstance(error, Exception):
        return "panic"
    code, signal = None, None
    if isinstance(error, TaskError):
        code, signal = error.exit_code, error.signal
    elif isinstance(error, getattr(sys.modules.get("subprocess"), "CalledProcessError", ())):
        code = error.returncode
        code, signal = (None, -code) if code < 0 else (code, None)
    # Attributes can be anything. What no program ends with is not told.
    if signal in range(1, 65):
        return "signalled", signal
    return ("exited", code) if code in range(256) else "app_error"


def message_of(error: BaseException) -> str:
    """The message. The traceback of what is no `TaskError` goes to the log."""
    if isinstance(error, TaskError):
        try:
            return cut(str(error), messages.MESSAGE_MAX)
        except Exception:  # its own way to become a text fails
            pass
    log_traceback(error)
    return summary_of(error)


def summary_of(error: BaseException) -> str:
    """An exception in one line: its type, its message, and where it came from, the innermost place first."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    places = [f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}" for frame in reversed(frames)]
    text = "".join(traceback.format_exception_only(type(error), error)).strip().replace("\n", " ")
    where = cut(f" ({', '.join(places[:8])})" if places else "", messages.MESSAGE_MAX // 2)
    return cut(text, messages.MESSAGE_MAX - len(where.encode())) + where


def log_traceback(error: BaseException) -> None:
    """Prints the traceback to standard error, which the supervisor logs with the id of the job."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace, file=sys.stderr)
    except Exception:  # the task has replaced standard error, or closed it
        pass


_HERE = os.path.dirname(__file__)


def _is_ours(filename: str) -> bool:
    return os.path.dirname(filename) == _HERE
