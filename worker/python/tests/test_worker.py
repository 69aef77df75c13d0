"""What a worker says to its supervisor, question by question."""

import json
import unittest

from offload import TaskError
from offload import _messages as messages
from offload._linger import Linger

from .fake_supervisor import Ended, FakeSupervisor


def kind(message):
    return type(message).__name__


class Greeting(unittest.TestCase):
    def test_a_worker_offers_what_its_functions_say(self):
        script = """
        @task(idempotent=True, example={"width": 1}, checkpoints=True, progress_within=2.5)
        def area(width: float, height: float = 1.0) -> float:
            "the area of a rectangle"
            return width * height
        @task(name="v1.shout", accepts=["text/*"])
        def shout(text: str) -> str:
            return text.upper()
        @task
        def numbers(n: int):
            yield from range(n)
        serve()
        """
        with FakeSupervisor(script) as supervisor:
            self.assertEqual(supervisor.hello.magic, b"OFFLOADW")
            area, shout, numbers = supervisor.offers
            self.assertEqual(area.task, ("area", True, "cpu", False, True, 2500))
            self.assertEqual(area.about.description, "the area of a rectangle")
            self.assertEqual((area.about.accepts, area.about.produces), (["application/json"], "application/json"))
            self.assertEqual((shout.task.name, shout.about.accepts), ("v1.shout", ["text/*"]))
            self.assertEqual(shout.about.produces, "text/plain; charset=utf-8")
            self.assertEqual((area.about.streams, numbers.about.streams), (False, True))

    def test_the_set_up_runs_once_before_the_worker_is_ready(self):
        script = """
        loaded = []
        @setup
        def load():
            loaded.append(os.getpid())
        @task
        def count() -> int:
            return len(loaded)
        serve(setup=lambda: loaded.append(0))
        """
        with FakeSupervisor(script) as supervisor:
            for job in (1, 2):
                self.assertEqual(supervisor.answer_of("count", job=job)[1], b"2")

    def test_a_worker_that_is_started_by_hand_says_what_to_do(self):
        script = "os.dup2(os.open(os.devnull, os.O_RDONLY), 0)\nserve()"
        with FakeSupervisor(script, greet=False) as supervisor:
            _, errors, code = supervisor.end()
        self.assertIn("offload serve --worker 'python3 worker.py'", errors)
        self.assertEqual(code, 64)

    def test_a_supervisor_of_another_version_is_named(self):
        with FakeSupervisor("@task\ndef one(): pass\nserve()", greet=False) as supervisor:
            supervisor.receive()
            supervisor.send(messages.Welcome(4, 1, 0, 1 << 20))
            _, errors, code = supervisor.end()
        self.assertIn("speaks protocol 4.1, this worker 3.0", errors)
        self.assertEqual(code, 1)


class Jobs(unittest.TestCase):
    def test_an_input_comes_back_whatever_its_length(self):
        with FakeSupervisor("@task\ndef echo(data: bytes) -> bytes:\n    return data\nserve()") as supervisor:
            for job, length in enumerate([0, 1, 32 << 10, 64 << 10, 8 << 20, 3]):
                data = bytes(range(256)) * (length // 256) + b"x" * (length % 256)
                message, output = supervisor.answer_of("echo", data, job=job)
                self.assertEqual((kind(message), message.job, message.attempt), ("Finished", job, 1))
                self.assertTrue(output == data, f"{length} bytes came back as {len(output)} others")

    def test_annotations_say_what_a_function_takes(self):
        script = """
        @task
        def double(n: int): return 2 * n
        @task
        def shout(text: str): return text.upper()
        @task
        def anything(value): return repr(value)
        @task
        def area(width: float, height: float = 2.0): return width * height
        @task
        def picture(data: bytes): return Payload(data, "image/png")
        @task
        def about(_): return [job().task, job().attempt, job().metadata, job().remaining > 5]
        serve()
        """
        json_type, text, png = "application/json", "text/plain; charset=utf-8", "image/png"
        cases = [
            ("double", b"21", json_type, b"42", json_type),
            ("double", b" 21\n", text, b"42", json_type),
            ("shout", "häuser €𝄞".encode(), text, "HÄUSER €𝄞".encode(), text),
            ("shout", b'"a"', json_type, b"A", text),
            ("shout", b'"a"', "application/json; charset=utf-8", b"A", text),
            ("shout", b'"a"', "Application/LD+JSON", b"A", text),
            ("anything", b'"a"', "application/JSON; charset=utf-8", b"'a'", text),
            ("anything", b"[1]", json_type, b"[1]", text),
            ("anything", b"[1]", text, b"'[1]'", text),
            ("anything", b"[1]", png, b"b'[1]'", text),
            ("area", b'{"width": 3}', json_type, b"6.0", json_type),
            ("area", b'{"width": 3, "height": 5}', json_type, b"15.0", json_type),
            ("picture", b"\x00\xff", "application/octet-stream", b"\x00\xff", png),
            ("about", b"1", json_type, b'["about",3,{"tenant":"blue"},true]', json_type),
        ]
        wrong = [
            ("double", b'"21"', json_type, "the input must be integer, not str"),
            ("double", b"x", json_type, "the input is not JSON"),
            ("double", b"true", json_type, "the input must be integer, not bool"),
            ("anything", b"[NaN]", json_type, "the input is not JSON: it has NaN"),
            ("anything", b"-Infinity", json_type, "the input is not JSON: it has -Infinity"),
            ("area", b'{"width": Infinity}', json_type, "the input is not JSON: it has Infinity"),
            ("anything", "[1]".encode("utf-16"), json_type, "the input is not JSON: 'utf-8' codec"),
            ("anything", b'"\xed\xa0\x80"', json_type, "the input is not JSON: 'utf-8' codec"),
            ("shout", b"\xff", text, "the input is not UTF-8"),
            ("area", b"{}", json_type, "the input lacks width"),
            ("area", b'{"width": 1, "depth": 1}', json_type, "the input has depth"),
            ("area", b"[]", json_type, "a JSON object with width, height"),
        ]
        with FakeSupervisor(script) as supervisor:
            for task, data, media_type, expected, produced in cases:
                options = {"media_type": media_type, "attempt": 3, "timeout_ms": 60_000}
                message, output = supervisor.answer_of(task, data, **options)
                self.assertEqual((output, message.media_type), (expected, produced), (task, data, message))
            for task, data, media_type, expected in wrong:
                message, _ = supervisor.answer_of(task, data, media_type=media_type)
                self.assertEqual(message.kind, "app_error")
                self.assertIn(expected, message.message)

    def test_an_exception_is_an_error_with_its_place_and_the_worker_goes_on(self):
        script = """
        def inner(): raise ValueError("bad häuser")
        @task
        def fails(_): inner()
        @task
        def says(_): raise TaskError("only this")
        @task
        def leaves(_): sys.exit(3)
        @task
        def long(_): raise ValueError("é" * 2000)
        @task
        def strange(_): return {1, 2}
        serve()
        """
        with FakeSupervisor(script) as supervisor:
            message, _ = supervisor.answer_of("fails", b"1")
            self.assertEqual(message.kind, "app_error")
            self.assertRegex(message.message, r"^ValueError: bad häuser \(worker.py:\d+ in inner, worker.py:\d+ in fails\)$")
            message, _ = supervisor.answer_of("says", b"1")
            self.assertEqual((message.kind, message.message), ("app_error", "only this"))
            message, _ = supervisor.answer_of("leaves", b"1")
            self.assertEqual((message.kind, message.message[:13]), ("panic", "SystemExit: 3"))
            message, _ = supervisor.answer_of("long", b"1")
            self.assertLessEqual(len(message.message.encode()), 1024)
            self.assertIn("in long)", message.message)
            message, _ = supervisor.answer_of("strange", b"1")
            self.assertIn("not JSON serializable", message.message)
            supervisor.send(messages.Drain())
            _, errors, code = supervisor.end()
        self.assertEqual(code, 0)
        self.assertIn('in inner\n    def inner(): raise ValueError("bad häuser")', errors)
        self.assertNotIn("only this", errors)
        self.assertNotIn("_session.py", errors)

    def test_how_a_program_of_a_task_ended_is_said_if_the_supervisor_understands_it(self):
        script = """
        import signal, subprocess
        @task
        def code(_): subprocess.run(["sh", "-c", "exit 3"], check=True)
        @task
        def killed(_): subprocess.run(["sh", "-c", "kill -9 $$"], check=True)
        @task
        def said(_): raise TaskError("it refused", exit_code=5)
        @task
        def leaves(_): sys.exit(3)
        serve()
        """
        expected = [("code", ("exited", 3)), ("killed", ("signalled", 9)), ("said", ("exited", 5)), ("leaves", "panic")]
        for capabilities in (messages.PARTS | messages.ENDS, messages.PARTS):
            with FakeSupervisor(script, capabilities=capabilities) as supervisor:
                self.assertTrue(supervisor.hello.capabilities & messages.ENDS)
                for name, ended in expected:
                    message, _ = supervisor.answer_of(name, b"1")
                    plain = ended if isinstance(ended, str) else "app_error"
                    self.assertEqual(message.kind, ended if capabilities & messages.ENDS else plain, name)

    def test_an_error_of_the_package_is_for_callers_and_another_exception_or_what_a_program_said_is_not(self):
        script = """
        class Mute(TaskError):
            def __str__(self): raise ValueError("mute")
        @task
        def says(_): raise TaskError("only this")
        @task
        def two(a: int, b: int): pass
        @task
        def fails(_): open("/no/such/folder")
        @task
        def program(_): raise TaskError("it printed: KEY", exit_code=5)
        @task
        def mute(_): raise Mute()
        @task
        def strange(_): return {1, 2}
        serve()
        """
        kinds = {
            "says": "deliberate", "two": "deliberate", "fails": "app_error", "program": ("exited", 5), "mute": "app_error",
            "strange": "app_error",
        }  # fmt: skip
        with FakeSupervisor(script, capabilities=messages.ENDS | messages.REASONS) as supervisor:
            self.assertTrue(supervisor.hello.capabilities & messages.REASONS)
            for name, expected in kinds.items():
                self.assertEqual(supervisor.answer_of(name, b"1")[0].kind, expected, name)
        with FakeSupervisor(script, capabilities=messages.ENDS) as supervisor:
            message, _ = supervisor.answer_of("says", b"1")
            self.assertEqual((message.kind, message.message), ("app_error", "only this"))

    def test_no_program_ends_in_a_way_that_no_program_can(self):
        for wrong in ({"exit_code": 256}, {"exit_code": -9}, {"signal": 0}, {"signal": 65}):
            with self.assertRaises(ValueError):
                TaskError("why", **wrong)

    def test_no_exception_ends_the_worker_whatever_it_says_of_itself(self):
        script = r"""
        import shutil, subprocess, tempfile
        class Mute(TaskError):
            def __str__(self): raise SystemExit("mute")
        class Silent(TaskError):
            def __str__(self): raise ValueError("silent")
        class Shy(Exception):
            def __str__(self): raise KeyboardInterrupt
        def changed(**attributes):
            error = TaskError("changed")
            vars(error).update(attributes)
            return error
        errors = {
            "half": lambda: TaskError("\ud800"), "halves": lambda: ValueError("\ud800" * 2000),
            "mute": Mute, "silent": Silent, "shy": Shy, "exit": lambda: SystemExit("\ud800"),
            "code": lambda: changed(exit_code=1 << 40), "signal": lambda: changed(signal="KILL"),
            "text": lambda: subprocess.CalledProcessError("none", ["x"]),
            "huge": lambda: subprocess.CalledProcessError(-(1 << 40), ["x"]),
        }
        @task
        def fails(how: str): raise errors[how]()
        @task
        def two(a: int, b: int): pass
        @task
        def half(_): return ["\ud800"]
        @task
        def closes(_):
            sys.stderr.close()
            raise ValueError("not heard")
        @task
        def lost(_):
            os.chdir(folder := tempfile.mkdtemp())
            shutil.rmtree(folder)
            exec("raise ValueError('nowhere')")
        serve()
        """
        expected = {
            "half": "\\ud800",
            "halves": "ValueError: \\ud800\\ud800",
            "mute": "Mute: <",
            "silent": "Silent: <",
            "shy": "Shy",
            "code": "changed",
            "signal": "changed",
            "text": "CalledProcessError: <",
            "huge": "died with",
        }
        with FakeSupervisor(script, capabilities=messages.PARTS | messages.ENDS) as supervisor:
            for how, said in expected.items():
                message, _ = supervisor.answer_of("fails", json.dumps(how).encode())
                self.assertEqual((kind(message), message.kind), ("Failed", "app_error"), how)
                self.assertIn(said, message.message)
                self.assertLessEqual(len(message.message.encode()), messages.MESSAGE_MAX)
            self.assertEqual(supervisor.answer_of("fails", b'"exit"')[0].kind, "panic")
            self.assertIn("the input has \\ud800", supervisor.answer_of("two", b'{"a":1,"b":2,"\\ud800":3}')[0].message)
            for task, said in (("half", "UnicodeEncodeError"), ("lost", "nowhere"), ("closes", "not heard")):
                self.assertIn(said, supervisor.answer_of(task, b"1")[0].message)

    def test_a_child_that_returns_from_its_task_is_no_second_worker(self):
        script = "@task\ndef fork(_):\n    return os.fork() and os.wait()[1]\nserve()"
        with FakeSupervisor(script) as supervisor:
            _, output = supervisor.answer_of("fork", b"1")
            self.assertNotEqual(json.loads(output), 0)
            self.assertEqual(kind(supervisor.answer_of("fork", b"1", job=2)[0]), "Finished")

    def test_what_a_task_prints_and_logs_names_its_job(self):
        script = """
        import logging
        @task
        def talk(_):
            logging.getLogger("me").info("in a job")
            print("printed")
            return sys.stdin.read()
        serve()
        """
        with FakeSupervisor(script) as supervisor:
            self.assertEqual(supervisor.answer_of("talk", b"1", job=77)[1], b"", "its standard input is empty")
            supervisor.send(messages.Drain())
            output, errors, _ = supervisor.end()
        self.assertEqual(output, "printed\n")
        self.assertIn("INFO me [job 77]: in a job", errors)


class Order(unittest.TestCase):
    def test_jobs_run_in_their_order_and_a_cancelled_one_is_skipped(self):
        script = "@task\ndef wait(seconds: float):\n    time.sleep(seconds)\nserve()"
        with FakeSupervisor(script) as supervisor:
            supervisor.run("wait", b"0.3", job=1)
            for job in (2, 3, 4):
                supervisor.run("wait", b"0", job=job)
            supervisor.send(messages.Cancel(3))
            supervisor.send(messages.Cancel(99))
            supervisor.send(messages.Drain())
            seen = [(kind(message), message.job) for message in (supervisor.next_message() for _ in range(7))]
            self.assertEqual(supervisor.end()[2], 0)
        expected = [("Started", 1), ("Finished", 1), ("Started", 2), ("Finished", 2), ("Skipped", 3), ("Started", 4), ("Finished", 4)]
        self.assertEqual(seen, expected)

    def test_a_running_job_hears_that_it_is_cancelled(self):
        script = """
        @task
        def wait(_):
            while not cancelled():
                time.sleep(0.005)
            return "early"
        @task
        def asks(_): return cancelled()
        serve()
        """
        with FakeSupervisor(script) as supervisor:
            supervisor.run("wait", b"1", job=5)
            self.assertEqual(kind(supervisor.next_message()), "Started")
            supervisor.send(messages.Cancel(5))
            supervisor.next_message()
            self.assertEqual(supervisor.payload, b"early")
            self.assertEqual(supervisor.answer_of("asks", b"1", job=5)[1], b"false", "the next job is another one")

    def test_a_worker_ends_when_its_supervisor_is_gone_also_during_a_job(self):
        script = "@task\ndef wait(_):\n    time.sleep(3600)\nserve()"
        for job in (False, True):
            with FakeSupervisor(script) as supervisor:
                if job:
                    supervisor.run("wait", b"1")
                    supervisor.next_message()
                supervisor.socket.close()
                self.assertEqual(supervisor.end()[2], 0)

    def test_a_job_that_is_not_understood_fails_and_the_worker_goes_on(self):
        with FakeSupervisor("@task\ndef echo(data: bytes): return data\nserve()") as supervisor:
            for media_type, metadata, said in (
                ("text", {}, "'text' is no media type"),
                ("text/plain", {"A B": "c"}, "'A B' is no key of metadata"),
                ("text/plain", {"a": "b\n"}, "the value of the metadata key 'a'"),
                ("text/plain", {str(n): "" for n in range(17)}, "17 pairs of metadata"),
            ):
                supervisor.send(messages.Run(3, 2, "echo", media_type, 0, 0, metadata), b"input")
                self.assertEqual(kind(supervisor.next_message()), "Started")
                message = supervisor.next_message()
                self.assertEqual((kind(message), message.job, message.attempt, message.kind), ("Failed", 3, 2, "app_error"))
                self.assertIn("does not understand the job", message.message)
                self.assertIn(said, message.message)
                self.assertEqual(supervisor.answer_of("echo", b"input")[1], b"input")

    def test_nonsense_from_the_supervisor_ends_the_worker(self):
        for nonsense in (b"\xff" * 64, b"\x04\0\0\0\0\0\0\0\x63\0\0\0"):
            with FakeSupervisor("@task\ndef one(): pass\nserve()") as supervisor:
                supervisor.socket.sendall(nonsense)
                _, errors, code = supervisor.end()
            self.assertEqual(code, 1)
            self.assertIn("broke the protocol", errors)


class Going(unittest.TestCase):
    def test_parts_are_sent_within_the_credit(self):
        script = """
        @task
        def many(n: int):
            for _ in range(n):
                yield b"x" * 65536
            yield b"end"
        serve()
        """
        with FakeSupervisor(script) as supervisor:
            supervisor.run("many", b"6")
            received, granted = 0, messages.PARTS_CREDIT
            self.assertEqual(kind(supervisor.next_message()), "Started")
            while kind(supervisor.next_message()) == "Part":
                received += len(supervisor.payload)
                self.assertLessEqual(received, granted)
                if received == granted:
                    supervisor.send(messages.Credit(99, 1 << 20))  # of a job that has ended
                    supervisor.send(messages.Credit(1, 1 << 16))
                    granted += 1 << 16
            self.assertEqual(received, 6 * 65536 + 3)
            self.assertEqual((kind(supervisor.message), supervisor.payload), ("Finished", b""))

    def test_a_cancel_ends_a_task_that_waits_for_credit(self):
        script = "@task\ndef endless(_):\n    while True:\n        yield b'x' * 65536\nserve()"
        with FakeSupervisor(script) as supervisor:
            supervisor.run("endless", b"1")
            for _ in range(5):
                supervisor.next_message()
            supervisor.send(messages.Cancel(1))
            self.assertEqual(kind(supervisor.next_message()), "Failed")

    def test_without_the_capability_parts_become_one_output(self):
        script = "@task\ndef rows(n: int):\n    for i in range(n):\n        yield {'i': i}\nserve()"
        with FakeSupervisor(script, capabilities=0) as supervisor:
            message, output = supervisor.answer_of("rows", b"2")
            self.assertEqual((output, message.media_type), (b'{"i":0}\n{"i":1}\n', "application/x-ndjson"))

    def test_progress_may_be_any_number(self):
        script = """
        import fractions
        steps = [(1, 2), (0.5, 1.0), (1, 1.5), (fractions.Fraction(1, 3), 1), (7, 0)]
        steps += [(1e300, 1), (1e306, 1), (-1, 2), (float("nan"), 1), (1, float("-inf")), (1 << 64, 1), (0.5, 10**400)]
        steps += [("5", 10), (5, b"10"), (None, 1)]
        @task
        def step(number: int): progress(*steps[number])
        serve()
        """
        with FakeSupervisor(script) as supervisor:
            for number, expected in enumerate([(1, 2), (500, 1000), (1000, 1500), (333, 1000), (7, 0)]):
                message, _ = supervisor.answer_of("step", b"%d" % number)
                self.assertEqual((kind(message), message.done, message.total), ("Progress", *expected))
                self.assertEqual(kind(supervisor.next_message()), "Finished")
            for number in range(5, 12):
                message, _ = supervisor.answer_of("step", b"%d" % number)
                self.assertEqual(kind(message), "Finished", "what cannot be told is not told")
            for number in range(12, 15):
                message, _ = supervisor.answer_of("step", b"%d" % number)
                self.assertEqual(kind(message), "Failed")
                self.assertRegex(message.message, "^TypeError: a progress of .*, which is no number")

    def test_an_attempt_goes_on_from_the_checkpoint_of_another_one(self):
        script = """
        @task(checkpoints=True)
        def long(n: int):
            state = resumed({"at": 0})
            for at in range(state["at"], n):
                checkpoint({"at": at + 1})
                progress(at + 1, n)
            return state["at"]
        @task(checkpoints=True)
        def huge(_): checkpoint("x" * 70000)
        serve()
        """
        with FakeSupervisor(script) as supervisor:
            supervisor.run("long", b"3")
            seen = []
            while not seen or seen[-1][0] != "Finished":
                supervisor.next_message()
                seen.append((kind(supervisor.message), supervisor.payload))
            checkpoints = [payload for name, payload in seen if name == "Checkpoint"]
            self.assertEqual(checkpoints, [b'{"at":1}', b'{"at":2}', b'{"at":3}'])
            self.assertEqual(seen[-2:], [("Progress", b""), ("Finished", b"0")])
            supervisor.send(messages.Resume(2), checkpoints[-1])
            self.assertEqual(supervisor.answer_of("long", b"3", job=2)[1], b"3")
            self.assertEqual(supervisor.answer_of("long", b"0", job=3)[1], b"0", "its state was for the other job")
            self.assertIn("at most 65536", supervisor.answer_of("huge", b"1")[0].message)


class Lingering(unittest.TestCase):
    def test_a_worker_looks_only_after_a_lone_job_and_less_often_in_vain(self):
        linger = Linger()
        self.assertFalse(linger.begins(), "nothing came yet")
        linger.came(1)
        for sleeps in (1, 3, 7):
            self.assertTrue(linger.begins())
            linger.looked(False)
            self.assertEqual([linger.begins() for _ in range(sleeps)], [False] * sleeps)
        self.assertTrue(linger.begins())
        linger.looked(True)
        self.assertTrue(linger.begins())
        linger.came(2)
        self.assertFalse(linger.begins())

    def test_a_worker_that_may_look_misses_nothing(self):
        script = "@task(idempotent=True)\ndef echo(data: bytes):\n    return data\nserve()"
        with FakeSupervisor(script, capabilities=messages.PARTS | messages.LINGERING) as supervisor:
            for job in range(200):
                self.assertEqual(supervisor.answer_of("echo", b"%d" % job, job=job)[1], b"%d" % job)


class Ends(unittest.TestCase):
    def test_a_crash_says_nothing_but_started_and_leaves_a_traceback(self):
        script = "import ctypes\n@task\ndef crash(_):\n    ctypes.string_at(0)\nserve()"
        with FakeSupervisor(script) as supervisor:
            supervisor.run("crash", b"1")
            self.assertEqual(kind(supervisor.next_message()), "Started")
            with self.assertRaises(Ended):
                supervisor.next_message()
            _, errors, code = supervisor.end()
        self.assertEqual(code, -11)
        self.assertIn("in crash", errors)


if __name__ == "__main__":
    unittest.main()
