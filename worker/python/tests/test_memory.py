"""What becomes of an output when the program has dropped it: it is freed at once, without the collector of garbage."""

import asyncio
import gc
import unittest
import weakref

from offload import Executor, JobError, Rejected
from offload._dialogue import Request
from offload._executor import _Call

from . import functions, workers
from .test_client import WithPool
from .workers import PATIENCE, eventually, eventually_of_loop


def requests():
    """All requests and calls that somebody holds, with their inputs and outputs."""
    return [thing for thing in gc.get_objects() if isinstance(thing, (Request, _Call))]


class Freed(WithPool):
    def setUp(self):
        super().setUp()
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        self.before = requests()  # of other tests

    def left(self):
        return [thing for thing in requests() if not any(thing is one for one in self.before)]

    def assert_nothing_is_left(self):
        # Other threads, such as the one that reads for all, may be about to leave the function that has ended one.
        eventually(lambda: not self.left(), "the end of all requests")

    def test_of_a_client(self):
        self.pool.call("square", 3)
        self.pool.map("square", range(3))
        list(self.pool.stream("count", 3))
        job = self.pool.submit("square", 3)
        job.result()
        del job
        self.pool.status()
        for error, arguments in ((Rejected, ("no-such-task", 1)), (JobError, ("fails", "because"))):
            for ask in (lambda: self.pool.call(*arguments), lambda: self.pool.submit(*arguments).result()):  # noqa: B023
                with self.assertRaises(error):
                    ask()
        self.assert_nothing_is_left()

    def test_of_a_client_for_coroutines(self):
        async def main():
            async with self.pool.async_client() as client:
                await client.call("square", 3)
                await client.map("square", range(3))
                self.assertEqual(len([part async for part in client.stream("count", 3)]), 3)
                await client.status()
                with self.assertRaises(Rejected):
                    await client.call("no-such-task", 1)
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.call("hang", 1), 0.1)

                async def nothing_is_left():
                    return not self.left()

                await eventually_of_loop(nothing_is_left, "the end of all requests")

        asyncio.run(main())

    def test_of_an_executor(self):
        with workers.quiet() as log, Executor(1, log=log) as executor:
            made = weakref.ref(executor.submit(functions.make).result(PATIENCE))
            self.assert_nothing_is_left()
            self.assertIsNone(made())
            kept = [executor.submit(functions.fail, "because").exception(PATIENCE)]
            kept.append(executor.submit(functions.crash, "abort").exception(PATIENCE))
            kept.append(executor.submit(functions.square, lambda: 1).exception(PATIENCE))
            self.assert_nothing_is_left()
            self.assertEqual([type(error.__cause__).__name__ for error in kept], ["RemoteTraceback", "NoneType", "NoneType"])


if __name__ == "__main__":
    unittest.main()
