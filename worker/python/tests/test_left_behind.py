"""Threads of tasks: what they say, and when nothing of it is sent."""

import json
import unittest
from unittest import mock

from offload import _messages as messages
from offload._channel import Channel
from offload._wire import frame

from .fake_supervisor import FakeSupervisor
from .test_reading import started
from .workers import PATIENCE


def kind(message):
    return type(message).__name__


class LeftBehind(unittest.TestCase):
    def test_a_job_that_has_ended_says_nothing_while_another_one_or_its_next_attempt_runs(self):
        script = """
        kept = []
        @task(checkpoints=True)
        def keep(_):
            kept.append(job())
        @task
        def late(_):
            kept[0].progress(1, 1)
            kept[0].checkpoint("state")
            progress(2, 2)
        serve()
        """
        with FakeSupervisor(script) as supervisor:
            supervisor.answer_of("keep", b"1", job=7)
            for job, attempt in ((8, 1), (7, 2)):
                supervisor.run("late", b"1", job=job, attempt=attempt)
                said = [supervisor.next_message() for _ in range(3)]
                self.assertEqual([(kind(message), *message[:2]) for message in said],
                                 [("Started", job, attempt), ("Progress", job, attempt), ("Finished", job, attempt)])  # fmt: skip

    def test_a_thread_that_outlives_its_job_does_not_speak_for_the_next_one(self):
        script = """
        import threading
        spoke, go, said = threading.Event(), threading.Event(), threading.Event()
        def speak():
            progress(1, 1)
            spoke.set()
            go.wait(30)
            progress(3, 3)
            checkpoint("state")
            said.set()
        @task(checkpoints=True)
        def leave(_):
            threading.Thread(target=speak, daemon=True).start()
            spoke.wait(30)
        @task(checkpoints=True)
        def late(_):
            go.set()
            said.wait(30)
            progress(2, 2)
        serve()
        """
        with FakeSupervisor(script) as supervisor:
            for task, job, units in (("leave", 7, 1), ("late", 8, 2)):
                supervisor.run(task, b"1", job=job)
                said = [supervisor.next_message() for _ in range(3)]
                self.assertEqual([(kind(message), message.job) for message in said],
                                 [("Started", job), ("Progress", job), ("Finished", job)])  # fmt: skip
                self.assertEqual(said[1].done, units)

    def test_a_thread_that_outlives_its_job_is_told_so_in_all_it_asks_and_once_in_the_log(self):
        script = """
        import concurrent.futures, gc, json
        from offload._channel import Given
        pool = concurrent.futures.ThreadPoolExecutor(1)
        def ask(given):
            progress(1, 1)
            try:
                number = job().id
            except RuntimeError as error:
                number = str(error)
            return [number, cancelled(), given.cancelled()]
        @task
        def work(_):
            return pool.submit(ask, job()).result()
        @task
        def inputs(_):
            return len([thing for thing in gc.get_objects() if isinstance(thing, Given) and len(thing.input) > 1000])
        serve()
        """
        with FakeSupervisor(script) as supervisor:
            said = []
            for number in (7, 8, 9):
                supervisor.run("work", b"1" * 2000, job=number)
                while kind(supervisor.next_message()) != "Finished":
                    said.append((kind(supervisor.message), supervisor.message.job))
                said.append(json.loads(supervisor.payload))
            ended = ["the job 7, for which this thread speaks, has ended", True, False]
            self.assertEqual(said, [("Started", 7), ("Progress", 7), [7, False, False], ("Started", 8), ended, ("Started", 9), ended])
            self.assertEqual(supervisor.answer_of("inputs", b"1", job=10)[1], b"0")
            supervisor.socket.close()
            _, log, _ = supervisor.end()
        self.assertEqual(log.count("a thread that speaks for the job 7 goes on after its end"), 1)

    def test_an_answer_is_written_with_nothing_of_another_thread_in_it(self):
        seen = mock.MagicMock()
        end = mock.Mock(fileno=lambda: 0)
        channel = Channel(end)
        channel._writing = seen.turn
        channel._socket = seen.end
        channel.queue(messages.Ready())
        channel.queue_with(b"start", bytes(1 << 20))
        names = [name for name, _, _ in seen.mock_calls]
        self.assertEqual(names, ["turn.__enter__", "end.sendall", "end.sendall", "turn.__exit__"])

    def test_what_a_signal_handler_says_while_its_thread_writes_is_written_then(self):
        sent, progress = [], messages.Progress(7, 1, 2, 3)

        class End:
            def fileno(self):
                return 0

            def sendall(self, data):
                if not sent:  # a signal handler comes in the middle of the first piece
                    channel.send_of_job(progress)
                sent.append(bytes(data))

        channel = Channel(End())
        channel.job_began(7, 1)
        channel.queue_frame(b"start")
        writes = started(lambda: channel.queue_with(b"", bytes(1 << 20)))
        writes.join(PATIENCE)
        self.assertEqual([len(piece) for piece in sent[:2]], [5, 1 << 20])
        self.assertEqual(sent[2:], [frame(messages.FROM_WORKER.encode(progress))])


if __name__ == "__main__":
    unittest.main()
