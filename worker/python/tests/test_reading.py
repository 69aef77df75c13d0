"""Who reads a connection, and when: also while nobody waits, and although those who read are interrupted."""

import contextlib
import gc
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest
import warnings
import weakref
from unittest import mock

from offload import Client, ConnectionLost, OffloadError
from offload import _connection, _dialogue, _turns
from offload import _messages as messages
from offload._wire import WireError

from .fake_listener import FakeListener
from .steps import interrupted_at
from .test_client import WithPool
from .workers import PATIENCE, eventually

def started(function):
    """A thread that runs it, and in `results` what came of it."""
    results = []

    def run():
        try:
            results.append(function())
        except OffloadError as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.results = results
    thread.start()
    return thread


class Reading(unittest.TestCase):
    def setUp(self):
        self.listener = FakeListener().__enter__()
        self.addCleanup(self.listener.__exit__)
        self.client = Client(self.listener.path)
        self.addCleanup(self.client.close)

    def submitted(self, *arguments, **options):
        """A job that the listener has got, and its end of the connection."""
        thread = started(lambda: self.client.submit(*arguments, **options))
        end = self.listener.accept()
        end.receive()
        thread.join(PATIENCE)
        return thread.results[0], end

    def test_a_thread_that_has_sent_a_large_input_leaves_the_reading_to_one_that_waits(self):
        job, end = self.submitted("t")
        sends = started(lambda: self.client.submit("t", bytes(16 << 20)))
        eventually(lambda: len(self.client._connection._dialogue.requests) == 2, "the start of the large input")
        waits = started(job.result)
        eventually(lambda: job._request.waiters, "somebody to wait")
        end.receive()
        sends.join(PATIENCE)
        end.finishes(1, b"out")
        waits.join(PATIENCE)
        self.assertEqual(waits.results, [b"out"])

    def test_results_are_read_while_the_program_does_something_else(self):
        job, end = self.submitted("t")
        end.accepts(1)
        end.finishes(1, bytes(16 << 20))  # more than fits on the way
        self.assertEqual(len(job.result()), 16 << 20)

    def test_a_stream_is_read_ahead(self):
        parts = self.client.stream("t")
        first = started(lambda: next(parts))
        end = self.listener.accept()
        end.receive()
        for _ in range(100):
            end.send(messages.JobPart(1), bytes(64 << 10))
        first.join(PATIENCE)
        end.finishes(1)
        end.close()
        self.assertEqual(sum(map(len, parts)), 99 << 16)

    def test_done_reads_what_has_come(self):
        job, end = self.submitted("t")
        self.assertFalse(job.done())
        end.finishes(1)
        eventually(job.done, "the end of the job")

    def test_a_connection_that_the_program_has_dropped_is_closed(self):
        with FakeListener() as listener, warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            client = Client(listener.path)
            submits = started(lambda: weakref.ref(client.submit("t")._request.connection))
            end = listener.accept()
            end.receive()
            submits.join(PATIENCE)
            del client
            eventually(lambda: gc.collect() and False or submits.results[0]() is None, "the end of the connection")
            with self.assertRaises(EOFError):
                end.receive()


    def test_a_call_returns_although_signals_come_more_often_than_it_looks_and_a_handler_has_read_its_answer(self):
        job, end = self.submitted("t")
        signals = []

        def handle(*_):
            signals.append(1)
            self.assertLess(len(signals), 100, "the call waits for ever")
            if len(signals) == 1:
                end.finishes(1, b"out")
                eventually(job.done)

        before = signal.signal(signal.SIGALRM, handle)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.1)
        self.assertEqual(job.result(), b"out")

    def test_a_call_does_not_wait_for_an_answer_that_another_thread_has_read_in_the_last_moment(self):
        job, end = self.submitted("t")
        connection = self.client._connection
        may_look = connection._may_look

        def read_before(me):
            end.finishes(1, b"out")
            eventually(lambda: connection.read_for_others() or job._request.is_done)
            return may_look(me)

        with mock.patch.object(connection, "_may_look", read_before), mock.patch.object(_connection, "CHECK_EVERY", 3600):
            waits = started(job.result)
            waits.join(PATIENCE)
        self.assertEqual(waits.results, [b"out"])

    def test_a_signal_handler_that_takes_long_keeps_no_other_thread_from_its_answer(self):
        job, end = self.submitted("t")
        other = self.client.submit("t")
        connection, held, over = self.client._connection, threading.Event(), threading.Event()
        ready_for = connection._ready_for

        def hold(interest, seconds):
            if not held.is_set():  # the first one who waits, and a signal handler comes
                held.set()
                over.wait(PATIENCE)
            return ready_for(interest, seconds)

        soon = [mock.patch.object(_turns, "CHECK_EVERY", 0.02), mock.patch.object(_connection, "_STALE", 0.05)]
        with soon[0], soon[1], mock.patch.object(connection, "_ready_for", hold):
            waits = started(job.result)
            self.assertTrue(held.wait(PATIENCE))
            others = started(other.result)
            end.finishes(2, b"2")
            others.join(PATIENCE)
            first = list(others.results)
            end.finishes(1, b"1")
            over.set()
            waits.join(PATIENCE)
        self.assertEqual((first, waits.results), ([b"2"], [b"1"]))

    def test_a_call_ends_whatever_has_kept_another_thread_from_noting_its_answer(self):
        for failure in (KeyboardInterrupt, MemoryError, WireError("malformed", "an answer")):
            with self.subTest(failure), FakeListener() as listener, Client(listener.path) as client:
                submits = started(lambda: (client.submit("t"), client.submit("t")))  # noqa: B023
                end = listener.accept()
                end.receive()
                submits.join(PATIENCE)
                (job, other), dialogue = submits.results[0], client._connection._dialogue
                with mock.patch.object(dialogue, "_end", side_effect=failure), contextlib.suppress(KeyboardInterrupt, MemoryError):
                    end.finishes(1, b"out")
                    eventually(other.done)
                waits = started(job.result)
                waits.join(PATIENCE)
                self.assertEqual(list(map(type, waits.results)), [ConnectionLost])

    def test_only_the_one_who_looks_reads(self):
        job, end = self.submitted("t")
        connection = self.client._connection
        end.finishes(1)
        eventually(lambda: connection._ready_for(select.POLLIN, 0))
        connection._looking, connection._looked = mock.Mock(), time.monotonic() + PATIENCE
        connection.read_for_others()
        self.assertFalse(job._request.is_done)
        connection._looking = None
        connection.read_for_others()
        self.assertTrue(job._request.is_done)

    def test_a_sleeper_that_has_gone_without_a_word_misses_one_call_at_most(self):
        self.submitted("t")
        connection = self.client._connection
        gone, sleeps = mock.Mock(), mock.Mock()
        connection._asleep.extend((gone, sleeps))
        connection.look_now()
        connection.look_now()
        self.assertEqual([(waiter.wake.call_count) for waiter in (gone, sleeps)], [1, 1])


class Turns(unittest.TestCase):
    """Two functions of one thread take a turn, as a call and the signal handler that interrupts it."""

    def setUp(self):
        self.turn = _turns.Turn()

    def interrupted(self, is_waiting, handler):
        me = _turns.Waiter()
        try:
            self.turn.take(me)
            me.only_waits = is_waiting
            return handler()
        finally:
            self.turn.leave(me)

    def handler(self):
        me = _turns.Waiter()
        try:
            self.turn.take(me)
            return "done"
        finally:
            self.turn.leave(me)

    def test_a_handler_goes_before_a_call_that_only_waits(self):
        self.assertEqual(self.interrupted(True, self.handler), "done")
        self.assertEqual(list(self.turn._line), [])

    def test_a_handler_goes_before_a_call_that_is_in_line(self):
        """Which it is told as soon as the thread before both leaves, and then that call goes on in its turn."""

        def hold():
            me = _turns.Waiter()
            try:
                self.turn.take(me)
                eventually(lambda: len(self.turn._line) == 3)
            finally:
                self.turn.leave(me)

        sleep = _turns.Waiter.sleep

        def interrupted(waiter, end=None):
            """A signal handler comes before the first one sleeps."""
            patch.stop()
            results.append(self.handler())
            return sleep(waiter, end)

        holds, results = started(hold), []
        eventually(lambda: self.turn._line)
        patch = mock.patch.object(_turns.Waiter, "sleep", interrupted)
        with mock.patch.object(_turns, "CHECK_EVERY", 3600):
            patch.start()
            call = started(self.handler)
            for thread in (holds, call):
                thread.join(PATIENCE)
        self.assertEqual(results + call.results, ["done", "done"])
        self.assertEqual(list(self.turn._line), [])

    def test_whoever_comes_when_the_first_leaves_is_no_signal_handler(self):
        other = _turns.Waiter()
        other.thread = -1

        class Line(list):
            """The first one leaves just after somebody has looked for the second time."""

            looks = 0

            def __getitem__(self, place):
                found = super().__getitem__(place)
                self.looks += 1
                if self.looks == 2:
                    self.remove(other)
                return found

        self.turn._line = Line([other])
        with mock.patch.object(_turns, "CHECK_EVERY", 0.001):
            self.assertEqual(self.handler(), "done")

    def test_a_handler_that_would_wait_for_its_own_thread_says_so(self):
        with self.assertRaises(OffloadError) as refused:
            self.interrupted(False, self.handler)
        self.assertIn("this signal handler has interrupted a call", str(refused.exception))
        self.assertEqual(self.handler(), "done")

    def test_a_turn_whose_function_has_ended_without_leaving_it_is_free(self):
        def lose():
            me = _turns.Waiter()
            self.turn.take(me)

        lose()
        self.assertEqual(self.handler(), "done")
        lose()
        thread = started(self.handler)
        thread.join(PATIENCE)
        self.assertEqual(thread.results, ["done"])

    def test_a_turn_is_not_taken_from_a_thread_whose_stack_changes_while_it_is_looked_at(self):
        seen = mock.MagicMock(f_lasti=1, f_back=None)
        me = _turns.Waiter()
        me.thread = -1
        for changes, is_in_use in ((False, False), (True, True)):
            stacks = [{-1: mock.MagicMock(f_lasti=1, f_back=None) if changes else seen} for _ in range(4)]
            with mock.patch.object(_turns.sys, "_current_frames", mock.Mock(side_effect=stacks)):
                self.assertEqual(me.is_in_use(), is_in_use)
        with mock.patch.object(me.__class__, "_may_be_in_use", mock.Mock(side_effect=[False, True])):
            self.assertTrue(me.is_in_use(), "it was asked once only")

    def test_whoever_was_struck_out_of_the_line_gets_into_it_again(self):
        me = _turns.Waiter()
        try:
            self.turn.take(me)
            thread = started(self.handler)
            eventually(lambda: len(self.turn._line) == 2)
            self.turn._line.pop()
        finally:
            self.turn.leave(me)
        thread.join(PATIENCE)
        self.assertEqual(thread.results, ["done"])


class Held(unittest.TestCase):
    def test_a_stream_that_nobody_reads_is_not_read_further_and_its_end_says_why(self):
        dialogue, request = _dialogue.Dialogue("there"), _dialogue.Request()
        dialogue.payload_max = 1 << 20
        dialogue.ask(lambda ticket: b"header", request)
        request.state = _dialogue.SENT
        while not request.is_full:
            self.assertFalse(dialogue.note_held(100.0))
            request.part_came(bytes(64 << 10))
        self.assertAlmostEqual(sum(map(len, request.parts)), 8 << 20, delta=1 << 17)
        self.assertTrue(dialogue.note_held(100.0))
        self.assertTrue(dialogue.note_held(105.0))
        self.assertNotIn("nobody took", str(dialogue.loss_of(request, "it is gone")))
        while request.parts:
            request.take_part()
        self.assertFalse(dialogue.note_held(112.0))
        lost = dialogue.loss_of(request, "it is gone")
        self.assertIsInstance(lost, ConnectionLost)
        self.assertIn("for 12 s nobody took the parts of this stream", str(lost))


class Interrupted(WithPool):
    def test_a_client_goes_on_after_an_interrupt_between_any_two_steps(self):
        """In the thread that was interrupted, and in another one."""
        calls = []

        def call(client):
            while True:  # another call may end with the connection, if the interrupt came while an answer was read
                try:
                    return calls.append(client.call("square", 3))
                except ConnectionLost:
                    pass

        def interrupt_each(client):
            step = 1
            while interrupted_at(step, lambda: client.call("square", 2)):
                if step % 2:
                    call(client)
                else:
                    thread = started(lambda: call(client))
                    thread.join(PATIENCE)
                    self.assertFalse(thread.is_alive(), f"another thread waits after an interrupt at step {step}")
                step += 1
            calls.append("all" if step > 100 else "too few")

        soon = [mock.patch.object(module, "CHECK_EVERY", 0.01) for module in (_turns, _connection)]
        soon.append(mock.patch.object(_connection, "_STALE", 0.03))
        for patch in soon:
            patch.start()
            self.addCleanup(patch.stop)
        with Client(self.pool.socket) as client:
            client.call("square", 1)
            thread = started(lambda: interrupt_each(client))
            before = -1
            while thread.is_alive() and len(calls) > before:
                before = len(calls)
                thread.join(2 * PATIENCE)
        self.assertEqual(calls[-1], "all", f"the client answers no more after {len(calls)} interrupts")


class Handlers(WithPool):
    def test_a_signal_handler_may_use_the_client_whose_call_it_interrupts(self):
        program = f"""
        import os, signal, threading, time
        from offload import Client, JobError

        client = Client({self.pool.socket!r}, max_in_flight=2)
        job = client.submit("hang", 1)

        def handle(number, frame):
            assert client.call("square", 3) == 9
            assert client.status()["state"] == "running"
            job.cancel()

        signal.signal(signal.SIGUSR1, handle)
        job.id
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        try:
            job.result()
        except JobError as error:
            assert error.outcome == "cancelled", error
        else:
            raise AssertionError("it was not cancelled")
        client.close()
        """
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment, timeout=PATIENCE, check=True)

    def test_only_a_job_waits_for_room(self):
        with Client(self.pool.socket, max_in_flight=1) as client:
            job = client.submit("hang", 1)
            asks = started(lambda: (client.status()["state"], job.cancel()))
            asks.join(PATIENCE)
            self.assertEqual(asks.results, [("running", None)])
            with self.assertRaises(OffloadError):
                job.result()


if __name__ == "__main__":
    unittest.main()
