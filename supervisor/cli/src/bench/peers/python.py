"""One strategy of Python, measured as `offload bench compare` measures its own: `python3 python.py STRATEGY TASK WIDTH INPUT_FILE`.

It says on a line that it is ready, with the answer of the task. For each line {"window_ms": N} it takes a sample and answers with a
line. It ends with its standard input.

    prober (a thread)             the loop of asyncio
    a call each millisecond   -->   notes how late it is, from when it was due
                                    jobs, one after another   <-- or -->   processes of ProcessPoolExecutor, a job in each
"""

import asyncio
import collections
import concurrent.futures
import hashlib
import json
import math
import os
import platform
import sys
import threading
import time

STRETCHES = 10
PERIOD = 0.001


def average(text):
    n, total = int(text), 0
    for number in range(1, n + 1):
        total += number
    return total / n


def primes(text):
    """Position i stands for the number 2 i + 1."""
    n = int(text)
    if n < 2:
        return {"count": 0, "largest": None}
    positions = (n + 1) // 2
    sieve = bytearray(b"\1") * positions
    sieve[0] = 0
    for at in range(1, (math.isqrt(n) - 1) // 2 + 1):
        if sieve[at]:
            prime = 2 * at + 1
            first = (prime * prime - 1) // 2
            sieve[first::prime] = bytes(len(range(first, positions, prime)))
    last = sieve.rfind(1)
    return {"count": 1 + sieve.count(1), "largest": 2 * last + 1 if last >= 0 else 2}


def measure(value, found, depth):
    found["values"] += 1
    if isinstance(value, list):
        found["largest_array"] = max(found["largest_array"], len(value))
        inner = value
    elif isinstance(value, dict):
        inner = value.values()
    else:
        return
    found["depth"] = max(found["depth"], depth + 1)
    for each in inner:
        measure(each, found, depth + 1)


def measured(text):
    found = {"values": 0, "depth": 0, "largest_array": 0}
    measure(json.loads(text), found, 0)
    return found


def pbkdf2(text):
    asked = json.loads(text)
    password, salt = asked["password"].encode(), asked["salt"].encode()
    return hashlib.pbkdf2_hmac("sha256", password, salt, asked["iterations"], asked["length"]).hex()


TASKS = {"average": average, "json": measured, "primes": primes, "pbkdf2": pbkdf2}


def run(task, text):
    return TASKS[task](text)


def show_up(_):
    """Long enough that each process of the pool gets one."""
    time.sleep(0.05)
    return os.getpid()


class Waits:
    """Waits in microseconds, exact to about 1 %: how often there was each."""

    def __init__(self):
        self.counts = collections.Counter()

    def note(self, seconds):
        us = max(0, round(seconds * 1e6))
        step = 1 if us < 256 else 1 << (us.bit_length() - 8)
        self.counts[us // step * step] += 1


def cpu_of(pids):
    """The kernel counts the time of a process that goes on in nanoseconds in this file only."""
    used = time.process_time()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/schedstat") as file:
                used += int(file.read().split()[0]) / 1e9
        except (OSError, ValueError, IndexError):
            pass
    return used


class Sample:
    def __init__(self, strategy, window_ms):
        self.loop = asyncio.get_running_loop()
        self.strategy, self.window = strategy, window_ms / 1e3
        self.waits, self.lags, self.stretches = Waits(), Waits(), [0] * STRETCHES
        self.jobs, self.is_over, self.done = 0, False, self.loop.create_future()
        self.pending = set()
        self.start = self.last = self.end = time.monotonic()

    def goes_on(self):
        return not self.is_over or self.jobs < self.strategy.width

    def probe(self):
        for number in range(1, round(self.window / PERIOD) + 1):
            due = self.start + number * PERIOD
            time.sleep(max(0.0, due - time.monotonic()))
            self.loop.call_soon_threadsafe(self.on_probe, due)
        self.loop.call_soon_threadsafe(self.on_last_probe)

    def on_probe(self, due):
        self.waits.note(time.monotonic() - due)

    def on_last_probe(self):
        self.is_over = True
        self.end_when_done()

    def end_when_done(self):
        if not self.goes_on() and not self.done.done():
            self.done.set_result(None)

    def tick(self):
        now = time.monotonic()
        late = max(0.0, now - self.last - PERIOD)
        self.lags.note(late)
        for at in range(self.stretch(self.last), self.stretch(now) + 1):
            self.stretches[at] = max(self.stretches[at], round(late * 1e6))
        self.last = now
        if not self.done.done():
            self.loop.call_later(PERIOD, self.tick)

    def stretch(self, moment):
        return min(STRETCHES - 1, int((moment - self.start) / self.window * STRETCHES))

    def on_answer(self, answer):
        if self.done.done():
            return
        if answer != self.strategy.answer:
            self.done.set_exception(RuntimeError(f"another answer: {answer}"))
        elif self.goes_on():
            self.jobs += 1
            self.end = time.monotonic()
            self.end_when_done()

    async def take(self):
        cpu = cpu_of(self.strategy.pids)
        prober = threading.Thread(target=self.probe, daemon=True)
        self.loop.call_later(PERIOD, self.tick)
        self.strategy.begin(self)
        prober.start()
        await self.done
        prober.join()
        taken = {
            "jobs": self.jobs, "seconds": time.monotonic() - self.start, "seconds_to_last": self.end - self.start,
            "waits_us": list(self.waits.counts.items()), "timer_us": list(self.lags.counts.items()),
            "stretches_us": self.stretches, "cpu_s": cpu_of(self.strategy.pids) - cpu,
        }
        # What is still computed at the end of a sample would slow down whoever comes next.
        if self.pending:
            await asyncio.wait(self.pending)
        return taken


class Inline:
    width, pids = 1, ()

    def __init__(self, task, text):
        self.task, self.text = task, text

    def begin(self, sample):
        def job():
            sample.on_answer(run(self.task, self.text))
            if sample.goes_on() and not sample.done.done():
                sample.loop.call_soon(job)
        sample.loop.call_soon(job)


class Processes:
    def __init__(self, task, text, width):
        self.task, self.text, self.width = task, text, width
        self.pool = concurrent.futures.ProcessPoolExecutor(width)
        self.pids = sorted(set(self.pool.map(show_up, range(width * 2))))

    def begin(self, sample):
        def job():
            future = sample.loop.run_in_executor(self.pool, run, self.task, self.text)
            sample.pending.add(future)
            future.add_done_callback(ended)

        def ended(future):
            sample.pending.discard(future)
            error = future.exception()
            if error is not None:
                if not sample.done.done():
                    sample.done.set_exception(error)
                return
            sample.on_answer(future.result())
            if sample.goes_on() and not sample.done.done():
                job()
        for _ in range(self.width):
            job()


def say(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(name, task, width, file):
    with open(file, encoding="utf-8") as source:
        text = source.read()
    strategy = Inline(task, text) if name == "inline" else Processes(task, text, int(width))
    strategy.answer = answer = run(task, text)
    sent = len(text.encode()) + len(json.dumps(answer)) if strategy.pids else 0
    say({"ready": True, "version": f"Python {platform.python_version()}", "bytes_of_a_job": sent, "answer": answer})
    for line in sys.stdin:
        window_ms = json.loads(line)["window_ms"]

        async def one():
            return await Sample(strategy, window_ms).take()
        say(asyncio.run(one()))
    if strategy.pids:
        strategy.pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)
