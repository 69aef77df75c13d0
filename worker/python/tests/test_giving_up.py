"""What a client leaves behind: jobs that nobody wants any more, closed connections, loops and processes that have ended."""

import asyncio
import gc
import os
import threading
import unittest
import warnings
from unittest import mock

from offload import AsyncClient, ConnectionLost, OffloadError, Pool
from offload._supervisor import PrivateSupervisor

from . import workers
from .fake_listener import FakeListener
from .test_client import WithPool
from .workers import PATIENCE


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
            goes_on, over = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(over)
                os.read(goes_on, 1)
                os._exit(0)
            os.close(goes_on)
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
