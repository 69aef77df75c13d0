"""The questions that `offload worker check` puts to workers in any language."""

import pathlib
import shlex
import subprocess
import sys
import tempfile
import textwrap
import unittest

from offload._supervisor import find_binary

PACKAGE = str(pathlib.Path(__file__).parents[1])

# Each way in which a task can talk to the supervisor.
SCRIPT = f"""
import sys
sys.path.insert(0, {PACKAGE!r})
from offload import checkpoint, progress, resumed, serve, setup, task

@setup
def load():
    print("loaded")

@task(idempotent=True, example=[1, 2], checkpoints=True, progress_within=5)
def total(numbers: list) -> int:
    so_far = resumed(0)
    for done, number in enumerate(numbers):
        so_far += number
        checkpoint(so_far)
        progress(done + 1, len(numbers))
    return so_far

@task(example=3)
def count(n: int):
    yield from range(n)

serve()
"""


class Conformance(unittest.TestCase):
    def check(self, program):
        command = shlex.join([sys.executable, program])
        ran = subprocess.run(
            [find_binary(), "worker", "check", command, "--timeout", "60s"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.assertEqual(ran.returncode, 0, ran.stdout)
        self.assertIn("it keeps the protocol", ran.stdout)

    def test_a_worker_keeps_the_protocol(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(textwrap.dedent(SCRIPT))
            script.flush()
            self.check(script.name)


if __name__ == "__main__":
    unittest.main()
