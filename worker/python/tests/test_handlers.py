"""Signal handlers that use what they have interrupted, whatever that was doing."""

import sys
import unittest
from unittest import mock

from offload import Client, OffloadError

from .fake_listener import FakeListener
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


class Clients(WithPool):
    def test_a_handler_that_has_interrupted_a_call_that_connects_makes_a_connection_of_its_own(self):
        handled = []
        with Client(self.pool.socket) as client:
            connect = client._connect

            def interrupted(max_in_flight):
                client._connect = connect
                handled.append(client.call("square", 2))
                made.append(connect(max_in_flight))
                return made[0]

            client._connect, made = interrupted, []
            self.assertEqual(client.call("square", 3), 9)
            self.assertEqual(handled, [4])
            self.assertIsNot(client._connection, made[0], "that of the handler is used by both")
            self.assertLess(made[0].fileno(), 0)

    def test_a_handler_that_could_not_read_the_answer_sends_nothing(self):
        with FakeListener() as listener, Client(listener.path) as client:
            submits = started(lambda: client.submit("first"))
            end = listener.accept()
            end.receive()
            submits.join(PATIENCE)
            (job,), refused = submits.results, []
            dialogue = client._connection._dialogue
            take = dialogue._take

            def interrupted(header, payload):
                """A signal handler comes while the answer is read."""
                for ask in (client.call, client.submit, lambda task: client.map(task, [b""])):
                    with self.assertRaises(OffloadError) as error:
                        ask("of the handler")
                    refused.append("this signal handler has interrupted a call" in str(error.exception))
                take(header, payload)

            with mock.patch.object(dialogue, "_take", interrupted):
                end.finishes(1, b"out")
                self.assertEqual(job.result(), b"out")
            self.assertEqual(refused, [True] * 3)
            client.submit("next")
            self.assertEqual(end.receive()[0].task, "next")


if __name__ == "__main__":
    unittest.main()
