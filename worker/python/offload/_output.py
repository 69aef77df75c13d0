"""What a worker prints by itself: log records, warnings, and exceptions that nothing has caught.

Whoever prints waits until the supervisor has read it, and with it the job or the start of the worker. So all of it is bounded; see
`_trace`. What a task prints itself is its own.
"""

from __future__ import annotations

import _thread
import contextlib
import faulthandler
import logging
import sys
import threading
import warnings
from typing import Any

from ._context import JobFilter
from ._failure import bounded_traceback
from ._trace import shortened, trace_of


def prepare_output() -> None:
    """Lines are written as they are printed, a crash in native code leaves a traceback, and nothing that is printed is too long."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    if not faulthandler.is_enabled():
        faulthandler.enable(all_threads=False)
    _prepare_logging()
    _prepare_hooks()


def _prepare_logging() -> None:
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_Formatter("%(levelname)s %(name)s [job %(job)s]: %(message)s"))
        logging.getLogger().addHandler(handler)
        logging.getLogger().setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(JobFilter())


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return shortened(super().format(record))

    def formatException(self, ei: Any) -> str:
        return super().formatException(ei) if ei[1] is None else trace_of(ei[1], ei[2]).rstrip("\n")


def _prepare_hooks() -> None:
    """What the program has set itself stays."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = lambda _, error, __: _say(bounded_traceback(error))
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _say_unraisable
    if threading.excepthook is _thread._excepthook:  # type: ignore[attr-defined]
        threading.excepthook = _say_of_thread
    format_warning = warnings.formatwarning
    warnings.formatwarning = lambda *arguments, **named: shortened(format_warning(*arguments, **named))


def _say_of_thread(of: Any) -> None:
    if not issubclass(of.exc_type, SystemExit):
        name = of.thread.name if of.thread is not None else "of native code"
        _say(f"Exception in thread {shortened(name)}:\n{bounded_traceback(of.exc_value)}")


def _say_unraisable(of: Any) -> None:
    where = "something that cannot be put into words"
    with contextlib.suppress(Exception):
        where = repr(of.object)
    said = shortened(f"{of.err_msg or 'Exception ignored in'}: {where}")
    _say(f"{said}\n{bounded_traceback(of.exc_value)}")


def _say(text: str) -> None:
    with contextlib.suppress(Exception):
        sys.stderr.write(text)
