"""Calls from coroutines, to a private supervisor."""

import asyncio
import os
import pathlib
import socket
import sys
import tempfile
import threading
import unittest
import weakref
from unittest import mock

from offload import AsyncClient, ConnectionLost, JobError, NoSupervisor, OutputError, Payload, Pool, Rejected
from offload import _messages as messages
from offload._address import connect_now
from offload._async_client import _Connection
from offload._wire import frame

from . import workers
from .workers import PATIENCE, eventually_of_loop


class WithPool(unittest.IsolatedAsyncioTestCase):
    """One pool for all tests of a class; each has a loop of its own."""

    @classmethod
    def setUpClass(cls):
        cls.log = open(os.devnull, "w")
        cls.pool = Pool(worker=workers.__file__, workers=2, log=cls.log)
        cls.pool.wait_until_ready()

    @classmethod
    def tearDownClass(cls):
        cls.pool.close()
        cls.log.close()

    async def asyncSetUp(self):
        self.client = self.pool.async_client()
        self.addAsyncCleanup(self.client.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "runs")

    async def running(self):
        """The process that runs the job `wait`, once it does."""

        async def said():
            return self.file.exists() and self.file.read_text().strip()

        return int((await eventually_of_loop(said, "the start of the job")).split()[-1])

    async def nothing_runs(self):
        async def question():
            status = await self.client.status()
            return status["jobs"]["running"] == 0 and status["jobs"]["queued"] == 0

        await eventually_of_loop(question, "the end of all jobs")


class Calls(WithPool):
    async def test_an_input_comes_back_whatever_its_length(self):
        for length in (0, 1, 32 << 10, 64 << 10, 8 << 20):
            data = os.urandom(length)
            self.assertTrue(await self.client.call("echo", data) == data, f"{length} bytes did not come back")

    async def test_an_output_comes_as_it_is_if_it_is_asked_for_raw(self):
        made = Payload(b"\xff", "text/plain")
        with self.assertRaises(OutputError) as failed:
            await self.client.call("mirror", made)
        self.assertEqual((failed.exception.data, failed.exception.content_type), made)
        self.assertEqual(await self.client.map("mirror", [made], raw=True), [made])

    async def test_a_hundred_tasks_of_one_loop_call_at_once(self):
        async def many(start):
            return [await self.client.call("square", n) for n in range(start, start + 10)]

        results = await asyncio.gather(*(many(start) for start in range(0, 1000, 10)))
        self.assertEqual([result for some in results for result in some], [n * n for n in range(1000)])

    async def test_more_jobs_than_may_be_in_flight_are_all_done(self):
        client = AsyncClient(self.pool.socket, max_in_flight=5)
        self.addAsyncCleanup(client.close)
        self.assertEqual(await client.map("square", range(200)), [n * n for n in range(200)])

    async def test_large_inputs_and_outputs_do_not_wait_for_each_other(self):
        data = os.urandom(1 << 20)
        self.assertTrue(all(output == data for output in await self.client.map("echo", [data] * 40)))

    async def test_large_inputs_are_written_one_after_the_other(self):
        tell, waiting = _Connection.tell, []

        def told(connection, *arguments):
            waiting.append(connection._transport.get_write_buffer_size())
            return tell(connection, *arguments)

        await self.client.status()
        with mock.patch.object(_Connection, "tell", told):
            await self.client.map("mirror", [bytes(4 << 20)] * 8)
        self.assertLess(max(waiting), 1 << 20, "what waits in memory when another input is written")

    async def test_the_loop_goes_on_while_a_job_runs(self):
        call = asyncio.ensure_future(self.client.call("wait", str(self.file)))
        await self.running()
        self.assertFalse(call.done())
        self.file.unlink()
        self.assertIsNone(await call)

    async def test_views(self):
        self.assertEqual((await self.client.status())["state"], "running")
        self.assertIn("square", [task["name"] for task in await self.client.tasks()])


class Failures(WithPool):
    async def test_a_crash_costs_exactly_its_own_call(self):
        calls = [self.client.call("slow_square", n) for n in range(30)] + [self.client.call("crash", "abort")]
        *squares, crashed = await asyncio.gather(*calls, return_exceptions=True)
        self.assertEqual(squares, [n * n for n in range(30)])
        self.assertIsInstance(crashed, JobError)
        self.assertEqual((crashed.outcome, crashed.signal), ("worker_crashed", 6))

    async def test_errors_are_those_of_the_other_client(self):
        with self.assertRaises(Rejected) as rejected:
            await self.client.call("no-such-task", 1)
        self.assertEqual(rejected.exception.code, "unknown_task")
        with self.assertRaises(JobError) as failed:
            await self.client.call("fails", "because")
        self.assertEqual((failed.exception.outcome, failed.exception.message), ("app_error", "because"))
        with self.assertRaises(JobError) as failed:
            await self.client.call("hang", 1, timeout=0.1)
        self.assertEqual(failed.exception.outcome, "timeout")
        with self.assertRaises(Rejected) as rejected:
            await self.client.call("echo", bytes((64 << 20) + 1))
        self.assertEqual(rejected.exception.code, "too_large")

    async def test_cancelling_a_call_cancels_its_job(self):
        call = asyncio.ensure_future(self.client.call("wait", str(self.file)))
        process = await self.running()
        before = (await self.client.status())["jobs"]["cancelled"]
        call.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await call
        await self.nothing_runs()
        self.assertEqual((await self.client.status())["jobs"]["cancelled"], before + 1)
        self.assertTrue(workers.is_alive(process), "the task has heard of it and returned")

    async def test_cancelling_a_call_leaves_a_job_with_a_key_to_others(self):
        call = asyncio.ensure_future(self.client.call("wait", str(self.file), idempotency_key="left"))
        await self.running()
        before = (await self.client.status())["jobs"]["cancelled"]
        call.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await call
        self.assertEqual((await self.client.status())["jobs"]["running"], 1)
        self.file.unlink()
        await self.client.call("wait", str(self.file), idempotency_key="left")
        self.assertEqual((await self.client.status())["jobs"]["cancelled"], before)

    async def test_a_call_that_is_cancelled_at_once_leaves_no_job(self):
        await self.client.status()
        for _ in range(20):
            call = asyncio.ensure_future(self.client.call("hang", 1))
            await asyncio.sleep(0)
            call.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await call
        await self.nothing_runs()

    async def test_a_call_that_is_cancelled_when_its_connection_is_there_leaves_no_job(self):
        received, calls = _Connection.data_received, []

        def received_and_cancelled(connection, data):
            was_open = connection.dialogue.is_open
            received(connection, data)
            if connection.dialogue.is_open and not was_open:
                calls[0].cancel()

        with mock.patch.object(_Connection, "data_received", received_and_cancelled):
            calls.append(asyncio.ensure_future(self.client.call("hang", 1)))
            await asyncio.wait(calls, timeout=PATIENCE)
        self.assertTrue(calls[0].cancelled(), calls)
        await self.nothing_runs()

    async def test_a_call_has_the_time_that_asyncio_gives_it(self):
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(self.client.call("hang", 1), 0.1)
        await self.nothing_runs()

    async def test_a_map_that_fails_cancels_the_rest(self):
        with self.assertRaises(JobError):
            await self.client.map("crash", ["segfault"] + [""] * 50)
        await self.nothing_runs()

    async def test_a_map_that_fails_has_cancelled_the_rest_when_it_says_so(self):
        async def fails(file):
            async with self.pool.async_client() as client:
                await client.map("wait", [file, "x" * (1 << 20)])  # the second is no name of a file

        with self.assertRaises(JobError):
            await fails(str(self.file))
        self.assertEqual(asyncio.all_tasks() - {asyncio.current_task()}, set())
        await self.nothing_runs()

    async def test_a_map_takes_an_input_when_there_is_a_place_for_it_and_none_after_a_failure(self):
        taken = 0

        def inputs():
            nonlocal taken
            for taken in range(1, 1001):
                yield str(self.file) if taken > 1 else "x" * (1 << 20)  # the first is no name of a file

        client = AsyncClient(self.pool.socket, max_in_flight=10)
        self.addAsyncCleanup(client.close)
        with self.assertRaises(JobError):
            await client.map("wait", inputs())
        self.assertLessEqual(taken, 10)
        await self.nothing_runs()

    async def test_a_map_whose_inputs_end_with_an_error_submits_nothing(self):
        def inputs():
            yield from [str(self.file)] * 5
            raise LookupError("no more")

        accepted = (await self.client.status())["jobs"]["accepted"]
        before = asyncio.all_tasks()
        with self.assertRaises(LookupError):
            await self.client.map("wait", inputs())
        await asyncio.wait(asyncio.all_tasks() - before | {asyncio.ensure_future(self.client.status())}, timeout=PATIENCE)
        self.assertEqual((await self.client.status())["jobs"]["accepted"], accepted)


class Streams(WithPool):
    async def test_the_parts_of_an_output_come_one_by_one(self):
        parts = [part async for part in self.client.stream("count", 500)]
        self.assertEqual(b"".join(parts), b"".join(b"%d\n" % n for n in range(500)))

    async def test_a_reader_that_is_slow_makes_the_task_wait_and_nobody_else(self):
        parts = self.client.stream("flood", 1000)
        self.assertEqual(await parts.__anext__(), b"x" * 65536)
        self.assertEqual(await self.client.call("square", 4), 16)
        self.assertEqual((await self.client.status())["jobs"]["running"], 1)
        received = 0
        async for part in parts:
            received += len(part)
        self.assertEqual(received, 999 * 65536)

    async def test_who_stops_reading_cancels_the_job(self):
        parts = self.client.stream("flood", 100_000)
        await parts.__anext__()
        await parts.aclose()
        await self.nothing_runs()

    async def test_an_error_comes_after_the_parts(self):
        received = []
        with self.assertRaises(JobError):
            async for part in self.client.stream("count", 2, metadata={"fail": "yes"}):
                received.append(part)
        self.assertEqual(received, [b"0\n", b"1\n"])


class Supervisors(unittest.IsolatedAsyncioTestCase):
    async def test_a_pool_is_an_async_client_within_its_block(self):
        with workers.quiet() as log:
            pool = Pool(log=log)
            async with pool as client:
                self.assertEqual((await client.call("primes", "1000"))["count"], 168)
                process = pool._supervisor.process
            self.assertEqual(process.poll(), 0)

    async def test_a_client_of_a_pool_that_starts_waits_for_it(self):
        with workers.quiet() as log:
            for first in ("call", "status", "stream"):
                pool = Pool(log=log, workers=1)
                self.addCleanup(pool.close)
                client = pool.async_client()
                self.addAsyncCleanup(client.close)
                if first == "call":
                    self.assertEqual(await client.call("echo", "soon"), "soon")
                elif first == "status":
                    self.assertEqual((await client.status())["state"], "running")
                else:
                    self.assertEqual([part async for part in client.stream("echo", b"soon")], [b"soon"])

    async def test_a_client_of_a_pool_says_why_it_does_not_start(self):
        with workers.quiet() as log:
            pool = Pool(worker=["no-such-program"], log=log)
            self.addCleanup(pool.close)
            with self.assertRaises(NoSupervisor) as refused:
                await pool.async_client().call("echo", b"")
            self.assertIn("no `no-such-program` in PATH", str(refused.exception))

    async def test_a_worker_that_cannot_start_is_an_error(self):
        with workers.quiet() as log, self.assertRaises(NoSupervisor):
            async with Pool(worker="no-such.py", log=log):
                pass

    async def test_a_supervisor_that_is_killed_ends_the_calls_that_wait(self):
        with workers.quiet() as log:
            pool = Pool(worker=workers.__file__, workers=1, log=log)
            async with pool as client:
                calls = [asyncio.ensure_future(client.call("hang", 1)) for _ in range(10)]

                async def accepted(client=client):
                    return (await client.status())["jobs"]["accepted"] == 10

                await eventually_of_loop(accepted, "that all are accepted")
                pool._supervisor.process.kill()
                for lost in await asyncio.gather(*calls, return_exceptions=True):
                    self.assertIsInstance(lost, ConnectionLost)
                    self.assertEqual(lost.outcome, "indeterminate")
                with self.assertRaises(NoSupervisor):
                    await client.call("square", 1)

    async def test_a_call_finds_the_supervisor_that_was_started_again(self):
        """Also if the loop had no time to notice the end of the one before."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "socket")
            client = AsyncClient(path)
            self.addAsyncCleanup(client.close)
            for data in (b"1", b"2", b"3"):
                with workers.supervisor(path):
                    self.assertEqual(await client.call("echo", data), data)
            with workers.supervisor(path):
                self.assertEqual((await client.status())["state"], "running")
            with self.assertRaises(NoSupervisor):
                await client.call("echo", b"4")

    async def test_nobody_listens(self):
        with self.assertRaises(NoSupervisor):
            await AsyncClient("/no/such/socket").call("square", 1)

    async def test_other_versions_and_other_programs_are_named(self):
        welcome = messages.TO_CLIENT.encode(messages.ClientWelcome(b"OFFLOADC", 2, 0, 0, 1 << 20))
        for answer, reason in ((frame(welcome), "protocol 2.0, this package 3.0"), (b"HTTP/1.1 400\r\n", "no supervisor"), (b"", "closed")):
            with tempfile.TemporaryDirectory() as folder:

                async def serve(reader, writer, answer=answer):
                    await reader.read(4096)
                    writer.write(answer)
                    writer.close()

                server = await asyncio.start_unix_server(serve, f"{folder}/socket")
                with self.assertRaises(NoSupervisor) as refused:
                    await AsyncClient(f"{folder}/socket").call("square", 1)
                server.close()
            self.assertIn(reason, str(refused.exception))


class Loops(unittest.TestCase):
    def test_a_loop_may_begin_while_the_client_looks_for_those_that_have_ended(self):
        client, begun = AsyncClient("nowhere"), []

        class Loop:
            def is_closed(self):
                return False

        def begin(frame, event, _):
            if frame.f_code.co_filename == weakref.__file__ and frame.f_code.co_name in ("items", "keyrefs"):
                begun.append(Loop())
                client._loops.data[weakref.ref(begun[-1])] = None
            return begin

        begin_one = Loop()
        client._loops[begin_one] = None
        sys.settrace(begin)
        try:
            client._drop_closed_loops()
        finally:
            sys.settrace(None)
        self.assertTrue(begun)

    def test_one_client_serves_several_loops_and_threads(self):
        with workers.quiet() as log, Pool(worker=workers.__file__, workers=2, log=log) as pool:
            client, results = pool.async_client(), {}

            async def use(number):
                results[number] = await client.map("square", range(number, number + 20))
                await client.close()

            threads = [threading.Thread(target=lambda n=n: asyncio.run(use(n))) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            self.assertEqual(results, {n: [m * m for m in range(n, n + 20)] for n in range(4)})

    def test_a_loop_whose_call_is_cancelled_ends_while_the_pool_still_starts(self):
        async def block(pool):
            async with pool:
                self.fail("it is not ready")

        async def outlast(pool, wait):
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(wait(pool), 0.05)
            ended.append(pool)

        ended = []
        with workers.quiet() as log:
            for wait in (block, lambda pool: pool.async_client().call("echo", b"")):
                pool = Pool(worker=["sleep", "3600"], log=log)  # a worker that never says hello
                self.addCleanup(pool.close)
                thread = threading.Thread(target=asyncio.run, args=(outlast(pool, wait),), daemon=True)
                thread.start()
                thread.join(PATIENCE)
                self.assertFalse(thread.is_alive(), "the loop waits for the pool")
                self.assertIs(ended[-1], pool)

    def test_a_supervisor_that_accepts_nobody_for_a_while_is_waited_for_without_a_thread(self):
        async def call(path, listener, connected):
            asked = asyncio.ensure_future(AsyncClient(path).call("square", 1))
            while not connected.called:
                await asyncio.sleep(0.001)
            for _ in range(2):  # the one before, and this one
                end = await asyncio.get_running_loop().sock_accept(listener)
                end[0].close()
            with self.assertRaises(NoSupervisor) as refused:
                await asked
            self.assertIn("does not answer", str(refused.exception))

        listener, before = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        with tempfile.TemporaryDirectory() as folder, listener, before:
            path = os.path.join(folder, "socket")
            listener.bind(path)
            listener.listen(0)
            listener.setblocking(False)
            before.connect(path)
            in_thread = mock.patch.object(asyncio.BaseEventLoop, "run_in_executor", side_effect=AssertionError("on a thread"))
            with in_thread, mock.patch("offload._async_client.connect_now", wraps=connect_now) as connected:
                asyncio.run(asyncio.wait_for(call(path, listener, connected), PATIENCE))
            self.assertGreater(connected.call_count, 1)

    def test_a_pool_may_be_used_while_a_loop_runs_as_in_a_notebook(self):
        async def cell():
            with workers.quiet() as log, Pool(log=log) as pool:
                return pool.call("echo", "hello")

        self.assertEqual(asyncio.run(cell()), "hello")


if __name__ == "__main__":
    unittest.main()
