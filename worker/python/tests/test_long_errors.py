"""What a worker prints by itself is short: a job is answered at once, however much its task has to say of what went wrong."""

import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

from offload import JobError, Pool
from offload import _messages as messages
from offload._calls import call, pack_call, unpack_result
from offload._trace import TRACE_MAX

from .fake_supervisor import PROLOGUE, Ended, FakeSupervisor
from .test_worker import kind

MUCH = "cannot use it\n" * 300_000
SOON = 15.0

SHAPES = """
import functools
MUCH = "cannot use it\\n" * 300_000
class Loud(Exception):
    def __str__(self): return MUCH
    __repr__ = __str__
class Shy(Exception):
    def __str__(self): raise SystemExit
    __repr__ = __str__
class Wordless(Exception):
    def __str__(self): return None
def chain(link):
    error = None
    for number in range(5000):
        last, error = error, ValueError(f"number {number} {MUCH[:1000]}")
        setattr(error, link, last)
    return error
def noted(*notes):
    error = ValueError("noted")
    error.__notes__ = list(notes)
    return error
def deep(depth):
    if depth == 0: raise ValueError("deep")
    return deeper(depth - 1)
def deeper(depth):
    return deep(depth)
def endless(): endless()
def circle():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first
def group(depth, member):
    return functools.reduce(lambda inner, _: ExceptionGroup("group", [inner] * 1000), range(depth), member)
def many():
    return ExceptionGroup("group", [ValueError(f"member {number} {MUCH}") for number in range(40)])
def syntax():
    return SyntaxError(MUCH, ("file", 1, 1, MUCH.replace("\\n", " ")))
def long_line():
    with open("long.py", "w") as file: file.write("f = lambda: [" + "1, " * 100_000 + "1 / 0]\\nf()")
    with open("long.py") as file: exec(compile(file.read(), "long.py", "exec"))
def long_name():
    names = {}
    exec(f"def {'x' * 300_000}(): raise ValueError('named')", names)
    names["x" * 300_000]()
def instead(make):
    raise make()
"""

# What is raised, and how the message begins.
RAISED = {
    "instead(lambda: ValueError(MUCH))": "ValueError: cannot use it cannot use it",
    "instead(Loud)": "Loud: cannot use it cannot use it",
    "instead(Shy)": "Shy: <exception str() failed>",
    "instead(Wordless)": "Wordless: <exception str() failed>",
    "instead(lambda: KeyError(Loud()))": "KeyError: cannot use it",
    "instead(lambda: type('N' * 300_000, (Exception,), {})())": "NNNNN",
    "instead(lambda: AttributeError(MUCH, ))": "AttributeError: cannot use it cannot use it",
    "instead(lambda: chain('__cause__'))": "ValueError: number 4999",
    "instead(lambda: chain('__context__'))": "ValueError: number 4999",
    "instead(circle)": "ValueError: first",
    "instead(lambda: noted(MUCH, 1))": "ValueError: noted cannot use it",
    "instead(lambda: noted(Shy()))": "ValueError: noted <note str() failed>",
    "instead(lambda: noted(*['a note'] * 300_000))": "ValueError: noted a note a note",
    "instead(syntax)": 'File "file", line 1',
    "deep(400)": "ValueError: deep",
    "endless()": "RecursionError: maximum recursion depth exceeded",
    "long_line()": "ZeroDivisionError: division by zero",
    "long_name()": "ValueError: named",
}
OF_GROUPS = {
    "instead(lambda: group(1, ValueError(MUCH)))": "ExceptionGroup: group (1000 sub-exceptions)",
    "instead(lambda: group(300, ValueError('inner')))": "ExceptionGroup: group (1000 sub-exceptions)",
    "instead(many)": "ExceptionGroup: group (40 sub-exceptions)",
}

# What a task does that ends well.
ASIDE = {
    "a record with an exception": """
        try: raise ValueError(MUCH)
        except ValueError: logging.getLogger("me").exception("it failed")
        """,
    "a record of asyncio": """
        async def fails(): raise ValueError(MUCH)
        async def main():
            loop = asyncio.get_running_loop()
            task = loop.create_task(fails())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            del task
            gc.collect()
        asyncio.run(main())
        """,
    "a warning": "warnings.warn(MUCH)",
    "an exception of a thread": """
        def fails(): raise ValueError(MUCH)
        thread = threading.Thread(target=fails)
        thread.start()
        thread.join()
        """,
    "an exception that Python ignores": """
        class Lost:
            def __del__(self): raise ValueError(MUCH)
        Lost()
        """,
}


class Jobs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.printed = pathlib.Path(folder.name) / "printed"
        go_there = f"os.chdir({folder.name!r})\nos.dup2(os.open('printed', os.O_CREAT | os.O_APPEND | os.O_WRONLY), 2)\n"
        imports = "import offload._failure\nimport asyncio, gc, logging, threading, warnings\n"
        task = "@task\ndef t(does: str): exec(does, globals())\nserve()\n"
        self.supervisor = FakeSupervisor(go_there + imports + SHAPES + task)
        self.addCleanup(self.supervisor.__exit__)

    def test_what_is_printed_of_many_exceptions_is_no_more_than_is_read(self):
        began, printed = time.monotonic(), 0
        for _ in range(300):
            printed += len(self.answer("instead(lambda: ValueError(MUCH))")[1])
        seconds = int(time.monotonic() - began) + 1
        self.assertLessEqual(printed, 2 * TRACE_MAX * (seconds + 1))
        self.assertIn("further exceptions are not shown", self.printed.read_text())

    def answer(self, does):
        """How a job is answered that does this, and what its worker has printed meanwhile."""
        before = self.printed.stat().st_size
        message, _ = self.supervisor.answer_of("t", textwrap.dedent(does).encode(), media_type="text/plain; charset=utf-8")
        return message, self.printed.read_bytes()[before:].decode()

    def test_little_is_said_of_an_exception_that_has_much_to_say(self):
        for raised, said in {**RAISED, **(OF_GROUPS if sys.version_info >= (3, 11) else {})}.items():
            with self.subTest(raised):
                self.answer("offload._failure._share = offload._failure._Share()")
                message, printed = self.answer(raised)
                self.assertEqual((kind(message), message.kind), ("Failed", "app_error"))
                self.assertEqual(message.message[: len(said)], said)
                self.assertLessEqual(len(message.message.encode()), messages.MESSAGE_MAX)
                self.assertIn(" in ", message.message)
                self.assert_short(printed, TRACE_MAX)
                self.assertIn(said.partition(":")[0], printed)
                self.assertIn("in t\n", printed)

    def test_what_is_left_out_is_said_and_what_was_raised_is_not_left_out(self):
        _, printed = self.answer("instead(lambda: chain('__cause__'))")
        self.assert_short(printed, TRACE_MAX)
        self.assertTrue(printed.startswith("[earlier exceptions are not shown]\n\nThe above exception was the direct"), printed)
        self.assertIn("ValueError: number 4999", printed)
        _, printed = self.answer("deep(400)")
        self.assert_short(printed, TRACE_MAX)
        self.assertIn("more frames are not shown]", printed)
        self.assertTrue(printed.endswith("ValueError: deep\n"), printed)

    def test_what_is_printed_beside_the_answer_is_short_too(self):
        for what, does in ASIDE.items():
            with self.subTest(what):
                message, printed = self.answer(does)
                self.assertEqual(kind(message), "Finished")
                self.assertIn("cannot use it", printed)
                self.assert_short(printed, TRACE_MAX + 2048)

    def assert_short(self, printed, most):
        self.assertLessEqual(len(printed.encode()), most, printed[:200])


class Starts(unittest.TestCase):
    def test_a_worker_that_cannot_start_ends_at_once(self):
        for error, said in (("ValueError", "ValueError: cannot use it"), ("SystemExit", "cannot use it")):
            # Nobody reads what it prints: it ends only if that is less than a pipe takes.
            script = f"@task\ndef t(_): pass\n@setup\ndef load(): raise {error}('cannot use it\\n' * 300_000)\nserve()"
            with self.subTest(error), FakeSupervisor(script, greet=False) as supervisor:
                supervisor.socket.settimeout(SOON)
                with self.assertRaises(Ended):
                    while True:
                        supervisor.receive()
                self.assertEqual(supervisor.process.wait(SOON), 1)
                _, errors, _ = supervisor.end()
                self.assertIn(said, errors)
                self.assertLessEqual(len(errors.encode()), TRACE_MAX + 100)


class Futures(unittest.TestCase):
    def test_the_traceback_of_a_call_is_short_and_its_exception_is_whole(self):
        _, error = unpack_result(call(pack_call(raise_much, (), {})))
        self.assertEqual(str(error), MUCH)
        self.assertIn("in raise_much", str(error.__cause__))
        self.assertLessEqual(len(str(error.__cause__)), TRACE_MAX)

    def test_an_exception_that_says_nothing_and_cannot_be_sent_has_its_name(self):
        _, error = unpack_result(call(pack_call(raise_strange, (), {})))
        self.assertEqual((type(error), str(error)), (RuntimeError, "Strange: <exception str() failed>"))


def raise_much():
    raise ValueError(MUCH)


def raise_strange():
    class Strange(Exception):
        def __str__(self):
            raise ValueError("nothing")

    raise Strange()


class Supervisors(unittest.TestCase):
    def test_a_long_message_is_an_error_of_the_task_and_no_timeout(self):
        script = """
        @task
        def t(n: int): raise ValueError(f"cannot use {['row'] * n}")
        @task
        def parts(n: int):
            yield "first"
            raise ValueError(f"cannot use {['row'] * n}")
        @task(checkpoints=True)
        def saves(n: int): checkpoint([f"{n}"] * n)
        serve()
        """
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "worker.py"
            program.write_text(PROLOGUE + textwrap.dedent(script))
            with Pool(worker=str(program), workers=1, log=subprocess.DEVNULL) as pool:
                for ask in (
                    lambda: pool.call("t", 500_000, timeout=10),
                    lambda: pool.map("t", [500_000, 500_001], timeout=10),
                    lambda: list(pool.stream("parts", 500_000, timeout=10)),
                    lambda: pool.call("saves", 500_000, timeout=10),
                ):
                    with self.assertRaises(JobError) as caught:
                        list(ask())
                    self.assertEqual(caught.exception.outcome, "app_error")
                    self.assertIn("worker.py:", caught.exception.message)


if __name__ == "__main__":
    unittest.main()
