"""The worker of an `Executor`: its one task calls pickled functions."""

from __future__ import annotations

import base64
import pickle
from multiprocessing import spawn
from typing import Any, Optional, Tuple

from ._failure import bounded_traceback
from ._serve import serve
from ._trace import text_of

TASK = "call"


class RemoteTraceback(Exception):
    """The cause of an exception that a function raised in a worker: its text is the traceback there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def pack_call(function: Any, arguments: tuple, named: dict) -> bytes:
    """The input of a job that calls a function. Raises what pickle raises for what cannot be sent."""
    return pickle.dumps((function, arguments, named), pickle.HIGHEST_PROTOCOL)


def unpack_result(data: bytes) -> Tuple[Any, Optional[BaseException]]:
    """What the function returned, or what it raised."""
    returned, error, text = pickle.loads(data)
    if error is not None:
        error.__cause__ = RemoteTraceback(text)
    return returned, error


def call(data: bytes) -> bytes:
    """Calls a function, and packs what it returns or raises."""
    try:
        function, arguments, named = pickle.loads(data)
        return _packed(function(*arguments, **named))
    except BaseException as error:  # as `sys.exit`: the future gets what the function raised
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        return _packed_error(error)


def _packed(returned: Any) -> bytes:
    return pickle.dumps((returned, None, ""), pickle.HIGHEST_PROTOCOL)


def _packed_error(error: BaseException) -> bytes:
    text = bounded_traceback(error)
    try:
        data = pickle.dumps((None, error, text), pickle.HIGHEST_PROTOCOL)
        pickle.loads(data)
        return data
    except Exception:  # an exception that cannot be pickled, or not restored
        return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {text_of(error)}"), text), pickle.HIGHEST_PROTOCOL)


def serve_calls(main: dict, initializer: Optional[str]) -> None:
    """Serves calls. `main` is what `multiprocessing` says of the program that has the functions."""

    def set_up() -> None:
        spawn.prepare(main)
        if initializer is not None:
            function, arguments = pickle.loads(base64.b64decode(initializer))
            function(*arguments)

    serve({TASK: call}, setup=set_up)
