"""Signal handlers that use what they have interrupted, whatever that was doing."""

import sys
import unittest

from .test_client import WithPool
from .test_reading import started
from .workers import PATIENCE


def interrupted_at_each_line(function, handler):
    """Calls `function`, and before each line of Python that it runs, of whatever module, `handler` in the same thread."""

    def trace(frame, event, _):
        if event == "line":
            sys.settrace(None)
            try:
                handler()
            finally:
                sys.settrace(trace)
        return trace

    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(None)


class Pools(WithPool):
    def test_a_handler_may_wait_for_a_pool_whatever_line_of_the_same_it_interrupts(self):
        supervisor = self.pool._supervisor

        def unknown_at_first():
            asked = iter([False])
            supervisor._wait(lambda: next(asked, True), PATIENCE)

        for wait in (self.pool.wait_until_ready, unknown_at_first):
            waits = started(lambda: interrupted_at_each_line(wait, self.pool.wait_until_ready))  # noqa: B023
            waits.join(PATIENCE)
            self.assertFalse(waits.is_alive(), "the handler waits for what it has interrupted")


if __name__ == "__main__":
    unittest.main()
