"""The thread that reads connections that nobody else reads, whatever happens to it."""

import contextlib
import threading
import unittest
from unittest import mock

from offload import Client, ConnectionLost, _keeper
from offload._keeper import Keeper

from .fake_listener import FakeListener
from .workers import PATIENCE, eventually


class Kept:
    """A connection on which something is in flight, as the keeper sees it."""

    def is_in_use(self, since):
        return True

    def is_left_alone(self, now):
        return False


class Tables(unittest.TestCase):
    """A keeper without a thread, which the test steps."""

    def setUp(self):
        self.keeper = Keeper()
        self.keeper._thread = threading.current_thread()

    def test_a_connection_that_gets_the_number_of_one_that_has_gone_is_kept(self):
        first, gone, made = Kept(), Kept(), []
        self.keeper.keep(first)
        self.keeper.keep(gone)

        def exchange(now):
            nonlocal gone
            gone = None
            made.append(Kept())
            self.keeper.keep(made[0])
            return False

        first.is_left_alone = exchange
        with mock.patch.object(_keeper, "list", lambda kept: sorted(kept, key=lambda one: one() is not first), create=True):
            self.keeper._left_alone()
        self.assertIn(made[0], [reference() for reference in self.keeper._kept])


class Threads(unittest.TestCase):
    def setUp(self):
        self.listener = FakeListener().__enter__()
        self.addCleanup(self.listener.__exit__)
        self.keeper = Keeper()
        for patch in (mock.patch("offload._connection.keeper", self.keeper), mock.patch.object(_keeper, "CHECK_EVERY", 0.01)):
            patch.start()
            self.addCleanup(patch.stop)

    def connected(self):
        """A client, and the listener's end of its connection."""
        client = Client(self.listener.path)
        self.addCleanup(client.close)
        connects = threading.Thread(target=client.connection)
        connects.start()
        end = self.listener.accept()
        connects.join(PATIENCE)
        return client, end

    def submitted(self):
        """A job of a client of its own, and the listener's end of its connection."""
        client, end = self.connected()
        return client, client.submit("t"), end

    def is_read(self, job, end, ticket=1):
        end.finishes(ticket)
        eventually(lambda: job._request.is_done, "that somebody reads the end of the job")

    def test_an_exception_ends_only_the_connection_on_which_it_came(self):
        (_, one, end), (_, other, other_end) = self.submitted(), self.submitted()
        with mock.patch.object(one._request.connection, "read_for_others", side_effect=MemoryError):
            end.accepts(1)
            eventually(lambda: one._request.is_done)
        self.assertIsInstance(one._request.error, ConnectionLost)
        self.is_read(other, other_end)

    def test_a_look_that_fails_is_not_the_last_one(self):
        with mock.patch.object(self.keeper, "_left_alone", side_effect=MemoryError) as looks:
            _, job, end = self.submitted()
            eventually(lambda: looks.call_count)
        self.is_read(job, end)

    def test_a_submit_finds_out_that_nobody_keeps(self):
        """Because no thread could be started, an interrupt came before, or the thread has ended."""

        def no_thread(client):
            with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError):
                client.submit("t")

        def interrupt(client):
            with mock.patch.object(self.keeper, "keep", side_effect=KeyboardInterrupt), contextlib.suppress(KeyboardInterrupt):
                client.submit("t")

        def end(client):
            client.submit("t")
            self.keeper._thread = mock.Mock(is_alive=lambda: False)

        for hinder in (no_thread, interrupt, end):
            with self.subTest(hinder.__name__), mock.patch("offload._client.Client._give_up"):
                self.keeper._kept.clear()
                eventually(lambda: self.keeper._thread is None)
                client, end = self.connected()
                hinder(client)
                self.is_read(client.submit("t"), end, 2)


if __name__ == "__main__":
    unittest.main()
