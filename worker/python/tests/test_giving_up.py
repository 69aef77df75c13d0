"""What a client leaves behind: jobs that nobody wants any more, closed connections, loops and processes that have ended."""

import asyncio
import gc
import os
import threading
import unittest
import warnings
from unittest import mock

from offload import AsyncClient, Client, ConnectionLost, OffloadError, Pool
from offload._supervisor import PrivateSupervisor

from . import workers
from .fake_listener import FakeListener
from .steps import interrupted_at
from .test_client import WithPool
from .workers import PATIENCE, eventually


async def read(client):
    async for _ in client.stream("t"):
        pass


class Cancelled(unittest.TestCase):
    def cancelled_before_it_is_accepted(self, ask):
        """What the supervisor hears of a job whose coroutine is cancelled, and whose loop ends at once."""
        with FakeListener() as listener:
            submitted, cancelled = threading.Event(), threading.Event()

            async def main():
                client = AsyncClient(listener.path)
                asked = asyncio.ensure_future(ask(client))
                while not submitted.is_set():
                    await asyncio.sleep(0.001)
                asked.cancel()
                for _ in range(10):
                    await asyncio.sleep(0)
                cancelled.set()
                await asyncio.wait([asked])
                await client.close()
                self.assertTrue(asked.cancelled())

            thread = threading.Thread(target=asyncio.run, args=(main(),))
            thread.start()
            try:
                end = listener.accept()
                end.receive()
                submitted.set()
                self.assertTrue(cancelled.wait(PATIENCE))
                end.accepts(1)
                cancel, _ = end.receive()
                end.finishes(1, outcome="cancelled")
            finally:
                submitted.set()
                thread.join(PATIENCE)
            return cancel

    def test_a_call_that_is_cancelled_before_it_is_accepted_is_cancelled(self):
        self.assertEqual(self.cancelled_before_it_is_accepted(lambda client: client.call("t")), (2, "1"))

    def test_a_stream_that_is_cancelled_before_it_is_accepted_is_cancelled(self):
        self.assertEqual(self.cancelled_before_it_is_accepted(read), (2, "1"))


class Interrupted(WithPool):
    """Ctrl-C between any two steps, while no worker begins a job: nothing stays in the queue that nobody knows of."""

    def setUp(self):
        super().setUp()
        self.full = Pool(worker=workers.__file__, workers=1, log=self.log)
        self.addCleanup(self.full.close)
        self.client = Client(self.full.socket)
        self.addCleanup(self.client.close)
        self.full.submit("hang", 1)
        self.client.connection()
        eventually(lambda: self.full.status()["jobs"]["running"] == 1)

    def assert_none_is_left(self, ask, returns_in=None, waits_in=None):
        """But for a job that has just been returned."""
        step, where = 1, ""
        while where is not None and (waits_in is None or not where.startswith(waits_in)):
            where = interrupted_at(step, lambda: ask(self.client), before=lambda: ask(self.pool))
            if where is None or (returns_in is not None and where.startswith(returns_in)):
                self.full.cancel_queued()
            eventually(self.nothing_is_queued, f"the end of the job after an interrupt at step {step} ({where})")
            # Who was interrupted may still be in line. To be struck out takes steps that the next one would not have.
            connection = self.client.connection()
            for turn in (self.client._connecting, connection._sending, connection._reading):
                turn._line.clear()
            step += 1
        self.assertGreater(step, 100)

    def nothing_is_queued(self):
        return not any(job["state"] == "queued" for job in self.full._show("jobs"))

    def test_a_submit_leaves_no_job(self):
        self.assert_none_is_left(lambda client: client.submit("square", 7), returns_in="submit,")

    def test_a_map_leaves_no_job(self):
        self.assert_none_is_left(lambda client: client.map("square", [7]), waits_in="_ready_for,")

    def test_a_call_leaves_no_job(self):
        self.assert_none_is_left(lambda client: client.call("square", 7), waits_in="_ready_for,")


class Errors(WithPool):
    def test_a_call_that_ends_with_an_error_that_is_not_the_answer_cancels_its_job(self):
        cancelled = self.pool.status()["jobs"]["cancelled"]
        asks = (lambda: self.pool.call("wait", str(self.file)), lambda: self.pool.submit("wait", str(self.file)))
        for number, (ask, place) in enumerate(zip(asks, ("wait_for_end", "keep_reading"))):
            with mock.patch.object(self.pool.connection(), place, side_effect=OffloadError("of a signal handler")):
                self.file.touch()
                with self.assertRaises(OffloadError):
                    ask()
            eventually(lambda: self.pool.status()["jobs"]["cancelled"] == cancelled + number + 1, "the end of the job")  # noqa: B023


class Closed(WithPool):
    def test_a_client_that_is_closed_on_a_loop_takes_nothing_there(self):
        client = self.pool.async_client()

        async def main():
            async with client:
                self.assertEqual(await client.call("square", 3), 9)
            for ask in (lambda: client.call("square", 3), client.status, lambda: read(client)):
                with self.assertRaises(OffloadError) as refused:
                    await ask()
                self.assertIn("this client is closed", str(refused.exception))

        for _ in range(2):  # each loop is closed apart
            asyncio.run(main())

    def test_loops_that_have_ended_leave_nothing(self):
        client, descriptors = self.pool.async_client(), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(6):
                asyncio.run(client.call("square", 3))  # and never closed
                descriptors.append(len(os.listdir("/proc/self/fd")))
            self.assertEqual(len(client._loops), 1)
            del client
            gc.collect()
        self.assertEqual(descriptors[1], descriptors[-1])

    def test_a_client_that_is_closed_while_it_connects_closes_that_connection_too(self):
        async def main(listener):
            client = AsyncClient(listener.path)
            call = asyncio.ensure_future(client.call("t"))
            accepted = asyncio.get_running_loop().run_in_executor(None, listener.accept_silently)
            end = await accepted
            await client.close()
            end.welcome()
            with self.assertRaises(OffloadError) as refused:
                await call
            self.assertIn("this client is closed", str(refused.exception))
            self.assertRaises(EOFError, end.receive)

        with FakeListener() as listener:
            asyncio.run(asyncio.wait_for(main(listener), PATIENCE))

    def test_a_pool_that_starts_is_closed_at_once_although_a_thread_waits_for_it(self):
        with workers.quiet() as log:
            pool = Pool(worker=["sleep", "3600"], log=log)  # a worker that never says hello
            waits, ended, address = threading.Event(), [], pool._address

            def wait():
                waits.set()
                return address()

            def call():
                try:
                    pool.call("square", 1)
                except OffloadError as error:
                    ended.append(error)

            pool._address = wait
            threads = [threading.Thread(target=call, daemon=True), threading.Thread(target=pool.close, daemon=True)]
            threads[0].start()
            self.assertTrue(waits.wait(PATIENCE))
            threads[1].start()
            for thread in threads:
                thread.join(PATIENCE)
            self.assertEqual(len(ended), 1, "the call waits")
            self.assertFalse(threads[1].is_alive(), "close waits")


class Forks(WithPool):
    def test_a_child_that_is_forked_while_a_pool_starts_asks_itself_whether_it_has(self):
        with workers.quiet() as log, mock.patch.object(PrivateSupervisor, "_hear"):  # whoever hears that it is ready is not there
            pool = Pool(worker=workers.__file__, workers=1, log=log)
            self.addCleanup(pool.close)
            self.assertTrue(self.in_child(lambda: pool.call("square", 3) == 9))
            self.assertTrue(self.in_child(lambda: asyncio.run(pool.async_client().call("square", 3)) == 9))

    def test_a_child_keeps_no_connection_of_a_loop_open(self):
        async def main(listener):
            client = AsyncClient(listener.path)
            call = asyncio.ensure_future(client.call("t"))
            end = await asyncio.get_running_loop().run_in_executor(None, listener.accept)
            await asyncio.get_running_loop().run_in_executor(None, end.receive)
            # As other loops do: the socket stays open for it although it is closed.
            holds = next(iter(client._loops.values())).connection._socket.makefile("rb")
            goes_on, over = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(over)
                os.read(goes_on, 1)
                os._exit(0)
            os.close(goes_on)
            holds.close()
            try:
                await client.close()
                with self.assertRaises(ConnectionLost):
                    await call
                self.assertRaises(EOFError, end.receive)
            finally:
                os.close(over)
                os.waitpid(child, 0)

        with FakeListener() as listener, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside other threads
            asyncio.run(main(listener))


if __name__ == "__main__":
    unittest.main()
