"""The tutorial of README.md does what README.md says."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import offload

FOLDER = pathlib.Path(__file__).parents[1] / "tutorial"
PACKAGE = str(pathlib.Path(offload.__file__).parents[1])
PATIENCE = 120.0


class Tutorial(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name, "tutorial")
        shutil.copytree(FOLDER, self.folder)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", "runs.so", "runs.c"], cwd=self.folder, check=True, timeout=PATIENCE)

    def run_python(self, *arguments):
        environment = {**os.environ, "PYTHONPATH": PACKAGE}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE)

    def test_a_crafted_picture_costs_its_own_call_and_no_other(self):
        output = self.run_python("app.py").stdout.decode()
        counts = {line.split(" x ")[1]: int(line.split(" x ")[0]) for line in output.splitlines()}
        self.assertEqual(counts.pop("256 pixels"), 196, output)
        self.assertEqual(sum(counts.values()), 4, output)
        self.assertTrue(all(answer.startswith("worker_crashed: signal 11 (SIGSEGV)") for answer in counts), output)

    def test_within_the_program_it_would_have_been_the_end_of_the_program(self):
        script = (
            "import ctypes; library = ctypes.CDLL('./runs.so'); runs = bytes([255, 255, 200] * 1000)\n"
            "library.unpack(runs, ctypes.c_size_t(len(runs)), ctypes.create_string_buffer(65536))"
        )
        self.assertEqual(self.run_python("-c", script).returncode, -11)

    def test_the_readme_shows_these_files(self):
        readme = (FOLDER.parent / "README.md").read_text()
        for name in ("runs.c", "worker.py", "app.py"):
            text = (FOLDER / name).read_text()
            shown = text.split('"""\n', 2)[-1] if name.endswith(".py") else text
            self.assertIn(shown.strip(), readme, name)


if __name__ == "__main__":
    unittest.main()
