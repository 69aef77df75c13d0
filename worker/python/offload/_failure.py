"""What is said of a job whose task has failed.

`failure_of` never raises, whatever an exception does that is asked for its text. If it did, an input could end the worker.
"""

from __future__ import annotations

import collections
import operator
import os
import sys
import time
from types import TracebackType
from typing import Any, Callable, NamedTuple, Optional

from . import _messages as messages
from ._errors import TaskError
from ._trace import TRACE_MAX, described, places, trace_of
from ._wire import cut


class Failure(NamedTuple):
    """A kind of failure with a message that can be sent."""

    kind: Any
    message: str


_NOTHING_TO_SAY = "the task has failed, and its exception cannot be put into words"
# So many places of a stack are in a message.
_PLACES_MAX = 8
# The supervisor reads 256 KiB and shows 100 lines in a second.
_PRINTED_PER_SECOND = 2 * TRACE_MAX


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
    not_ours = (place for place in places(error.__traceback__) if not _is_ours(place))
    names = [_name_of(place) for place in reversed(collections.deque(not_ours, maxlen=_PLACES_MAX))]
    text = described(error).strip().replace("\n", " ")
    where = cut(f" ({', '.join(names)})" if names else "", messages.MESSAGE_MAX // 2)
    return cut(text, messages.MESSAGE_MAX - len(where.encode())) + where


def log_traceback(error: BaseException) -> None:
    """Prints the traceback to standard error, which the supervisor logs with the id of the job.

    Raises whatever a task that has closed or replaced standard error brings about.
    """
    text = _share.of(bounded_traceback(error))
    if text:
        sys.stderr.write(text)


class _Share:
    """What is printed of the exceptions of a second: less than the supervisor reads, so that no job waits for those before it."""

    def __init__(self) -> None:
        self._end = 0.0
        self._left = 0

    def of(self, text: str) -> str:
        """The text; once it is too much, that it is left out; and after that nothing until the second is over."""
        now = time.monotonic()
        if now >= self._end:
            self._end, self._left = now + 1, _PRINTED_PER_SECOND
        if self._left <= 0:
            return ""
        self._left -= len(text.encode())
        return text if self._left > 0 else "[the tracebacks of this and of further exceptions are not shown for up to a second]\n"


_share = _Share()


def bounded_traceback(error: BaseException) -> str:
    """What is printed of an exception: at most `TRACE_MAX` bytes, without the functions of this package through which it came."""
    return _asked(lambda: trace_of(error, _of_others(error.__traceback__)), f"{_NOTHING_TO_SAY}\n")


def _of_others(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    while trace is not None and trace.tb_next is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace


_HERE = os.path.dirname(__file__)


def _is_ours(place: TracebackType) -> bool:
    return os.path.dirname(place.tb_frame.f_code.co_filename) == _HERE


def _name_of(place: TracebackType) -> str:
    code = place.tb_frame.f_code
    return f"{os.path.basename(code.co_filename)}:{place.tb_lineno} in {code.co_name}"
