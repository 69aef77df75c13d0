"""Interrupts between two steps of the interpreter, as signal handlers bring them about."""

import os
import sys

import offload

HERE = os.path.dirname(offload.__file__)


class Interrupt(BaseException):
    """What a signal handler raises."""


def interrupted_at(step, function, place=HERE, before=None):
    """Calls a function, which is interrupted before a step within the files of `place`.

    Where that was; `None` if it has fewer steps. `before` does the same, and may be called as often as need be. Raises what else the
    function raises.
    """
    # Python 3.12 tells no steps of what is traced for the first time, and 3.13 none after an interrupt either.
    if step == 1 or (step > 1 and sys.version_info >= (3, 13)):
        interrupted_at(0, before or function, place)
    steps, where = 0, None

    def trace(frame, event, _):
        nonlocal steps, where
        if not frame.f_code.co_filename.startswith(place):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            steps += 1
            if steps == step:
                where = f"{frame.f_code.co_name}, line {frame.f_lineno}"
                sys.settrace(None)
                raise Interrupt
        return trace

    sys.settrace(trace)
    try:
        function()
    except Interrupt:
        pass
    finally:
        sys.settrace(None)
    return where
