"""The deadlines of the tests themselves (`__init__.py`): a run that hangs ends, and says where it is."""

import pathlib
import signal
import subprocess
import sys
import unittest

from .workers import PATIENCE

PACKAGE = str(pathlib.Path(__file__).parents[1])
# The deadlines are shorter in this run.
SOON = """
import faulthandler, os, signal, time
later, alarm = faulthandler.dump_traceback_later, signal.alarm
faulthandler.dump_traceback_later = lambda seconds, exit: later({run}, exit=exit)
signal.alarm = lambda seconds: alarm(1)
import tests

def waits_for_ever():
    time.sleep(3600)

"""


class Deadlines(unittest.TestCase):
    def run_of(self, script, run=3600):
        ran = subprocess.run([sys.executable, "-c", SOON.format(run=run) + script], cwd=PACKAGE, capture_output=True, timeout=PATIENCE)
        return ran.returncode, ran.stderr.decode()

    def test_a_run_that_hangs_ends_and_says_where_it_is(self):
        code, said = self.run_of("waits_for_ever()", run=0.1)
        self.assertEqual(code, 1)
        self.assertIn("in waits_for_ever", said)

    def test_a_run_that_is_ended_says_where_it_is(self):
        code, said = self.run_of("os.kill(os.getpid(), signal.SIGTERM)")
        self.assertEqual(code, -signal.SIGTERM)
        self.assertIn("in <module>", said)

    def test_a_forked_child_that_hangs_ends(self):
        code, _ = self.run_of("child = os.fork() or waits_for_ever()\nos._exit(os.WTERMSIG(os.waitpid(child, 0)[1]))")
        self.assertEqual(code, signal.SIGALRM)


if __name__ == "__main__":
    unittest.main()
