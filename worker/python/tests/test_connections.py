"""One connection that threads and forked children share: whose a request is when it ends."""

import asyncio
import errno
import os
import socket
import tempfile
import threading
import unittest
from unittest import mock

from offload import AsyncClient, Client, ConnectionLost, NoSupervisor, OffloadError
from offload import _forks
from offload import _messages as messages
from offload._address import connect_now as connect_once
from offload._turns import Waiter
from offload._wire import frame

from .fake_listener import FakeListener
from .test_client import WithPool
from .test_reading import started
from .workers import PATIENCE, eventually


class Retries(WithPool):
    def test_a_call_that_goes_over_another_connection_is_not_ended_by_the_one_before(self):
        """Whoever reads has noticed the end, and has told nobody yet when the call goes on; then it tells, or the client does."""
        for tells_first in (True, False):
            before = self.pool.connection()
            ask = before._dialogue.ask

            def ask_and_end(*arguments, before=before, ask=ask):
                start = ask(*arguments)
                before._is_lost = True
                return start

            before._dialogue.ask = ask_and_end
            with mock.patch.object(before, "close", before.close if tells_first else mock.Mock()):
                job = self.pool.submit("wait", str(self.file))
                self.running()
            before.close()
            self.assertFalse(job.done(), "the end of the connection before is not that of the job")
            self.file.unlink()
            self.assertIsNone(job.result())
            self.assertIsNot(self.pool.connection(), before)


    def test_a_call_goes_over_another_connection_if_the_socket_cannot_send_for_another_reason_than_its_end(self):
        before = self.pool.connection()

        class Full:
            """A socket for which the kernel has no memory."""

            def __init__(self, end):
                self.end = end

            def send(self, data, flags):
                raise OSError(errno.ENOBUFS, "No buffer space available")

            def __getattr__(self, name):
                return getattr(self.end, name)

        before._socket = Full(before._socket)
        call = started(lambda: self.pool.call("square", 3))
        call.join(PATIENCE)
        self.assertEqual(call.results, [9])
        self.assertIsNot(self.pool.connection(), before)


class Room(unittest.TestCase):
    def test_those_who_wait_for_room_and_then_for_their_turn_send_no_more_than_there_is_room_for(self):
        with FakeListener() as listener, Client(listener.path, max_in_flight=1) as client:
            first = started(lambda: client.submit("t"))
            end = listener.accept()
            end.receive()
            first.join(PATIENCE)
            connection, me = client._connection, Waiter()
            try:
                connection._sending.take(me)
                others = [started(lambda: client.submit("t")) for _ in range(2)]
                eventually(lambda: len(connection._for_room) == 2, "both wait for room")
                end.finishes(1)
                eventually(lambda: len(connection._sending._line) == 3, "both wait for their turn")
            finally:
                connection._sending.leave(me)
            end.receive()
            eventually(lambda: len(connection._for_room) == 1 or len(connection._dialogue.requests) == 2)
            self.assertEqual(len(connection._dialogue.requests), 1)
            end.finishes(2)
            end.receive()
            for thread in others:
                thread.join(PATIENCE)
            self.assertEqual([len(thread.results) for thread in others], [1, 1])


class Forks(WithPool):
    def test_a_child_gets_a_connection_of_its_own(self):
        self.assertEqual(self.pool.call("square", 2), 4)
        job = self.pool.submit("slow_square", 5)
        self.assertTrue(self.in_child(lambda: self.pool.map("square", [3, 4]) == [9, 16]))
        self.assertEqual(job.result(), 25)

    def test_a_child_that_closes_the_pool_does_not_end_it(self):
        self.assertTrue(self.in_child(lambda: self.pool.close() is None))
        self.assertEqual(self.pool.call("square", 2), 4)

    def test_a_job_belongs_to_the_process_that_submitted_it(self):
        job = self.pool.submit("square", 5)

        def child():
            try:
                job.result()
            except OffloadError as error:
                return "before the fork" in str(error)

        self.assertTrue(self.in_child(child))
        self.assertEqual(job.result(), 25)

    def test_a_child_that_leaves_a_stream_leaves_it_to_its_parent(self):
        parts = self.pool.stream("flood", 100)
        next(parts)
        self.assertTrue(self.in_child(lambda: parts.close() is None))
        self.assertEqual(sum(map(len, parts)), 99 << 16)

    def test_a_child_reads_no_stream_of_its_parent(self):
        parts = self.pool.stream("flood", 100)
        next(parts)

        def child():
            try:
                next(parts)
            except OffloadError as error:
                return "before the fork" in str(error)

        self.assertTrue(self.in_child(child))
        self.assertEqual(sum(map(len, parts)), 99 << 16)

    def test_a_child_that_leaves_a_map_cancels_no_job_of_its_parent(self):
        parent = os.getpid()

        def inputs():
            yield str(self.file)
            self.running()
            self.pool.status()  # the answer that the job is accepted is read
            child = os.fork()
            if child == 0:
                raise SystemExit
            os.waitpid(child, 0)
            self.file.unlink()

        try:
            outputs = self.pool.map("wait", inputs())
        finally:
            if os.getpid() != parent:
                os._exit(0)
        self.assertEqual(outputs, [None])

    def test_a_child_that_leaves_a_stream_of_a_loop_leaves_it_to_its_parent(self):
        async def read():
            async with AsyncClient(self.pool.socket) as client:
                parts = client.stream("flood", 100)
                await parts.__anext__()

                def child():
                    try:
                        parts.aclose().send(None)
                    except StopIteration:
                        return True

                self.assertTrue(self.in_child(child))
                return sum([len(part) async for part in parts])

        self.assertEqual(asyncio.run(asyncio.wait_for(read(), PATIENCE)), 99 << 16)


    def test_whatever_one_thing_does_after_a_fork_the_others_are_told(self):
        failing, other = mock.Mock(after_fork=mock.Mock(side_effect=OSError)), mock.Mock()
        with mock.patch.object(_forks, "_parents", [failing, other]), self.assertRaises(OSError):
            _forks._tell()
        other.after_fork.assert_called_once_with()


class Full(unittest.TestCase):
    def test_a_client_waits_for_a_supervisor_that_accepts_nobody_for_a_while(self):
        listener, before = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        with tempfile.TemporaryDirectory() as folder, listener, before:
            path = os.path.join(folder, "socket")
            listener.bind(path)
            listener.listen(0)
            listener.settimeout(PATIENCE)
            before.connect(path)
            asked = threading.Event()

            def connect_now(path):
                asked.set()
                return connect_once(path)

            def accept():
                asked.wait(PATIENCE)
                for _ in range(2):  # the one before, and this one
                    listener.accept()[0].close()

            thread = threading.Thread(target=accept)
            thread.start()
            with mock.patch("offload._address.connect_now", connect_now), self.assertRaises(NoSupervisor) as refused:
                Client(path).call("square", 1)
            thread.join(PATIENCE)
            self.assertIn("does not answer", str(refused.exception))


class Closed(unittest.TestCase):
    def test_a_socket_is_closed_by_whoever_uses_it_last_and_says_so_at_once(self):
        with FakeListener() as listener:
            client = Client(listener.path)
            connects = started(client.connection)
            end = listener.accept()
            connects.join(PATIENCE)
            (connection,) = connects.results

            def close_meanwhile():
                closes = started(client.close)
                closes.join(PATIENCE)
                self.assertEqual(closes.results, [None])
                self.assertRaises(EOFError, end.receive)
                self.assertGreaterEqual(connection.fileno(), 0, "its number may be that of another file")

            with mock.patch.object(connection, "_read", close_meanwhile):
                connection.read_for_others()
            self.assertLess(connection.fileno(), 0)

    def test_a_client_that_is_closed_while_it_waits_to_send_says_so(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            path = os.path.join(folder, "socket")
            listener.bind(path)
            listener.listen()

            def serve():
                end, _ = listener.accept()
                with end:
                    end.sendall(frame(messages.TO_CLIENT.encode(messages.ClientWelcome(b"OFFLOADC", 3, 0, 0, 1 << 26))))
                    over.wait(PATIENCE)  # and reads nothing

            over = threading.Event()
            thread = threading.Thread(target=serve)
            thread.start()
            self.addCleanup(thread.join)
            self.addCleanup(over.set)
            client = Client(path)
            connection = client.connection()
            wait_to_send = connection._read_or_wait_to_send

            def close_and_wait():
                client.close()  # as another thread does
                wait_to_send()

            connection._read_or_wait_to_send = close_and_wait
            with self.assertRaises(ConnectionLost) as lost:
                client.call("echo", bytes(32 << 20))
            self.assertIn("gone", str(lost.exception))


if __name__ == "__main__":
    unittest.main()
