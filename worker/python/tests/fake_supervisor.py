"""A supervisor for one worker, as far as the tests need it: it sends what a test tells it to, and returns what comes."""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import textwrap

from offload import _messages as messages
from offload._wire import Decoder, frame

PACKAGE = pathlib.Path(__file__).parents[1]
PATIENCE = 30.0
PROLOGUE = "from offload import *\nfrom offload import Payload\nimport os, sys, time\n"


class Ended(Exception):
    """The worker has closed its end."""


class FakeSupervisor:
    """Starts `script` as a worker. Every wait has a deadline."""

    def __init__(self, script, greet=True, capabilities=messages.PARTS):
        self.folder = tempfile.TemporaryDirectory()
        program = pathlib.Path(self.folder.name) / "worker.py"
        program.write_text(PROLOGUE + textwrap.dedent(script))
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(PATIENCE)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), *sys.path])}
        self.process = subprocess.Popen(
            [sys.executable, str(program)], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        theirs.close()
        self.decoder = Decoder()
        self.read = []
        self.offers = []
        if greet:
            self.hello, _ = self.receive()
            self.send(messages.Welcome(3, 0, capabilities, 64 << 20))
            while type(self.next_message()).__name__ == "Offer":
                self.offers.append(self.message)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()

    def send(self, message, payload=b""):
        self.socket.sendall(frame(messages.TO_WORKER.encode(message), payload))

    def run(self, task, payload=b"", job=1, attempt=1, media_type="application/json", timeout_ms=0):
        self.send(messages.Run(job, attempt, task, media_type, timeout_ms, 0, {"tenant": "blue"}), payload)

    def receive(self):
        while not self.read:
            data = self.socket.recv(1 << 16)
            if not data:
                raise Ended()
            self.read += self.decoder.feed(data)
        header, payload = self.read.pop(0)
        return messages.FROM_WORKER.decode(header), payload

    def next_message(self):
        self.message, self.payload = self.receive()
        return self.message

    def answer_of(self, task, payload=b"", **options):
        """Runs a job. Returns its last message and the payload of that."""
        self.run(task, payload, **options)
        assert type(self.next_message()).__name__ == "Started", self.message
        self.next_message()
        return self.message, self.payload

    def end(self):
        """What the worker printed to standard output and error, and its exit code."""
        output, errors = self.process.communicate(timeout=PATIENCE)
        return output.decode(), errors.decode(), self.process.returncode
