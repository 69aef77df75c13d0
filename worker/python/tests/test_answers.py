"""How a worker answers, whatever its task returns or raises: it never ends because of an answer."""

import contextlib
import io
import json
import unittest
from unittest import mock

from offload import TaskError
from offload import _messages as messages
from offload._failure import Failure
from offload._session import Session
from offload._wire import Decoder

from .fake_supervisor import FakeSupervisor
from .test_worker import kind


class Exceptions(unittest.TestCase):
    def test_an_end_that_no_program_has_is_not_told_and_costs_no_other_word(self):
        script = """
        import subprocess
        class Own(TaskError):
            def __init__(self, what): self.what = what
            def __str__(self): return f"own: {self.what}"
        class Word(str):
            def encode(self, *_, **__): return "no bytes"
        class Worded(TaskError):
            def __str__(self): return Word("its word")
        class Aside(Exception):
            @property
            def __traceback__(self): raise SystemExit
        def changed(**attributes):
            error = TaskError("changed")
            vars(error).update(attributes)
            return error
        errors = {
            "float code": lambda: TaskError("why", exit_code=3.0), "float signal": lambda: TaskError("why", signal=9.0),
            "changed code": lambda: changed(exit_code=3.0), "changed signal": lambda: changed(signal=9.0),
            "float program": lambda: subprocess.CalledProcessError(3.0, ["prog"]),
            "no program": lambda: subprocess.CalledProcessError(None, ["prog"]),
            "own": lambda: Own("the reason"), "word": lambda: Worded(),
            "aside": lambda: Aside("beside it"),
        }
        @task
        def fails(how: str): raise errors[how]()
        @task
        def mute(_):
            class Shut:
                def write(self, _): raise SystemExit
                def flush(self): pass
            sys.stderr = Shut()
            raise ValueError("not heard")
        serve()
        """
        expected = {
            "float code": "TypeError: 'float' object cannot be interpreted as an integer",
            "float signal": "TypeError: 'float' object cannot be interpreted as an integer",
            "changed code": "changed",
            "changed signal": "changed",
            "float program": "CalledProcessError: Command '['prog']' returned non-zero exit status 3",
            "no program": "CalledProcessError: <",
            "own": "own: the reason",
            "word": "its word",
            "aside": "cannot be put into words",
        }
        for_callers = {"changed code", "changed signal", "own", "word"}
        can = messages.PARTS | messages.ENDS | messages.REASONS
        with FakeSupervisor(script, capabilities=can) as supervisor:
            for how, said in expected.items():
                message, _ = supervisor.answer_of("fails", json.dumps(how).encode())
                self.assertEqual((kind(message), message.kind == "deliberate"), ("Failed", how in for_callers), how)
                self.assertIn(said, message.message)
            self.assertIn("not heard", supervisor.answer_of("mute", b"1")[0].message)
            supervisor.send(messages.Drain())
            _, errors, code = supervisor.end()
        self.assertEqual(code, 0)
        self.assertIn("CalledProcessError", errors, "the traceback is in the log")

    def test_an_exit_code_or_signal_is_an_integer(self):
        for wrong in ({"exit_code": 3.0}, {"signal": 9.0}, {"exit_code": "3"}):
            with self.assertRaises(TypeError):
                TaskError("why", **wrong)


class Answers(unittest.TestCase):
    def test_an_answer_that_cannot_be_written_is_a_failure(self):
        channel = mock.Mock()
        for outcome in (Failure(("exited", 3.0), "why"), Failure("no_such_kind", "why"), (b"output", "\ud800")):
            with contextlib.redirect_stderr(io.StringIO()):
                Session(channel, {})._answer((7, 1, 0), outcome)
            ((written, output),) = Decoder().feed(channel.queue_with.call_args.args[0])
            message = messages.FROM_WORKER.decode(written)
            self.assertEqual((kind(message), message.job, message.kind, output), ("Failed", 7, "app_error", b""))
            self.assertTrue(message.message)


class Outputs(unittest.TestCase):
    def test_a_text_or_bytes_of_another_class_are_sent_as_they_are(self):
        script = """
        class Word(str):
            def encode(self, *_, **__): return "no bytes"
            def __eq__(self, other): return True
            __hash__ = str.__hash__
        class Bytes(bytes):
            def __len__(self): return -5
            def __bytes__(self): return b"others"
        class Array(bytearray):
            def __len__(self): return 1 << 40
            def __bytes__(self): return b"others"
        values = {
            "word": Word("häuser"), "bytes": Bytes(b"abc"), "array": Array(b"abc"), "payload": Payload(Bytes(b"abc"), Word("a/b")),
            "view": memoryview(b"abcdef")[::2], "no type": Payload(b"abc", Word("no type")),
        }
        @task
        def returns(what: str): return values[what]
        @task
        def yields(what: str): yield values[what]
        serve()
        """
        data = "application/octet-stream"
        expected = {
            "word": ("häuser".encode(), "text/plain; charset=utf-8"),
            "bytes": (b"abc", data),
            "array": (b"abc", data),
            "payload": (b"abc", "a/b"),
            "view": (b"ace", data),
        }
        for task in ("returns", "yields"):
            with FakeSupervisor(script, capabilities=0) as supervisor:
                for what, answer in expected.items():
                    message, output = supervisor.answer_of(task, json.dumps(what).encode())
                    self.assertEqual((kind(message), output, message.media_type), ("Finished", *answer), what)
                self.assertIn("is no media type", supervisor.answer_of(task, b'"no type"')[0].message)


if __name__ == "__main__":
    unittest.main()
