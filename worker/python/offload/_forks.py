"""What a forked child has of its parent and must not use: connections, locks that a thread held which is not there, and threads."""

from __future__ import annotations

import os
import weakref
from typing import Any

_parents: "weakref.WeakSet[Any]" = weakref.WeakSet()


def tell_after_fork(thing: Any) -> None:
    """From now on, `thing.after_fork()` is called in each forked child, as long as `thing` is there."""
    _parents.add(thing)


def _tell() -> None:
    failed = None
    for thing in list(_parents):
        try:
            thing.after_fork()
        except Exception as error:  # the others must hear of it all the same
            failed = error
    if failed is not None:
        raise failed


os.register_at_fork(after_in_child=_tell)
