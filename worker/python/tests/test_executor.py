"""`Executor`: as `ProcessPoolExecutor`, but for what a crash costs."""

import concurrent.futures
import gc
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from unittest import mock

from offload import Executor, JobError, OffloadError, Rejected
from offload import _executor
from offload._executor import _Call, _Future

from . import functions
from .steps import interrupted_at
from .test_reading import started
from .workers import PATIENCE, eventually

PACKAGE = str(pathlib.Path(__file__).parents[1])


class Nested:
    """An argument that calls a function when it is pickled."""

    executor = None

    def __reduce__(self):
        return int, (self.executor.submit(functions.square, 2).result(PATIENCE),)


class WithLog(unittest.TestCase):
    def setUp(self):
        self.log = open(os.devnull, "w")
        self.addCleanup(self.log.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.go, self.said = f"{folder.name}/go", f"{folder.name}/said"

    def executor(self, workers=2, **options):
        made = Executor(workers, log=self.log, **options)
        self.addCleanup(made.shutdown)
        self.addCleanup(pathlib.Path(self.go).touch)
        return made


class Executors(WithLog):
    def test_map_and_submit_give_results(self):
        with self.executor() as executor:
            self.assertIsInstance(executor, concurrent.futures.Executor)
            self.assertEqual(list(executor.map(functions.square, range(500))), [n * n for n in range(500)])
            futures = {executor.submit(functions.square, n): n for n in range(50)}
            for future in concurrent.futures.as_completed(futures, PATIENCE):
                self.assertEqual(future.result(), futures[future] ** 2)
            self.assertEqual(executor.submit(pow, 2, 10, mod=1000).result(PATIENCE), 24)
            self.assertTrue(executor.submit(bytes, 8 << 20).result(PATIENCE) == bytes(8 << 20))

    def test_a_crash_costs_one_future(self):
        executor = self.executor()
        futures = []
        for n in range(60):
            futures.append(executor.submit(functions.square, n))
            if n % 20 == 10:
                futures.append(executor.submit(functions.crash, "abort" if n == 10 else "segfault"))
        outcomes = [future.exception(PATIENCE) for future in futures]
        crashed = [error for error in outcomes if error is not None]
        self.assertEqual([(e.outcome, e.signal) for e in crashed], [("worker_crashed", 6)] + [("worker_crashed", 11)] * 2)
        self.assertEqual(sum(error is None for error in outcomes), 60)
        self.assertEqual(executor.submit(functions.square, 5).result(PATIENCE), 25)

    def test_an_exception_comes_back_with_its_traceback(self):
        executor = self.executor()
        error = executor.submit(functions.fail, "because").exception(PATIENCE)
        self.assertIsInstance(error, ValueError)
        self.assertEqual(str(error), "because")
        self.assertIn("in fail\n    raise ValueError(why)", str(error.__cause__))
        error = executor.submit(functions.fail_strangely).exception(PATIENCE)
        self.assertEqual((type(error), str(error)), (RuntimeError, "Strange: one and two"))

    def test_what_cannot_be_pickled_is_the_exception_of_the_future(self):
        executor = self.executor()
        self.assertIsNotNone(executor.submit(lambda: 1).exception(PATIENCE))
        self.assertIsNotNone(executor.submit(eval, "lambda: 1").exception(PATIENCE))
        self.assertEqual(executor.submit(functions.square, 3).result(PATIENCE), 9)

    def test_a_call_that_takes_too_long_ends(self):
        executor = self.executor(timeout=0.2)
        error = executor.submit(functions.hang).exception(PATIENCE)
        self.assertIsInstance(error, JobError)
        self.assertEqual(error.outcome, "timeout")

    def test_calls_that_have_not_begun_can_be_cancelled(self):
        executor = self.executor(1)
        first = executor.submit(functions.wait_for, self.go, self.said)
        eventually(lambda: os.path.exists(self.said), "the start of the first call")
        others = [executor.submit(functions.square, n) for n in range(200)]
        self.assertTrue(others[-1].cancel())
        self.assertFalse(first.cancel())
        pathlib.Path(self.go).touch()
        self.assertEqual([future.result(PATIENCE) for future in others[:-1]], [n * n for n in range(199)])

    def test_a_shutdown_finishes_or_cancels_what_waits(self):
        for cancels in (False, True):
            executor = self.executor(1)
            executor.submit(functions.wait_for, self.go, self.said)
            futures = [executor.submit(functions.square, n) for n in range(200)]
            executor.shutdown(wait=False, cancel_futures=cancels)
            with self.assertRaises(RuntimeError):
                executor.submit(functions.square, 1)
            pathlib.Path(self.go).touch()
            executor.shutdown()
            self.assertEqual(any(future.cancelled() for future in futures), cancels)
            self.assertTrue(all(future.cancelled() or future.result() == n * n for n, future in enumerate(futures)))
            self.assertIsNotNone(executor._calls._pool._supervisor.process.poll())

    def test_a_shutdown_takes_back_the_calls_that_no_worker_has_begun(self):
        executor = self.executor(1)
        first = executor.submit(functions.wait_for, self.go, self.said)
        others = [executor.submit(functions.square, n) for n in range(4)]  # fewer than are sent ahead
        eventually(lambda: os.path.exists(self.said) and executor._calls._waiting.empty(), "that all are sent")
        eventually(lambda: len([job for job in executor._calls._pool._show("jobs") if job["state"] == "queued"]) == 4)
        executor.shutdown(wait=False, cancel_futures=True)
        self.assertEqual([future.cancelled() for future in concurrent.futures.wait(others, PATIENCE).done], [True] * 4)
        pathlib.Path(self.go).touch()
        self.assertIsInstance(first.result(PATIENCE), int)

    def test_a_shutdown_takes_back_the_call_that_waits_for_a_place(self):
        executor = self.executor(1)
        first = executor.submit(functions.wait_for, self.go, self.said)
        others = [executor.submit(functions.wait_for, self.go, self.said) for _ in range(11)]
        eventually(lambda: os.path.exists(self.said) and executor._calls._waiting.qsize() == 3, "that all places are taken")
        executor.shutdown(wait=False, cancel_futures=True)
        self.assertEqual([future.cancelled() for future in concurrent.futures.wait(others, PATIENCE).done], [True] * 11)
        pathlib.Path(self.go).touch()
        self.assertIsInstance(first.result(PATIENCE), int)

    def test_a_callback_may_shut_the_executor_down_and_may_raise(self):
        executor = self.executor(1)
        ended = []

        def shut_down(future):
            executor.shutdown()
            ended.append(future.result())
            sys.exit("a callback")

        first = executor.submit(functions.wait_for, self.go, self.said)
        first.add_done_callback(shut_down)
        second = executor.submit(functions.square, 3)
        with self.assertLogs("concurrent.futures") as said:
            pathlib.Path(self.go).touch()
            self.assertEqual(second.result(PATIENCE), 9)
        self.assertEqual(len(ended), 1)
        self.assertIn("SystemExit: a callback", said.output[0])

    def test_answers_are_read_while_a_callback_takes_long(self):
        """For 10 s: then the supervisor closes a connection that does not take them."""
        executor, are_read = self.executor(2), []

        def take_long(_):
            requests = executor._calls._pool._connection._dialogue.requests
            are_read.append(eventually(lambda: not requests, "that all answers are read"))

        executor.submit(functions.wait_for, self.go, self.said).add_done_callback(take_long)
        others = [executor.submit(bytes, 4 << 20) for _ in range(8)]
        pathlib.Path(self.go).touch()
        self.assertEqual([len(other.result(PATIENCE)) for other in others], [4 << 20] * 8)
        self.assertEqual(are_read, [True])

    def test_a_function_may_call_sys_exit(self):
        self.assertEqual(self.executor(1).submit(sys.exit, 3).exception(PATIENCE).code, 3)

    def test_an_executor_that_was_dropped_ends_when_its_calls_have(self):
        executor = Executor(1, log=self.log)
        future = executor.submit(functions.square, 3)
        self.assertEqual(future.result(PATIENCE), 9)
        process = executor._calls._pool._supervisor.process
        del executor
        eventually(lambda: gc.collect() and False or process.poll() is not None, "the end of the supervisor")

    def test_a_place_of_modules_may_be_a_path(self):
        sys.path.append(pathlib.Path(tempfile.gettempdir()))
        self.addCleanup(sys.path.pop)
        self.assertEqual(self.executor(1).submit(functions.square, 3).result(PATIENCE), 9)

    def test_workers_are_initialized_and_replaced(self):
        executor = self.executor(1, initializer=functions.initialize, initargs=("x",), max_tasks_per_child=2)
        self.assertEqual(executor.submit(functions.get_given).result(PATIENCE), "x")
        first = executor.submit(functions.process).result(PATIENCE)
        eventually(lambda: executor.submit(functions.process).result(PATIENCE) != first, "that the worker is replaced")
        self.assertEqual(executor.submit(functions.get_given).result(PATIENCE), "x")

    def test_an_initializer_that_fails_is_an_error_of_all_futures(self):
        executor = self.executor(1, initializer=functions.fail, initargs=("at the start",))
        error = executor.submit(functions.square, 1).exception(PATIENCE)
        self.assertIsInstance(error, OffloadError)
        self.assertIn("at the start", str(error))

    def test_workers_have_the_environment_of_the_program(self):
        os.environ["OF_THE_PROGRAM"] = "häuser"
        self.addCleanup(os.environ.pop, "OF_THE_PROGRAM")
        self.assertEqual(self.executor().submit(functions.environment, "OF_THE_PROGRAM").result(PATIENCE), "häuser")

    def test_a_call_ends_once_whoever_tells_its_end(self):
        executor = self.executor(1)
        call = _Call(_Future(), b"")
        call.future.set_running_or_notify_cancel()
        executor._calls._free.acquire()
        for _ in range(2):
            executor._calls._finish(call, error=OffloadError("it is gone"))
        self.assertIsInstance(call.future.exception(0), OffloadError)
        self.assertEqual(executor.submit(functions.square, 2).result(PATIENCE), 4)

    def test_a_supervisor_that_is_killed_ends_all_futures(self):
        executor = self.executor(1)
        futures = [executor.submit(functions.wait_for, self.go, self.said)] + [executor.submit(functions.square, n) for n in range(99)]
        eventually(lambda: os.path.exists(self.said), "the start of the first call")
        executor._calls._pool._supervisor.process.kill()
        self.assertTrue(all(isinstance(future.exception(PATIENCE), OffloadError) for future in futures))

    def test_functions_of_the_program_itself_are_found(self):
        program = """
        from offload import Executor
        def cube(n):
            return n ** 3
        if __name__ == "__main__":
            with Executor(2) as executor:
                print(list(executor.map(cube, range(4))))
        """
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program.py")
            path.write_text(textwrap.dedent(program))
            environment = {**os.environ, "PYTHONPATH": PACKAGE}
            output = subprocess.run(
                [sys.executable, str(path)], env=environment, stdout=subprocess.PIPE, stderr=self.log, timeout=PATIENCE
            )
        self.assertEqual(output.stdout, b"[0, 1, 8, 27]\n")

    def test_an_executor_that_nobody_uses_is_shut_down(self):
        executor = self.executor(1)
        executor.shutdown()
        with self.assertRaises(ValueError):
            Executor(0)
        with self.assertRaises(ValueError):
            Executor(1, timeout=-1)
        with self.assertRaises(ValueError):
            Executor(1, max_tasks_per_child=0)

    def test_an_argument_may_submit_a_call_when_it_is_pickled(self):
        Nested.executor = executor = self.executor(1)
        submits = started(lambda: executor.submit(functions.square, Nested()).result(PATIENCE))
        submits.join(PATIENCE)
        self.assertEqual(submits.results, [16])

    def test_a_shutdown_that_cancels_does_not_wait_for_the_start(self):
        executor = self.executor(1, initializer=functions.wait_for, initargs=(self.go, self.said))
        futures = [executor.submit(functions.square, n) for n in range(5)]
        eventually(lambda: os.path.exists(self.said), "the start of the worker")
        ends = started(lambda: executor.shutdown(wait=False, cancel_futures=True))
        ends.join(PATIENCE / 2)
        self.assertEqual(ends.results, [None])
        pathlib.Path(self.go).touch()
        concurrent.futures.wait(futures, PATIENCE)
        self.assertEqual([future.cancelled() for future in futures], [True] * 5)


class Failures(WithLog):
    """Of its threads, and of those who submit: whatever happens, each future ends."""

    def test_without_threads_there_is_no_executor_and_its_supervisor_ends(self):
        start, pools = threading.Thread.start, []

        def made(*arguments, **options):
            pools.append(pool(*arguments, **options))
            return pools[-1]

        pool = _executor.Pool
        for name in ("offload answers", "offload futures", "offload executor"):

            def start_others(thread, name=name):
                if thread.name == name:
                    raise RuntimeError("can't start new thread")
                start(thread)

            with mock.patch.object(threading.Thread, "start", start_others), mock.patch.object(_executor, "Pool", made):
                with self.assertRaises(RuntimeError):
                    self.executor(1).submit(functions.square, 1)
            process = pools[-1]._supervisor.process
            self.assertTrue(process is None or process.poll() is not None)

    def test_a_call_for_which_there_was_no_room_ends_if_it_cannot_be_sent_later(self):
        calls = self.executor(1)._calls
        call = _Call(_Future(), b"")
        call.future.set_running_or_notify_cancel()
        calls._free.acquire()
        calls._to_tell.put(None)
        eventually(lambda: calls._tells_no_more, "the end of the thread that tells")
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
            calls._answered(call, mock.Mock(error=Rejected("overloaded", "no room")))
        self.assertIsInstance(call.future.exception(0), Rejected)

    def test_a_failure_of_the_thread_that_sends_ends_all_futures(self):
        executor = self.executor(1)
        with mock.patch.object(executor._calls, "_send_next", side_effect=MemoryError), mock.patch.object(threading, "excepthook"):
            first = executor.submit(functions.wait_for, self.go, self.said)
            others = []
            with self.assertRaises(RuntimeError):
                while True:
                    others.append(executor.submit(functions.square, 1))
            self.assertIsInstance(first.exception(PATIENCE), OffloadError)
            concurrent.futures.wait(others, PATIENCE)
            self.assertTrue(all(future.done() for future in others))
            executor.shutdown()

    def test_a_failure_of_the_thread_that_tells_keeps_no_future_waiting(self):
        executor = self.executor(1)
        with mock.patch.object(executor._calls, "_tell_next", side_effect=MemoryError), mock.patch.object(threading, "excepthook"):
            for n in range(3):
                self.assertEqual(executor.submit(functions.square, n).result(PATIENCE), n * n)
            eventually(lambda: executor._calls._tells_no_more, "the end of the thread that tells")
        self.assertEqual(executor.submit(functions.square, 3).result(PATIENCE), 9)
        executor.shutdown()

    def test_a_failure_of_the_thread_that_reads_ends_its_futures_and_no_later_ones(self):
        executor = self.executor(1)
        with mock.patch.object(_executor.Connection, "wait_for_loss", side_effect=MemoryError), self.assertLogs("concurrent.futures"):
            lost = executor.submit(functions.wait_for, self.go, self.said)
            self.assertIsInstance(lost.exception(PATIENCE), OffloadError)
        pathlib.Path(self.go).touch()
        self.assertEqual(executor.submit(functions.square, 3).result(PATIENCE), 9)

    def test_a_call_that_cannot_be_sent_costs_no_other(self):
        executor = self.executor(1)
        with mock.patch.object(executor._calls._pool, "ask", side_effect=MemoryError):
            self.assertIsInstance(executor.submit(functions.square, 3).exception(PATIENCE), MemoryError)
        self.assertEqual(executor.submit(functions.square, 3).result(PATIENCE), 9)

    def test_a_submit_that_is_interrupted_between_any_two_steps_leaves_the_executor_to_others(self):
        executor, step = self.executor(1), 1
        while interrupted_at(step, lambda: executor.submit(functions.square, 2), _executor.__file__):
            submits = started(lambda: executor.submit(functions.square, 3).result(PATIENCE))
            submits.join(PATIENCE)
            self.assertEqual(submits.results, [9], f"after an interrupt at step {step}")
            step += 1
        self.assertGreater(step, 20)


if __name__ == "__main__":
    unittest.main()
