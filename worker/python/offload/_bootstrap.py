"""Started as a program by a private supervisor: prepares this process as its file says, and becomes the worker.

The file is JSON: `environ` to add to the clean environment of workers, `path` where modules are found, and either `script` with
its `arguments`, a worker program, or `main` and `initializer`, for the functions of an `Executor`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys


def become_worker(file: str) -> None:
    """Does what the file says. Returns when the worker has ended."""
    with open(file, encoding="utf-8") as opened:
        start = json.load(opened)
    os.environ.update(start["environ"])
    # This file was started as a program, so the first place is the folder of the package itself.
    sys.path[:1] = []
    sys.path.extend(place for place in start["path"] if place not in sys.path)
    if "script" in start:
        sys.argv = [start["script"], *start["arguments"]]
        sys.path.insert(0, os.path.dirname(start["script"]))
        runpy.run_path(start["script"], run_name="__main__")
    else:
        from offload import _calls

        _calls.serve_calls(start["main"], start["initializer"])


if __name__ == "__main__":
    become_worker(sys.argv[1])
