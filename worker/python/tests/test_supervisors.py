"""Calls when what listens at the socket is not there, gone, or another version."""

import contextlib
import os
import signal
import socket
import tempfile
import threading
import time
import unittest

from offload import Client, ConnectionLost, JobError, NoSupervisor, OffloadError, Pool
from offload import _messages as messages
from offload._wire import Decoder, frame

from . import workers
from .test_client import WithPool
from .workers import PATIENCE, eventually


class Killed(WithPool):
    """On a busy machine many workers are killed before they have begun a job, which would make the pauses between starts long."""

    kills = 20
    arguments = ("--max-restarts=1000", "--backoff-min=1ms", "--backoff-max=10ms")

    def test_every_answer_is_right_while_a_worker_is_killed_every_50_ms(self):
        killed, over = [], threading.Event()

        def kill():
            """Kills busy workers, in all no more than `kills`, because a new one takes longer than 50 ms on a busy machine."""
            with Client(self.pool.socket, name="killer") as client:
                while len(killed) < self.kills and not over.wait(0.05):
                    busy = [w["pid"] for w in client._show("workers") if w["pid"] and w["state"] == "busy"]
                    for process in busy[:1]:
                        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                            os.kill(process, signal.SIGKILL)
                            killed.append(process)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            rounds = 0
            while killer.is_alive():
                jobs = [self.pool.submit("slow_square", n, attempts=100) for n in range(50)]
                self.assertEqual([job.result() for job in jobs], [n * n for n in range(50)])
                rounds += 1
        finally:
            over.set()
            killer.join(PATIENCE)
        self.assertEqual(len(killed), self.kills)
        status = self.pool.status()
        self.assertTrue(status["ledger"]["balanced"])
        self.assertEqual(status["jobs"]["ok"], 50 * rounds)


class Supervisors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "socket")

    def listener(self):
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(self.path)
        listener.listen()
        return listener

    def listen(self, answer):
        """Something that reads a hello, sends `answer`, and closes."""
        listener = self.listener()

        def serve():
            end, _ = listener.accept()
            with end:
                end.recv(4096)
                end.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)

    def refusal(self):
        with self.assertRaises(NoSupervisor) as refused:
            Client(self.path).call("square", 1)
        return str(refused.exception)

    def test_nobody_listens(self):
        self.assertIn("start one with `offload serve`", self.refusal())

    def test_another_version_is_named(self):
        welcome = messages.TO_CLIENT.encode(messages.ClientWelcome(b"OFFLOADC", 4, 2, 0, 1 << 20))
        self.listen(frame(welcome + b"what a later version adds"))
        self.assertIn("speaks protocol 4.2, this package 3.0", self.refusal())

    def test_an_older_supervisor_says_why_it_refuses(self):
        self.listen(frame(messages.TO_CLIENT.encode(messages.Goodbye("too new for me")), b"unsupported"))
        self.assertIn("too new for me", self.refusal())

    def test_something_else_listens(self):
        self.listen(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.assertIn("is no supervisor", self.refusal())

    def test_what_listens_says_nothing(self):
        self.listen(b"")
        self.assertIn("does not answer", self.refusal())

    def test_a_supervisor_that_is_killed_ends_the_calls_that_wait(self):
        with workers.quiet() as log:
            pool = Pool(worker=workers.__file__, workers=1, log=log)
            self.addCleanup(pool.close)
            job = pool.submit("hang", 1)
            self.assertTrue(job.id)
            pool._supervisor.process.kill()
            with self.assertRaises(ConnectionLost) as lost:
                job.result()
            self.assertEqual((lost.exception.outcome, lost.exception.job), ("indeterminate", job.id))
            self.assertIn("is gone", str(lost.exception))
            self.assertIsInstance(lost.exception, JobError)
            with self.assertRaises(NoSupervisor):
                pool.call("square", 1)

    def test_a_client_finds_the_next_supervisor_at_the_same_socket(self):
        with workers.quiet() as log:
            first = Pool(workers=1, log=log)
            first.wait_until_ready()
            self.addCleanup(first.close)
            client = Client(first.socket)
            self.addCleanup(client.close)
            self.assertEqual(client.call("echo", b"1"), b"1")
            connection = client._connection
            connection._used = time.monotonic() - 3600
            self.assertEqual(client.call("echo", b"2"), b"2")
            self.assertIsNot(client._connection, connection, "one that was idle for so long may be closed already")

    def test_a_call_finds_the_supervisor_that_was_started_again(self):
        client = Client(self.path)
        self.addCleanup(client.close)
        for data in (b"1", b"2"):
            with workers.supervisor(self.path):
                self.assertEqual(client.call("echo", data), data)
        with workers.supervisor(self.path):
            job = client.submit("echo", bytes(1 << 20))
            self.assertTrue(job.result() == bytes(1 << 20))
        with workers.supervisor(self.path):
            self.assertEqual(client.status()["state"], "running")
        with self.assertRaises(NoSupervisor):
            client.call("echo", b"3")

    def test_a_call_that_waits_for_room_when_the_supervisor_dies_was_not_sent(self):
        client = Client(self.path, max_in_flight=1)
        self.addCleanup(client.close)
        ended = []

        def call():
            try:
                client.call("echo", b"1")
            except OffloadError as error:
                ended.append(error)

        with workers.supervisor(self.path) as process:
            job = client.submit("sleep", "3600000")
            self.assertTrue(job.id)
            calls = [threading.Thread(target=call) for _ in range(3)]
            for thread in calls:
                thread.start()
            eventually(lambda: len(client._connection._asleep) == 2, "one reads, the others sleep")
            process.kill()
            process.wait(PATIENCE)
            for thread in calls:
                thread.join(PATIENCE)
            with self.assertRaises(ConnectionLost):
                job.result()
        self.assertEqual([(isinstance(error, NoSupervisor), isinstance(error, JobError)) for error in ended], [(True, False)] * 3)

    def test_a_supervisor_that_reads_nothing_gets_as_much_as_fits(self):
        """And a Goodbye that it has sent is the reason, not that it reads no more."""
        listener = self.listener()

        def serve():
            end, _ = listener.accept()
            with end:
                Decoder().feed(end.recv(4096))
                end.sendall(frame(messages.TO_CLIENT.encode(messages.ClientWelcome(b"OFFLOADC", 3, 0, 0, 1 << 26))))
                end.recv(4096)
                end.sendall(frame(messages.TO_CLIENT.encode(messages.Goodbye("I have had enough")), b"overloaded"))

        thread = threading.Thread(target=serve)
        thread.start()
        with Client(self.path) as client, self.assertRaises(ConnectionLost) as lost:
            client.call("echo", bytes(32 << 20))
        thread.join(PATIENCE)
        self.assertIn("I have had enough", str(lost.exception))


if __name__ == "__main__":
    unittest.main()
