"""Private supervisors: how they start, and that they always end."""

import glob
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from unittest import mock

from offload import NoSupervisor, OffloadError, Pool

from . import workers
from .workers import PATIENCE, eventually, is_alive

PACKAGE = str(pathlib.Path(__file__).parents[1])


class Pools(unittest.TestCase):
    def setUp(self):
        self.log = open(os.devnull, "w")
        self.addCleanup(self.log.close)

    def test_the_three_line_program(self):
        with Pool(log=self.log) as pool:
            self.assertEqual(pool.call("primes", "1000000"), {"count": 78498, "largest": 999983})
            folder, process = os.path.dirname(pool.socket), pool._supervisor.process
        self.assertFalse(os.path.exists(folder))
        self.assertEqual(process.poll(), 0)

    def test_workers_may_be_any_command(self):
        with Pool(worker=[sys.executable, "-c", f"import sys; sys.path.insert(0, {PACKAGE!r})\n"
                          "from offload import *\n@task\ndef one(): return 1\nserve()"], workers=1, log=self.log) as pool:  # fmt: skip
            self.assertEqual(pool.call("one"), 1)

    def test_workers_have_a_clean_environment_and_what_they_are_given(self):
        os.environ["SECRET"] = "1"
        self.addCleanup(os.environ.pop, "SECRET")
        with Pool(worker=workers.__file__, workers=1, env={"GIVEN": "häuser"}, log=self.log) as pool:
            self.assertEqual([pool.call("environment", name) for name in ("SECRET", "GIVEN")], [None, "häuser"])

    def test_settings_for_another_supervisor_do_not_count(self):
        os.environ["OFFLOAD_WORKERS"] = "nonsense"
        self.addCleanup(os.environ.pop, "OFFLOAD_WORKERS")
        with Pool(workers=1, log=self.log, arguments=["--max-jobs", "5"]) as pool:
            self.assertEqual(pool.status()["queue"]["max_jobs"], 5)

    def test_the_time_for_the_first_hello_can_be_chosen(self):
        for chosen in (["--hello-timeout", "30s"], ["--hello-timeout=30s"]):
            with Pool(workers=1, log=self.log, arguments=chosen) as pool:
                pool.wait_until_ready()

    def test_a_worker_that_cannot_start_is_an_error_with_the_reason(self):
        for worker, reason in (("no-such.py", "No such file"), (["no-such-program"], "no `no-such-program` in PATH")):
            with self.assertRaises(NoSupervisor) as refused, Pool(worker=worker, log=self.log):
                pass
            self.assertIn(reason, str(refused.exception))
            pool = Pool(worker=worker, log=self.log)
            self.addCleanup(pool.close)
            with self.assertRaises(NoSupervisor) as refused:
                pool.call("echo", b"")
            self.assertIn(reason, str(refused.exception))

    def test_without_the_program_it_says_how_to_name_it(self):
        binary = os.environ.get("OFFLOAD_BIN")
        self.addCleanup(os.environ.__setitem__, "OFFLOAD_BIN", binary) if binary else self.addCleanup(os.environ.pop, "OFFLOAD_BIN", None)
        os.environ["OFFLOAD_BIN"] = "/no/such/offload"
        with self.assertRaises(NoSupervisor) as refused, Pool(log=self.log):
            pass
        self.assertIn("/no/such/offload", str(refused.exception))

    def test_what_makes_no_sense_is_refused_and_leaves_nothing(self):
        before = set(os.listdir(tempfile.gettempdir()))
        closed = open(os.devnull)
        closed.close()
        wrong = [({"log": "x.log"}, TypeError), ({"log": subprocess.PIPE}, TypeError), ({"workers": 0}, ValueError),
                 ({"arguments": ["--max-jobs", 5]}, TypeError), ({"arguments": "--verbose"}, TypeError), ({"env": {"A": 5}}, TypeError),
                 ({"name": "x" * 100}, ValueError), ({"max_in_flight": 0}, ValueError), ({"worker": []}, ValueError),
                 ({"log": closed}, ValueError), ({"log": 1 << 20}, ValueError), ({"arguments": ["--max-jobs", "5\0"]}, ValueError)]  # fmt: skip
        for options, error in wrong:
            with self.subTest(options), self.assertRaises(error):
                Pool(**options)
        left = [name for name in set(os.listdir(tempfile.gettempdir())) - before if name.startswith(f"offload-pool-{os.getpid()}-")]
        self.assertEqual(left, [])

    def test_the_log_stays_what_it_was_when_the_pool_was_made(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(threading.Thread, "start"):
            path, other = os.path.join(folder, "log"), os.path.join(folder, "other")
            for number in (False, True):
                with open(path, "w") as log:
                    pool = Pool(worker=["no-such-program"], workers=1, log=log.fileno() if number else log)
                with open(other, "w"):  # which gets the number of the first
                    pool._supervisor._thread.run()
                pool.close()
                self.assertEqual(os.path.getsize(other), 0)
                self.assertGreater(os.path.getsize(path), 0)

    def test_whatever_keeps_the_supervisor_from_starting_is_told(self):
        for place in ("subprocess.Popen", "json.loads"):
            with mock.patch(f"offload._supervisor.{place}", side_effect=MemoryError("too little")):
                pool = Pool(workers=1, log=self.log)
                with self.assertRaises(NoSupervisor) as refused:
                    pool.wait_until_ready()
            self.assertIn("too little", str(refused.exception))
            process = pool._supervisor.process
            self.assertTrue(process is None or process.poll() is not None)
            pool.close()

    def test_a_pool_that_was_closed_says_so(self):
        pool = Pool(workers=1, log=self.log)
        pool.close()
        pool.close()
        with self.assertRaises(OffloadError) as refused:
            pool.call("echo", b"")
        self.assertIn("closed", str(refused.exception))

    def assert_ended(self, pool):
        supervisor = pool._supervisor
        eventually(lambda: not supervisor._thread.is_alive(), "the end of the thread that heard of the end of the process")
        self.assertTrue(supervisor.process is None or supervisor.process.poll() is not None, "its supervisor runs")
        self.assertFalse(os.path.exists(supervisor.folder))

    def test_a_pool_that_is_closed_at_once_leaves_nothing(self):
        for _ in range(20):
            pool = Pool(workers=1, log=self.log)
            pool.close()
            self.assert_ended(pool)

    def test_a_pool_that_is_closed_while_its_supervisor_is_forked_leaves_nothing(self):
        forking, go, fork = threading.Event(), threading.Event(), subprocess.Popen

        def slow_fork(*arguments, **options):
            forking.set()
            go.wait(PATIENCE)
            return fork(*arguments, **options)

        with mock.patch.object(subprocess, "Popen", slow_fork):
            pool = Pool(workers=1, log=self.log)
            self.assertTrue(forking.wait(PATIENCE))
            closing = threading.Thread(target=pool.close)
            closing.start()
            eventually(lambda: not closing.is_alive() or pool._supervisor._state == "stopping", "the begin of its end")
            go.set()
            closing.join(PATIENCE)
            pool._supervisor._thread.join(PATIENCE)
        self.assert_ended(pool)

    def test_drain_finishes_what_was_accepted(self):
        pool = Pool(worker=workers.__file__, workers=1, log=self.log)
        jobs = [pool.submit("slow_square", n) for n in range(20)]
        self.assertTrue(jobs[-1].id)
        pool.drain()
        self.assertEqual([job.result() for job in jobs], [n * n for n in range(20)])

    def test_a_pool_that_nobody_has_any_more_ends(self):
        pool = Pool(workers=1, log=self.log)
        pool.wait_until_ready()
        process = pool._supervisor.process
        del pool
        self.assertEqual(process.wait(PATIENCE), 0)


class Programs(unittest.TestCase):
    """Programs with a pool, which end in different ways."""

    def start(self, script):
        script = "import os, sys, threading, time\nfrom offload import Pool\n" + textwrap.dedent(script)
        environment = {**os.environ, "PYTHONPATH": PACKAGE}
        program = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
        )
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        return program

    def supervisor_of(self, program):
        return int(program.stdout.readline())

    def test_a_program_that_is_killed_takes_its_supervisor_with_it(self):
        script = f"""
        pool = Pool(worker={workers.__file__!r}, workers=2)
        pool.wait_until_ready()
        print(pool._supervisor.process.pid, flush=True)
        pool.call("hang", 1)
        """
        program = self.start(script)
        supervisor = self.supervisor_of(program)
        self.assertTrue(is_alive(supervisor))
        program.send_signal(signal.SIGKILL)
        eventually(lambda: not is_alive(supervisor), "the end of the supervisor")

    def test_a_forked_child_does_not_keep_the_supervisor_of_a_killed_program(self):
        script = """
        pool = Pool(workers=1)
        pool.wait_until_ready()
        child = os.fork()
        if child == 0:
            time.sleep(3600)
        print(pool._supervisor.process.pid, flush=True)
        print(child, flush=True)
        time.sleep(3600)
        """
        program = self.start(script)
        supervisor, child = self.supervisor_of(program), int(program.stdout.readline())
        self.addCleanup(os.kill, child, signal.SIGKILL)
        program.send_signal(signal.SIGKILL)
        eventually(lambda: not is_alive(supervisor), "the end of the supervisor")

    def test_a_program_that_returns_without_closing_ends_its_supervisor(self):
        program = self.start("pool = Pool(workers=1)\npool.wait_until_ready()\nprint(pool._supervisor.process.pid, flush=True)")
        supervisor = self.supervisor_of(program)
        self.assertEqual(program.wait(PATIENCE), 0)
        self.assertFalse(is_alive(supervisor))

    def test_a_pool_outlives_the_thread_that_made_it(self):
        script = """
        made = []
        thread = threading.Thread(target=lambda: made.append(Pool(workers=1)))
        thread.start()
        thread.join()
        made[0].wait_until_ready()
        print(made[0]._supervisor.process.pid, flush=True)
        print(made[0].map("echo", ["still here"] * 200)[-1], flush=True)
        """
        program = self.start(script)
        self.supervisor_of(program)
        self.assertEqual(program.stdout.readline(), "still here\n")

    def test_what_a_killed_program_has_left_is_removed_by_a_later_one(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as place:
            self.addCleanup(os.environ.update, {name: os.environ[name] for name in ("TMPDIR", "XDG_RUNTIME_DIR") if name in os.environ})
            os.environ["XDG_RUNTIME_DIR"] = place
            left = os.path.join(place, "offload-pool-left")
            os.mkdir(left)
            os.utime(left, (0, 0))
            try:
                with workers.quiet() as log, Pool(workers=1, log=log), Pool(workers=1, log=log):
                    self.assertFalse(os.path.exists(left))
                    folders = glob.glob(os.path.join(place, "offload-pool-*"))
                    self.assertEqual(len(folders), 2, "those of living supervisors stay")
            finally:
                del os.environ["XDG_RUNTIME_DIR"]

    def test_the_folder_of_a_program_that_was_killed_is_removed_by_the_next_one(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as place:
            if "XDG_RUNTIME_DIR" in os.environ:
                self.addCleanup(os.environ.update, {"XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]})
            os.environ["XDG_RUNTIME_DIR"] = place
            try:
                program = self.start(
                    "pool = Pool(workers=1)\npool.wait_until_ready()\n"
                    "print(pool._supervisor.process.pid, pool._supervisor.folder, sep='\\n', flush=True)\ntime.sleep(3600)"
                )
                supervisor, folder = self.supervisor_of(program), program.stdout.readline().strip()
                program.send_signal(signal.SIGKILL)
                program.wait()
                eventually(lambda: not is_alive(supervisor), "the end of the supervisor")
                a_minute_ago = time.time() - 60
                os.utime(folder, (a_minute_ago, a_minute_ago))
                with workers.quiet() as log, Pool(workers=1, log=log):
                    self.assertFalse(os.path.exists(folder))
            finally:
                del os.environ["XDG_RUNTIME_DIR"]


if __name__ == "__main__":
    unittest.main()
