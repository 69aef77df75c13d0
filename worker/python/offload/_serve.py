"""`serve`: makes this process a worker."""

from __future__ import annotations

import os
import socket
import stat
import sys
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Union

from . import _tasks
from ._channel import Channel, ProtocolError
from ._output import prepare_output
from ._session import Session
from ._tasks import Task
from ._trace import shortened
from ._wire import WireError

# The exit code by which a supervisor knows that starting this program again is pointless.
_POINTLESS = 64

Tasks = Union[Mapping[str, Callable[..., Any]], Iterable[Callable[..., Any]]]


def serve(tasks: Optional[Tasks] = None, *, setup: Optional[Callable[[], Any]] = None) -> None:
    """Runs jobs until the supervisor ends this worker. Returns when that is done.

    Without `tasks`, it offers all functions that were decorated with `task`; otherwise these functions, or these by name. One that
    was decorated keeps its options.
    `setup` is called once before the first job, after the functions that were decorated with `setup`.

    Start the program with `offload serve --worker 'python3 worker.py'` or `Pool(worker="worker.py")`. Started by hand, it says
    so and exits with code 64. What it prints goes to the supervisor's log, with the id of the job.
    """
    offered = _offered(tasks)
    if not _has_a_supervisor():
        program = os.path.basename(sys.argv[0]) or "worker.py"
        print(f"this is a worker; start it with: offload serve --worker 'python3 {program}'", file=sys.stderr)
        raise SystemExit(_POINTLESS)
    if not offered:
        print("there is no task to offer: decorate a function with @task", file=sys.stderr)
        raise SystemExit(_POINTLESS)
    set_ups = [*_tasks.set_ups, *([setup] if setup else [])]
    with _take_over_the_socket() as end:
        prepare_output()
        try:
            Session(Channel(end), offered).run(set_ups)
        except (ProtocolError, WireError) as error:
            raise SystemExit(f"the supervisor broke the protocol: {error}") from None
        except SystemExit as error:  # of a set-up; Python prints what is no number
            if error.code is not None and not isinstance(error.code, int):
                error.code = shortened(str(error.code))
            raise


def _offered(tasks: Optional[Tasks]) -> Dict[str, Task]:
    if tasks is None:
        return dict(_tasks.registered)
    if isinstance(tasks, Mapping):
        return {name: _made(function, name) for name, function in tasks.items()}
    made = [_made(function) for function in tasks]
    return {one.name: one for one in made}


def _made(function: Callable[..., Any], name: Optional[str] = None) -> Task:
    """The task that a function was decorated as, or a new one; under this name, if one is given."""
    decorated = next((one for one in _tasks.registered.values() if one.function is function), None)
    if decorated is None:
        return Task(function, name)
    return decorated if name is None else decorated.called(name)


def _has_a_supervisor() -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(0).st_mode)
    except OSError:
        return False


def _take_over_the_socket() -> socket.socket:
    """The socket that came as standard input, out of reach of tasks and their children, which get an empty input instead."""
    end = socket.socket(fileno=os.dup(0))
    end.set_inheritable(False)
    end.setblocking(True)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return end
