#!/usr/bin/env python3
"""Runs the tests that cargo has built, several programs at once, and says at the end what has failed.

usage: run_built.py MESSAGES FAILURES

MESSAGES is what `cargo build --tests --message-format=json` said. A line for each failure goes to FAILURES: the test
program and the name of the test.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# Most of the tests wait most of the time, for processes and for limits of time: with more programs than this at once, two
# processors have no more to do.
LANES = 3

# These judge times, or have work for all processors. No other test program runs beside them: they come last.
ALONE = {"tests/event_loop"}

# What takes longest begins first, so that nothing is left alone at the end; the others come in any order.
LONG = ["tests/spec", "tests/memory", "tests/in_numbers", "simulation/simulation", "tests/crash_matrix"]

# Tests that wait for processes most of the time: so many at once.
THREADS = {"tests/spec": "5"}

# A program that runs for so many seconds waits for something that does not come, and is killed. What it has said until
# then tells which test that was.
LONGEST = int(os.environ.get("OFFLOAD_TESTS_LONGEST", "1500"))


class Program:
    """A test program."""

    def __init__(self, name, executable, folder):
        self.name, self.executable, self.folder = name, executable, folder
        self.failures = []
        self.is_late = False

    def run(self):
        started = time.monotonic()
        environment = dict(os.environ, CARGO_MANIFEST_DIR=self.folder)
        if self.name in THREADS:
            environment.setdefault("RUST_TEST_THREADS", THREADS[self.name])
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [self.executable],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            late = threading.Timer(LONGEST, self.end, [process.pid])
            late.start()
            # Its number belongs to nobody else until it has been asked for its exit code.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            late.cancel()
            late.join()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            said = output.read().decode(errors="replace")
        times = f"{time.monotonic() - started:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processors"
        self.report(process.returncode, said, times)

    def end(self, pid):
        self.is_late = True
        os.kill(pid, signal.SIGKILL)

    def report(self, code, output, times):
        results = [line for line in output.splitlines() if line.startswith("test result:")]
        passed = sum(int(line.split(" passed")[0].split()[-1]) for line in results)
        if code != 0:
            how = f"did not end in {LONGEST} s" if self.is_late else how_it_ended(code)
            failed = failed_tests(output) or [how]
            self.failures = [f"{self.name}: {test}" for test in failed]
        end = f"{len(self.failures)} FAILED" if self.failures else "ok"
        text = f"{self.name}: {passed} tests passed, {end}, {times}\n"
        print(text + (without_what_passed(output) if self.failures else ""), end="", flush=True)


def how_it_ended(code):
    return "ended without a word, " + (f"killed by signal {-code}" if code < 0 else f"exit code {code}")


def without_what_passed(output):
    """A thousand tests that passed would hide what the others said."""
    lines = output.splitlines()
    passed = tuple(line[: -len("... ok")] for line in lines if line.startswith("test ") and line.endswith(" ... ok"))
    return "".join(f"{line}\n" for line in lines if not line.startswith(passed))


def failed_tests(output):
    """The names below the last heading `failures:` of each list of results."""
    failed, names = [], []
    for line in output.splitlines():
        if line == "failures:":
            names = []
        elif line.startswith("test result:"):
            failed, names = failed + names, []
        elif line.startswith("    ") and not line.startswith("     "):
            names.append(line.strip())
    return failed


def built(messages):
    """The test programs, and the folder of those that they test."""
    programs, folder = {}, None
    for line in Path(messages).read_text().splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message.get("executable"):
            continue
        executable = message["executable"]
        package = Path(message["manifest_path"]).parent
        target = message["target"]
        if message["profile"]["test"]:
            name = f"{package.name}/{target['name']}"
            programs[executable] = Program(name, executable, str(package))
        elif target["name"] == "offload":
            folder = str(Path(executable).parent)
    return list(programs.values()), folder


def order(program):
    return LONG.index(program.name) if program.name in LONG else len(LONG)


def run_in_lanes(programs, lanes):
    waiting = sorted(programs, key=order, reverse=True)
    lock = threading.Lock()

    def lane():
        while True:
            with lock:
                if not waiting:
                    return
                program = waiting.pop()
            try:
                program.run()
            except OSError as error:
                program.failures = [f"{program.name}: {error}"]

    threads = [threading.Thread(target=lane) for _ in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(messages, failures):
    programs, folder = built(messages)
    os.environ["OFFLOAD_TEST_PROGRAMS"] = folder or ""
    run_in_lanes([program for program in programs if program.name not in ALONE], LANES)
    run_in_lanes([program for program in programs if program.name in ALONE], 1)
    failed = [failure for program in programs for failure in program.failures]
    Path(failures).write_text("".join(f"{failure}\n" for failure in failed))
    return 1 if failed or not folder else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
