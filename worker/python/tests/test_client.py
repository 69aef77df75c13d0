"""Calls from programs without an event loop, to a private supervisor."""

import contextlib
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from unittest import mock

from offload import Client, JobError, OffloadError, OutputError, Payload, Pool, Rejected
from offload._requests import call_request
from offload._supervisor import find_binary

from . import workers
from .workers import PATIENCE, eventually


class Waiting(unittest.TestCase):
    def test_a_job_is_taken_back_whatever_it_waits_for(self):
        arguments = ["--max-kept-bytes", "8MiB", "--max-payload", "6MiB"]
        large = b"x" * 5_000_000
        with open(os.devnull, "w") as log, Pool(worker=workers.__file__, workers=1, arguments=arguments, log=log) as pool:

            def states():
                return sorted(job["state"] for job in pool._show("jobs") if job["state"] != "ok")

            def cli(*words, data=b""):
                command = [find_binary(), "--socket", pool.socket, *words]
                subprocess.run(command, input=data, stdout=subprocess.DEVNULL, check=True, timeout=PATIENCE)

            cli("pause", "square")
            cli("pause", "echo")
            cli("submit", "--detach", "square", "3")
            for _ in range(3):  # there is room to keep the output of one
                cli("submit", "--client", "one", "--detach", "echo", "-", data=large)
            cli("resume", "echo")
            eventually(lambda: states() == ["held", "held", "paused"], "that they wait")
            pool.cancel_queued()
            eventually(lambda: states() == ["cancelled"] * 3, "that none of them waits")


class WithPool(unittest.TestCase):
    """One pool for all tests of a class."""

    workers = 2
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.log = open(os.devnull, "w")
        cls.pool = Pool(worker=workers.__file__, workers=cls.workers, arguments=cls.arguments, log=cls.log)
        cls.pool.wait_until_ready()

    @classmethod
    def tearDownClass(cls):
        cls.pool.close()
        cls.log.close()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "runs")

    def running(self):
        """The process that runs the job `wait`, once it does."""
        said = eventually(lambda: self.file.exists() and self.file.read_text().strip(), "the start of the job")
        return int(said.split()[-1])

    def in_child(self, function):
        """Runs it in a forked child. Whether it returned something true."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if function() else 2
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    @contextlib.contextmanager
    def interrupted_when_it_runs(self):
        """Ctrl-C comes once the job `wait` runs, and what the block does ends with it."""
        # A shell starts what it does not wait for with SIGINT ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)

        def interrupt():
            self.running()
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            yield
        thread.join(PATIENCE)


class Calls(WithPool):
    def test_an_input_comes_back_whatever_its_length(self):
        for length in (0, 1, 32 << 10, 64 << 10, 8 << 20):
            data = os.urandom(length)
            self.assertTrue(self.pool.call("echo", data) == data, f"{length} bytes did not come back")

    def test_bytes_text_and_json_come_back_as_what_they_are(self):
        self.assertEqual(self.pool.call("square", 12), 144)
        self.assertEqual(self.pool.call("shout", "häuser €𝄞"), "HÄUSER €𝄞")
        self.assertEqual(self.pool.call("echo", Payload(b"{}", "application/json")), b"{}")
        self.assertEqual(self.pool.call("picture", 1), b"\x89PNG")
        self.assertEqual(self.pool.call("echo", b"spaced", content_type="text/plain; a=b "), b"spaced")
        self.assertIsNone(self.pool.call("environment", "NOT_THERE"))
        report = self.pool.submit("picture", 1).report()
        self.assertEqual((report.media_type, report.outcome, report.attempts), ("image/png", "ok", 1))

    def test_text_is_read_in_its_character_set(self):
        for charset in ("iso-8859-1", '"ISO-8859-1"', "UTF-16", "windows-1252"):
            made = Payload("häuser".encode(charset.strip('"')), f"text/plain; a=b;Charset={charset}")
            self.assertEqual(self.pool.call("mirror", made), "häuser", charset)
            self.assertEqual(self.pool.call("shout", made), "HÄUSER", charset)

    def test_an_output_that_is_not_what_it_says_is_an_error_that_has_it(self):
        deep = b"[" * 200_000
        cases = [
            (b"\xff", "text/plain", "not UTF-8: "),
            (b"\xff", 'text/plain; a=";charset=latin-1"', "not UTF-8: "),
            (b"a", "text/plain;charset=none", "the character set 'none', which Python does not know"),
            (b"a", "text/plain;charset=hex", "the character set 'hex'"),
            (b"a", "text/plain;charset=idna", "the character set 'idna'"),
            (b"{", "application/json", "not JSON: "),
            (b"[NaN]", "application/json", "not JSON: it has NaN"),
            ("1".encode("utf-16"), "application/json", "not JSON: 'utf-8' codec"),
            (deep, "application/problem+json", "JSON that is nested too deeply"),
        ]
        for data, media_type, said in cases:
            made = Payload(data, media_type)
            with self.subTest(media_type), self.assertRaises(OffloadError) as failed:
                self.pool.call("mirror", made)
            error = failed.exception
            self.assertIsInstance(error, OutputError)
            self.assertIsInstance(error, ValueError)
            self.assertTrue((error.data, error.content_type) == (data, media_type), media_type)
            self.assertIn(said, str(error))
            self.assertEqual(str(pickle.loads(pickle.dumps(error))), str(error))
            with self.assertRaises(OutputError):
                self.pool.submit("mirror", made).result()
            self.assertTrue(self.pool.call("mirror", made, raw=True) == made, "asked for raw, it comes as it is")
            self.assertTrue(self.pool.map("mirror", [made] * 2, raw=True) == [made] * 2)
        self.assertEqual(self.pool.submit("square", 2, raw=True).result(), Payload(b"4", "application/json"))

    def test_a_text_is_sent_as_what_its_media_type_says_or_not_at_all(self):
        made = self.pool.call("mirror", "häuser", content_type="text/csv", raw=True)
        self.assertEqual(made, Payload("häuser".encode(), "text/csv"))
        for charset, text in (("utf-8", "é"), ('"UTF8"', "é"), ("us-ascii", "e"), ("ASCII", "e")):
            self.assertEqual(self.pool.call("mirror", text, content_type=f"text/plain; charset={charset}"), text)
        wrong = [("iso-8859-1", "é"), ("iso-8859-1", "e"), ("us-ascii", "é"), ("utf-16", ""), ("none", "e"), ("utf-8-sig", "e")]
        for charset, text in wrong:
            for value in (text, [text]):
                with self.subTest(charset), self.assertRaises(ValueError) as refused:
                    self.pool.call("mirror", value, content_type=f"text/plain; charset={charset}")
                self.assertIn("encode it, and send the bytes", str(refused.exception))
        latin = "é".encode("iso-8859-1")
        for data in (latin, bytearray(latin), Payload(latin)):
            self.assertEqual(self.pool.call("mirror", data, content_type="text/plain; charset=iso-8859-1"), "é")

    def test_a_text_that_is_called_json_is_the_document(self):
        self.assertEqual(self.pool.call("square", "3", content_type="application/json"), 9)
        self.assertEqual(self.pool.call("shout", '"a"', content_type="application/json; charset=utf-8"), "A")

    def test_a_thousand_threads_call_at_once(self):
        results = {}

        def call(number):
            results[number] = self.pool.call("square", number)

        threads = [threading.Thread(target=call, args=(number,)) for number in range(1000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual(results, {number: number * number for number in range(1000)})

    def test_several_threads_wait_for_one_job(self):
        job, results = self.pool.submit("wait", str(self.file)), []
        threads = [threading.Thread(target=lambda: results.append(job.result())) for _ in range(4)]
        for thread in threads:
            thread.start()
        self.running()
        eventually(lambda: len(self.pool.connection()._asleep) == 3, "one reads, the others sleep")
        self.file.unlink()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual(results, [None] * 4)

    def test_more_jobs_than_may_be_in_flight_are_all_done(self):
        with Client(self.pool.socket, max_in_flight=7) as client:
            self.assertEqual(client.map("square", range(300)), [n * n for n in range(300)])

    def test_large_inputs_and_outputs_do_not_wait_for_each_other(self):
        data = os.urandom(1 << 20)
        with Client(self.pool.socket) as client:
            jobs = [client.submit("echo", data) for _ in range(60)]
            self.assertTrue(all(job.result() == data for job in jobs))

    def test_what_makes_no_sense_is_refused_before_anything_is_sent(self):
        wrong = [{"timeout": 0}, {"deadline": -1}, {"priority": 11}, {"attempts": 0}, {"idempotency_key": ""}, {"labels": ["a b"]}]
        wrong += [{"metadata": {"A": "b"}}, {"content_type": "text"}]
        for options in wrong:
            with self.subTest(options), self.assertRaises(ValueError):
                self.pool.call("square", 1, **options)
        for options in ({"metadata": {"a": 5}}, {"priority": 0.5}, {"labels": "nightly"}, {"attempts": 1.5}, {"idempotency_key": 1}):
            with self.subTest(options), self.assertRaises(TypeError):
                self.pool.call("square", 1, **options)
        for wrong in (5, "text", None, [1]):
            with self.subTest(wrong), self.assertRaises(TypeError):
                self.pool.call("echo", Payload(wrong))
        with self.assertRaises(TypeError):
            Client(name=5)
        with self.assertRaises(TypeError):
            self.pool.call("square", {1, 2})
        with self.assertRaises(TypeError):
            self.pool.call("square", 1, no_such_option=1)
        with self.assertRaises(TypeError):
            self.pool.call("square", 1, stream=True)
        deep = []
        for _ in range(100_000):
            deep = [deep]
        with self.assertRaises(ValueError):
            self.pool.call("square", deep)
        for client in (self.pool, self.pool.async_client()):
            with self.assertRaises(ValueError) as refused:
                client.stream("count", 1, idempotency_key="kept")
            self.assertIn("nothing of a stream is kept", str(refused.exception))

    def test_a_name_that_is_too_long_to_send_harms_no_other_job(self):
        job = self.pool.submit("wait", str(self.file))
        self.running()
        with self.assertRaises(ValueError) as refused:
            self.pool.call("x" * 20_000, 1)
        self.assertIn("at most 16384 can be sent", str(refused.exception))
        self.file.unlink()
        self.assertIsNone(job.result())

    def test_a_client_that_is_closed_takes_nothing(self):
        client = Client(self.pool.socket)
        job = client.submit("square", 3)
        self.assertEqual(job.result(), 9)
        client.close()
        for ask in (lambda: client.call("square", 1), lambda: client.submit("square", 1), lambda: list(client.stream("count", 1)),
                    client.status, client.tasks, job.cancel):  # fmt: skip
            with self.assertRaises(OffloadError) as refused:
                ask()
            self.assertIn("this client is closed", str(refused.exception))

    def test_whatever_is_asked_for_makes_sense_or_is_a_value_or_type_error(self):
        strange = [None, 5, 0.5, -1, 1 << 70, float("nan"), float("inf"), "", "x", "\ud800", b"x", [], ["x"], [5], {}, {"a": 5}, {5: "a"},
                   {"a": "\ud800"}, object(), {1}, Payload(5), Payload(b"x", 5)]  # fmt: skip
        options = ("timeout", "deadline", "priority", "idempotency_key", "attempts", "content_type", "metadata", "labels")
        for value in strange:
            for option in options:
                with contextlib.suppress(ValueError, TypeError):
                    call_request("square", 1, **{option: value})
            with contextlib.suppress(ValueError, TypeError):
                call_request("square", value)
            with contextlib.suppress(ValueError, TypeError):
                call_request(value, 1)

    def test_a_map_that_fails_cancels_the_rest(self):
        with self.assertRaises(JobError):
            self.pool.map("crash", ["segfault"] + ["hang"] * 50)
        eventually(lambda: not any(self.pool.status()["jobs"][state] for state in ("running", "queued")), "the end of all jobs")

    def test_a_map_notices_a_failure_while_earlier_jobs_still_run_and_before_all_are_submitted(self):
        def inputs():
            yield "hang"
            while True:
                yield "segfault"

        with self.assertRaises(JobError) as failed:
            self.pool.map("crash", inputs())
        self.assertEqual(failed.exception.outcome, "worker_crashed")
        eventually(lambda: not any(self.pool.status()["jobs"][state] for state in ("running", "queued")), "the end of all jobs")

    def test_a_map_whose_inputs_end_with_an_error_cancels_what_it_has_submitted(self):
        def inputs():
            yield from ["hang"] * 5
            raise LookupError("no more")

        with self.assertRaises(LookupError):
            self.pool.map("crash", inputs())
        eventually(lambda: not any(self.pool.status()["jobs"][state] for state in ("running", "queued")), "the end of all jobs")

    def test_the_same_key_gives_the_same_job(self):
        first = self.pool.submit("square", 3, idempotency_key="once")
        self.assertEqual(first.result(), 9)
        self.assertEqual(self.pool.submit("square", 3, idempotency_key="once").id, first.id)
        with self.assertRaises(Rejected) as rejected:
            self.pool.call("square", 4, idempotency_key="once")
        self.assertEqual(rejected.exception.code, "conflict")

    def test_views(self):
        self.assertEqual(self.pool.status()["state"], "running")
        self.assertIn("square", [task["name"] for task in self.pool.tasks()])


class Failures(WithPool):
    def outcome(self, *arguments, **options):
        with self.assertRaises(JobError) as failed:
            self.pool.call(*arguments, **options)
        return failed.exception

    def test_an_error_of_a_task_has_its_message(self):
        error = self.outcome("fails", "because of häuser")
        self.assertEqual((error.outcome, error.code, error.message), ("app_error", "app_error", "because of häuser"))
        self.assertEqual((error.signal, error.exit_code, error.attempts), (None, None, 1))
        self.assertTrue(error.job)

    def test_an_unknown_task_is_rejected(self):
        with self.assertRaises(Rejected) as rejected:
            self.pool.call("squares", 1)
        self.assertEqual(rejected.exception.code, "unknown_task")
        self.assertIsNone(rejected.exception.retry_after)

    def test_an_input_over_the_limit_is_rejected_and_the_client_goes_on(self):
        with self.assertRaises(Rejected) as rejected:
            self.pool.call("echo", bytes((64 << 20) + 1))
        self.assertEqual(rejected.exception.code, "too_large")
        self.assertEqual(self.pool.call("square", 2), 4)

    def test_a_crash_costs_exactly_its_own_call(self):
        for how, signal_number, code in (("abort", 6, None), ("segfault", 11, None), ("exit", None, 7)):
            innocent = [self.pool.submit("slow_square", number) for number in range(20)]
            error = self.outcome("crash", how)
            self.assertEqual((error.outcome, error.signal, error.exit_code), ("worker_crashed", signal_number, code))
            self.assertEqual([job.result() for job in innocent], [n * n for n in range(20)])

    def test_a_timeout_ends_a_task_that_hangs(self):
        error = self.outcome("hang", 1, timeout=0.1)
        self.assertEqual((error.outcome, error.attempts), ("timeout", 1))
        error = self.outcome("hang", 1, deadline=0.2)
        self.assertEqual(error.outcome, "timeout")

    def test_a_job_can_be_cancelled_while_it_runs(self):
        job = self.pool.submit("wait", str(self.file))
        process = self.running()
        job.cancel()
        with self.assertRaises(JobError) as failed:
            job.result()
        self.assertEqual(failed.exception.outcome, "cancelled")
        self.assertTrue(workers.is_alive(process), "the task has heard of it and returned")

    def test_an_interrupted_call_cancels_its_job(self):
        with self.interrupted_when_it_runs():
            self.pool.call("wait", str(self.file))
        self.assertTrue(self.file.exists())
        eventually(lambda: self.pool.status()["jobs"]["running"] == 0, "the end of the job")
        self.assertEqual(self.pool.call("square", 3), 9)

    def test_an_interrupted_call_leaves_a_job_with_a_key_to_others(self):
        cancelled = self.pool.status()["jobs"]["cancelled"]
        with self.interrupted_when_it_runs():
            self.pool.call("wait", str(self.file), idempotency_key="interrupted")
        self.assertEqual(self.pool.status()["jobs"]["running"], 1)
        self.file.unlink()
        self.pool.call("wait", str(self.file), idempotency_key="interrupted")
        self.assertEqual(self.pool.status()["jobs"]["cancelled"], cancelled)

    def test_a_call_that_is_interrupted_while_it_is_sent_harms_no_other(self):
        connection = self.pool.connection()
        send = connection._send

        def interrupted(data, sent):
            send(data[:10], sent)  # the rest of the message never comes
            raise KeyboardInterrupt

        connection._send = interrupted
        with self.assertRaises(KeyboardInterrupt):
            self.pool.call("square", 2)
        self.assertEqual(self.pool.call("square", 3), 9)

    def test_a_call_that_is_interrupted_before_it_is_sent_leaves_its_connection_to_others(self):
        connection = self.pool.connection()
        connection._send = mock.Mock(side_effect=KeyboardInterrupt)
        with self.assertRaises(KeyboardInterrupt):
            self.pool.call("square", 2)
        del connection._send
        self.assertEqual(self.pool.call("square", 3), 9)
        self.assertIs(self.pool.connection(), connection)
        self.assertEqual(connection._dialogue.requests, {})

    def test_a_call_that_is_interrupted_just_after_it_was_sent_cancels_its_job(self):
        connection, cancelled = self.pool.connection(), self.pool.status()["jobs"]["cancelled"]
        send = connection._send

        def interrupted(data, sent):
            del connection._send
            send(data, sent)
            raise KeyboardInterrupt

        self.file.touch()
        connection._send = interrupted
        with self.assertRaises(KeyboardInterrupt):
            self.pool.call("wait", str(self.file))
        eventually(lambda: self.pool.status()["jobs"]["cancelled"] == cancelled + 1, "the end of the job")
        self.assertIs(self.pool.connection(), connection)

    def test_a_call_that_is_interrupted_while_its_output_arrives_ends(self):
        connection = self.pool.connection()
        receive = connection._dialogue.receive

        def interrupted(data):
            if len(data) < 32 << 10:
                return receive(data)
            raise KeyboardInterrupt  # what has come is lost

        connection._dialogue.receive = interrupted
        ended = []

        def call():
            try:
                self.pool.call("echo", bytes(8 << 20))
            except KeyboardInterrupt:
                ended.append(True)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        self.assertTrue(ended, "the call waits in what is left of a message")
        self.assertEqual(self.pool.call("square", 3), 9)

    def test_a_call_is_sent_again_if_another_thread_learns_first_that_the_connection_has_ended(self):
        connection = self.pool.connection()

        class Ending:
            """A socket that ends just when something is sent, which the thread that reads notices at once."""

            def __init__(self, end):
                self.end = end

            def send(self, data, flags):
                connection._lose("it has ended")
                raise BrokenPipeError

            def __getattr__(self, name):
                return getattr(self.end, name)

        connection._socket = Ending(connection._socket)
        self.assertEqual(self.pool.call("square", 3), 9)
        self.assertIsNot(self.pool.connection(), connection)

    def test_an_interrupt_while_nothing_arrives_harms_no_other_call(self):
        connection, other = self.pool.connection(), self.file.with_name("other")
        job = self.pool.submit("wait", str(other))
        with self.interrupted_when_it_runs():
            self.pool.call("wait", str(self.file))
        eventually(other.exists, "the start of the other job")
        other.unlink()
        self.assertIsNone(job.result())
        self.assertIs(self.pool.connection(), connection)

    def test_a_program_that_is_interrupted_at_any_moment_goes_on(self):
        program = f"""
        import signal
        import time
        from offload import Client

        def interrupt(number, frame):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        with Client({self.pool.socket!r}) as client:
            for _ in range(2):  # the second is the usual one
                began = time.monotonic()
                client.call("echo", bytes(24 << 20))
                seconds = time.monotonic() - began
            for part in range(20):
                try:
                    signal.setitimer(signal.ITIMER_REAL, seconds * (part + 1) / 20)
                    client.call("echo", bytes(24 << 20))
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    pass
                assert client.call("square", 3) == 9
        """
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment, timeout=2 * PATIENCE, check=True)
        eventually(lambda: self.pool.status()["jobs"]["running"] == 0, "the end of the jobs")


if __name__ == "__main__":
    unittest.main()
