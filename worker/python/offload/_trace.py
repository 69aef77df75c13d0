"""An exception as a text that is never long.

The supervisor reads what a worker prints at 256 KiB/s, and the job that has failed is answered behind it. So what is printed of an
exception has a limit in every direction: its message and notes, the stack and its lines of source, the chain of exceptions before
it, and the members of a group. Nothing is made in full and then cut if it can be much: a chain may have a million members.
"""

from __future__ import annotations

import builtins
import collections.abc
import contextlib
import itertools
import traceback
from types import TracebackType
from typing import Any, Callable, Iterator, List, Optional, Tuple

from . import _messages as messages
from ._wire import cut

# Most bytes of all that is said of an exception. A pipe takes 64 KiB, so that nobody has to wait even for two of them.
TRACE_MAX = 32 << 10
# Longest line that the supervisor's log shows of what a worker prints.
LINE_MAX = 1024
# So many frames of a stack are shown of its beginning, and of its end. The log takes 100 lines a second.
_FRAMES_MAX = 16
_FRAME_MAX = 512
# A line of source that is longer than this, or goes on for more lines, is shown without marks: to place them, Python parses it.
_SOURCE_MAX, _SOURCE_LINES_MAX = 200, 20
_NOTES_MAX = 8
_LINES_MAX = 1000
_EXCEPTIONS_MAX = 16

_BECAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
_NO_TEXT = "<exception str() failed>"

# Exceptions for which Python has more to say than their text, such as `Did you mean`, and what it looks at for that.
_OF_SYNTAX = ("msg", "filename", "lineno", "offset", "text", "end_lineno", "end_offset")
_SPECIAL = (
    (SyntaxError, _OF_SYNTAX),
    (AttributeError, ("name", "obj")),
    (NameError, ("name",)),
    (ImportError, ("name", "name_from")),
)


def trace_of(error: BaseException, trace: Optional[TracebackType]) -> str:
    """An exception with its stack from `trace` on and those it came from, as Python prints them; at most `TRACE_MAX` bytes."""
    return cut(_Tracer().with_those_before(error, trace, ""), TRACE_MAX)


def described(error: BaseException, trace: Optional[TracebackType] = None) -> str:
    """An exception without its stack: its type, its text, and its notes, each cut. `trace` is where it was raised."""
    return _said_of(error, trace) + "".join(_notes_of(error))


def shortened(text: str) -> str:
    """A text without what the log would not show of its lines, and of at most `TRACE_MAX` bytes."""
    if len(text) < LINE_MAX // 4:
        return text
    # One byte more than the log shows of a line, so that it marks the line as cut.
    lines = text.split("\n", _LINES_MAX)
    short = "\n".join(cut(line, LINE_MAX + 1) for line in lines[:_LINES_MAX])
    kept = cut(short, TRACE_MAX)
    return kept if len(lines) <= _LINES_MAX and kept == short else f"{kept}\n[the rest is not shown]"


class _Tracer:
    """What may still be said, and which exceptions were."""

    def __init__(self) -> None:
        self._bytes = TRACE_MAX - 2048  # which are for what says that something is missing, and for numbers of members
        self._exceptions = _EXCEPTIONS_MAX
        self._seen: set = set()

    def with_those_before(self, error: BaseException, trace: Optional[TracebackType], indent: str) -> str:
        """The exceptions of a chain. The last one is what was raised, so it is made first, and the earliest are those left out."""
        texts: List[str] = []
        chain = itertools.chain([(error, trace, "")], _before(error))
        for one, its_trace, link in chain:
            if id(one) in self._seen:
                texts += [] if texts else [f"{indent}[the same as one above]\n"]
                break
            text = self._text(one, its_trace, indent)
            if text is None:
                texts.append(f"{indent}[{'earlier exceptions are' if texts else 'it is'} not shown]\n{link}")
                break
            texts.append(text + link)
        return "".join(reversed(texts))

    def _text(self, error: BaseException, trace: Optional[TracebackType], indent: str) -> Optional[str]:
        """An exception with the members of its group. `None` if there is no room for it."""
        self._seen.add(id(error))
        if not self._exceptions:
            return None
        self._exceptions -= 1
        lines = ["Traceback (most recent call last):\n", *_stack(trace)] if trace is not None else []
        text = "".join([*lines, described(error, trace)])
        if indent:
            text = "".join(indent + line for line in text.splitlines(True))
        length = len(text.encode(errors="backslashreplace"))
        if length > self._bytes:
            self._exceptions = 0
            return None
        self._bytes -= length
        return text + self._members(error, indent)

    def _members(self, error: BaseException, indent: str) -> str:
        if not isinstance(error, getattr(builtins, "BaseExceptionGroup", ())):
            return ""
        texts, count = [], len(error.exceptions)  # type: ignore[attr-defined]
        for number, member in enumerate(error.exceptions[:_EXCEPTIONS_MAX], 1):  # type: ignore[attr-defined]
            if self._exceptions:
                texts.append(f"{indent}  Number {number} of {count} in this group:\n")
                texts.append(self.with_those_before(member, member.__traceback__, indent + "    "))
        return "".join(texts) + (f"{indent}  [not all of this group is shown]\n" if count > len(texts) // 2 else "")


def _before(error: BaseException) -> Iterator[Tuple[BaseException, Optional[TracebackType], str]]:
    """The exceptions from which one came, the latest first, each with its stack and how it led to the one after it."""
    with contextlib.suppress(BaseException):
        while True:
            cause, context = error.__cause__, error.__context__
            if cause is None and (context is None or error.__suppress_context__):
                return
            link, error = (_BECAUSE, cause) if cause is not None else (_DURING, context)  # type: ignore[assignment]
            yield error, error.__traceback__, link


def _stack(trace: TracebackType) -> List[str]:
    """The frames of a stack as they are printed: if there are many, the outermost and the innermost."""
    count = sum(1 for _ in places(trace))
    if count <= 2 * _FRAMES_MAX:
        return _frames(traceback.extract_tb(trace))
    last = next(itertools.islice(places(trace), count - _FRAMES_MAX, None))
    missing = f"  [{count - 2 * _FRAMES_MAX} more frames are not shown]\n"
    return [*_frames(traceback.extract_tb(trace, _FRAMES_MAX)), missing, *_frames(traceback.extract_tb(last))]


def places(trace: Optional[TracebackType]) -> Iterator[TracebackType]:
    """The places of a stack, the outermost first."""
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _frames(summary: traceback.StackSummary) -> List[str]:
    for at, frame in enumerate(summary):
        source, end = frame.line or "", getattr(frame, "end_lineno", None) or 0
        if len(source) > _SOURCE_MAX or end - (frame.lineno or 0) > _SOURCE_LINES_MAX:
            line = cut(source, _SOURCE_MAX) + "..."
            summary[at] = traceback.FrameSummary(frame.filename, frame.lineno, frame.name, lookup_line=False, line=line)
    return [text if len(text) <= _FRAME_MAX else cut(text, _FRAME_MAX).rstrip("\n") + "...\n" for text in summary.format()]


def _said_of(error: BaseException, trace: Optional[TracebackType]) -> str:
    """The type and the text of an exception, and what else Python says of it."""
    text = text_of(error)
    for kind, names in _SPECIAL:
        if isinstance(error, kind):
            with contextlib.suppress(BaseException):
                return _special(error, kind(text), names, trace)
    name = cut(_asked(lambda: _name_of(type(error))) or "exception", messages.MESSAGE_MAX)
    return f"{name}: {text}\n" if text else f"{name}\n"


def _special(error: BaseException, copy: Any, names: Tuple[str, ...], trace: Optional[TracebackType]) -> str:
    """What Python says of a copy: of the exception itself it would look at its whole chain, too."""
    for name in names:
        value = getattr(error, name, None)
        setattr(copy, name, cut(value, messages.MESSAGE_MAX) if isinstance(value, str) else value)
    innermost = collections.deque(places(trace), maxlen=1)
    python = traceback.TracebackException(type(error), copy, innermost[0] if innermost else None)  # type: ignore[arg-type]
    return cut("".join(python.format_exception_only()), 4 * messages.MESSAGE_MAX)


def _name_of(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    text = _asked(lambda: cut(str(error), messages.MESSAGE_MAX))
    return _NO_TEXT if text is None else text


def _notes_of(error: BaseException) -> List[str]:
    notes = _asked(lambda: error.__notes__)  # type: ignore[attr-defined]
    if notes is None:
        return []
    if isinstance(notes, (str, bytes)) or not isinstance(notes, collections.abc.Sequence):
        return [_note(lambda: repr(notes))]
    first = _asked(lambda: list(itertools.islice(notes, _NOTES_MAX + 1))) or []
    texts = [_note(lambda: str(note)) for note in first[:_NOTES_MAX]]  # noqa: B023
    return texts if len(first) <= _NOTES_MAX else [*texts, "[further notes are not shown]\n"]


def _note(text: Callable[[], str]) -> str:
    said = _asked(lambda: cut(text(), _FRAME_MAX))
    return f"{'<note str() failed>' if said is None else said}\n"


def _asked(question: Callable[[], Any]) -> Any:
    """The answer of an exception, which may itself raise anything: then it is `None`."""
    try:
        return question()
    except BaseException:
        return None
