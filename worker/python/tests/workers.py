"""The worker program of the tests that need a supervisor, and what these tests have in common."""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time

PATIENCE = 30.0


def looks():
    """Something to loop over until what is looked for is there. Ends after `PATIENCE`."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        yield 0.005


def eventually(question, what="it"):
    """Waits until `question()` is true, and returns the answer. Fails after `PATIENCE`."""
    for pause in looks():
        answer = question()
        if answer:
            return answer
        time.sleep(pause)
    raise AssertionError(f"{what} did not happen within {PATIENCE:.0f} s")


async def eventually_of_loop(question, what="it"):
    """The same for `await question()`, on a loop."""
    import asyncio  # this is the program of the workers, too, which need none

    for pause in looks():
        answer = await question()
        if answer:
            return answer
        await asyncio.sleep(pause)
    raise AssertionError(f"{what} did not happen within {PATIENCE:.0f} s")


@contextlib.contextmanager
def quiet():
    """A log that nobody reads."""
    with open(os.devnull, "w") as log:
        yield log


@contextlib.contextmanager
def supervisor(path):
    """`offload serve` at this socket, with the tasks that are built in."""
    from offload._supervisor import find_binary

    command = [find_binary(), "serve", "--json", "--socket", path, "--workers", "1"]
    environment = {**os.environ, "OFFLOAD_CONFIG": "/dev/null"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            assert select.select([process.stdout], [], [], PATIENCE)[0], "it does not start"
            said = process.stdout.readline()
            assert b'"ready":true' in said, said
            yield process
        finally:
            # It ends its workers before itself: one that is killed leaves them its lock for a moment.
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as about:
            return about.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main():
    from offload import Payload, TaskError, cancelled, job, serve, task

    @task(idempotent=True)
    def echo(data: bytes) -> bytes:
        return data

    @task(idempotent=True)
    def mirror(data: bytes):
        """As `echo`, with the media type of the input."""
        return Payload(data, job().media_type)

    @task(idempotent=True)
    def square(n: int) -> int:
        return n * n

    @task
    def shout(text: str) -> str:
        return text.upper()

    @task
    def picture(_):
        return Payload(b"\x89PNG", "image/png")

    @task
    def fails(why: str):
        raise TaskError(why)

    @task
    def crash(how: str):
        if how == "abort":
            os.abort()
        elif how == "segfault":
            ctypes.string_at(0)
        elif how == "exit":
            os._exit(7)
        elif how == "hang":
            signal.pause()

    @task
    def wait(file: str):
        """Says that it runs, by a file, until it is cancelled or the file has gone."""
        with open(file, "a") as said:
            said.write(f"{os.getpid()}\n")
        while os.path.exists(file) and not cancelled():
            time.sleep(0.005)

    @task
    def hang(_):
        while True:
            signal.pause()

    @task
    def count(n: int):
        for number in range(n):
            yield f"{number}\n"
        if "fail" in job().metadata:
            raise TaskError("after the last one")

    @task
    def flood(n: int):
        for _ in range(n):
            yield b"x" * 65536

    @task(idempotent=True)
    def slow_square(n: int) -> int:
        time.sleep(0.01)
        return n * n

    @task
    def environment(name: str):
        return os.environ.get(name)

    serve()


if __name__ == "__main__":
    main()
