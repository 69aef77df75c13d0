"""What is said of a job whose task has failed.

`failure_of` never raises, whatever an exception does that is asked for its text. If it did, an input could end the worker.
"""

from __future__ import annotations

import operator
import os
import sys
import traceback
from typing import Any, Callable, NamedTuple, Optional

from . import _messages as messages
from ._errors import TaskError
from ._wire import cut


class Failure(NamedTuple):
    """A kind of failure with a message that can be sent."""

    kind: Any
    message: str


_NOTHING_TO_SAY = "the task has failed, and its exception cannot be put into words"


def failure(reason: str) -> Failure:
    """A failure that this package has noticed itself."""
    return Failure("app_error", cut(reason, messages.MESSAGE_MAX))


def failure_of(error: BaseException, capabilities: int) -> Failure:
    """What is said of what a task raised: no more than a supervisor with these capabilities understands."""
    own = _text_of_ones_own(error)
    kind = _asked(lambda: kind_of(error), "app_error")
    if not isinstance(kind, str):
        kind = kind if capabilities & messages.ENDS else "app_error"
    elif own is not None and capabilities & messages.REASONS:
        kind = "deliberate"
    return Failure(kind, summary_with_log(error) if own is None else own)


def _asked(question: Callable[[], Any], otherwise: Any) -> Any:
    """The answer of an exception, each apart: one that it cannot give costs no other."""
    try:
        return question()
    except BaseException:
        return otherwise


def kind_of(error: BaseException) -> Any:
    """What is said of an exception: how a program ended, if a task ran one that failed."""
    # sys.exit and an interrupt are no way for a task to fail: nobody who calls it meant to end the worker.
    if not isinstance(error, Exception):
        return "panic"
    code, signal = None, None
    if isinstance(error, TaskError):
        code, signal = _number(error.exit_code), _number(error.signal)
    elif isinstance(error, getattr(sys.modules.get("subprocess"), "CalledProcessError", ())):
        code = _number(error.returncode)
        code, signal = (None, -code) if code is not None and code < 0 else (code, None)
    # What no program ends with is not told.
    if signal in range(1, 65):
        return "signalled", signal
    return ("exited", code) if code in range(256) else "app_error"


def _number(value: Any) -> Optional[int]:
    """The value, if it is an integer. Attributes can be anything."""
    return _asked(lambda: operator.index(value), None)


def _text_of_ones_own(error: BaseException) -> Optional[str]:
    """The text that a task wrote for its callers: that of a `TaskError`, if it has one."""
    return _asked(lambda: cut(str(error), messages.MESSAGE_MAX), None) if isinstance(error, TaskError) else None


def summary_with_log(error: BaseException) -> str:
    """The message of any other exception. Its traceback goes to the log."""
    _asked(lambda: log_traceback(error), None)
    return _asked(lambda: summary_of(error), _NOTHING_TO_SAY)


def summary_of(error: BaseException) -> str:
    """An exception in one line: its type, its message, and where it came from, the innermost place first."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    places = [f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}" for frame in reversed(frames)]
    text = "".join(traceback.format_exception_only(type(error), error)).strip().replace("\n", " ")
    where = cut(f" ({', '.join(places[:8])})" if places else "", messages.MESSAGE_MAX // 2)
    return cut(text, messages.MESSAGE_MAX - len(where.encode())) + where


def log_traceback(error: BaseException) -> None:
    """Prints the traceback to standard error, which the supervisor logs with the id of the job.

    Raises whatever a task that has closed or replaced standard error brings about.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace, file=sys.stderr)


_HERE = os.path.dirname(__file__)


def _is_ours(filename: str) -> bool:
    return os.path.dirname(filename) == _HERE
