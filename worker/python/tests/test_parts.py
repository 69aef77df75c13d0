"""Generators: what becomes of their parts, of what they return, and of those that nobody wants any more."""

import unittest

from offload import _messages as messages

from .fake_supervisor import FakeSupervisor
from .test_worker import kind

BYTES, TEXT, LINES = "application/octet-stream", "text/plain; charset=utf-8", "application/x-ndjson"


class Parts(unittest.TestCase):
    def output(self, supervisor, task):
        """Runs it. Its whole output, and the media type of that."""
        supervisor.run(task)
        data = []
        while kind(supervisor.next_message()) in ("Started", "Part"):
            data.append(supervisor.payload)
        self.assertEqual(kind(supervisor.message), "Finished", supervisor.message)
        return b"".join([*data, supervisor.payload]), supervisor.message.media_type

    def test_an_output_is_what_all_its_parts_are_and_what_is_returned_is_the_last(self):
        script = """
        @task
        def texts():
            yield "a"
            return "b"
        @task
        def values():
            yield 1
            return {"n": 2}
        @task
        def mixed():
            yield b"\\xff"
            yield "text"
            yield b"\\xfe"
        @task
        def pictures():
            yield Payload(b"1", "image/png")
            yield Payload(b"2", "image/png")
        @task
        def nothing():
            return
            yield
        @task
        def returned():
            return "only"
            yield
        serve()
        """
        expected = {
            "texts": (b"ab", TEXT),
            "values": (b'1\n{"n":2}\n', LINES),
            "mixed": (b"\xfftext\xfe", BYTES),
            "pictures": (b"12", "image/png"),
            "nothing": (b"", BYTES),
            "returned": (b"only", TEXT),
        }
        for capabilities in (messages.PARTS, 0):
            with FakeSupervisor(script, capabilities=capabilities) as supervisor:
                for task, output in expected.items():
                    self.assertEqual(self.output(supervisor, task), output, task)

    def test_a_generator_that_is_cancelled_ends_at_its_next_part_and_its_worker_goes_on(self):
        script = """
        @task
        def ticks():
            try:
                yield b"tick"
                while not cancelled():
                    time.sleep(0.005)
                yield b"tock"
                yield b"not reached"
            finally:
                checkpoint(cancelled())
        @task
        def process():
            return os.getpid()
        serve()
        """
        for capabilities in (messages.PARTS, 0):
            with FakeSupervisor(script, capabilities=capabilities) as supervisor:
                supervisor.run("ticks", job=3)
                self.assertEqual(kind(supervisor.next_message()), "Started")
                if capabilities:
                    self.assertEqual((kind(supervisor.next_message()), supervisor.payload), ("Part", b"tick"))
                supervisor.send(messages.Cancel(3))
                self.assertEqual((kind(supervisor.next_message()), supervisor.payload), ("Checkpoint", b"true"))
                self.assertEqual(kind(supervisor.next_message()), "Failed")
                self.assertEqual(int(supervisor.answer_of("process", job=4)[1]), supervisor.process.pid)

    def test_a_child_that_goes_on_sends_nothing_and_reads_nothing(self):
        script = """
        def in_child(then):
            child = os.fork()
            if not child:
                return then() or "child"
            return os.waitpid(child, 0)[1]
        @task
        def forks():
            yield b"one "
            ended = in_child(lambda: None)
            yield b"child " if ended == "child" else b"parent %d " % ended
        @task
        def waits():
            yield b"x" * (256 << 10)
            ended = in_child(lambda: None)
            yield b"y" * (256 << 10) if ended == "child" else b"parent %d" % ended
        @task
        def tells():
            def tell():
                progress(1, 2)
                checkpoint({})
                os._exit(3)
            return in_child(tell)
        serve()
        """
        with FakeSupervisor(script) as supervisor:
            self.assertEqual(self.output(supervisor, "forks"), (b"one parent %d " % (70 << 8), BYTES))
            supervisor.run("waits")
            self.assertEqual(kind(supervisor.next_message()), "Started")
            for _ in range(4):
                self.assertEqual(kind(supervisor.next_message()), "Part")
            supervisor.send(messages.Credit(1, 1 << 20))
            self.assertEqual((kind(supervisor.next_message()), supervisor.payload), ("Part", b"parent %d" % (70 << 8)))
            self.assertEqual(kind(supervisor.next_message()), "Finished")
            self.assertEqual(supervisor.answer_of("tells")[1], b"%d" % (3 << 8))


if __name__ == "__main__":
    unittest.main()
