"""A supervisor as clients see it, as far as the tests need it: it sends what a test tells it to, and returns what comes."""

import os
import socket
import tempfile

from offload import _messages as messages
from offload._wire import Decoder, frame

from .workers import PATIENCE

NOTHING_USED = messages.Receipt(0, 0, 0, 0, 0, 0, 0, 0, messages.Usage(0, 0, 0))


class FakeListener:
    """Listens at `path`. Every wait has a deadline."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "socket")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        self.socket.listen()
        self.socket.settimeout(PATIENCE)
        self.ends = []
        return self

    def __exit__(self, *_):
        for end in self.ends:
            end.close()
        self.socket.close()
        self.folder.cleanup()

    def accept(self):
        """The next connection, greeted."""
        end = self.accept_silently()
        end.welcome()
        return end

    def accept_silently(self):
        """The next connection, which has said hello."""
        end = Connected(self.socket.accept()[0])
        self.ends.append(end)
        end.receive()
        return end


class Connected:
    """The other end of a client's connection."""

    def __init__(self, end):
        self.socket = end
        self.socket.settimeout(PATIENCE)
        self.decoder = Decoder()
        self.read = []

    def receive(self):
        """The next message with its payload."""
        while not self.read:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError("the client has closed its end")
            self.read += self.decoder.feed(data)
        header, payload = self.read.pop(0)
        return messages.TO_SUPERVISOR.decode(header), payload

    def send(self, message, payload=b""):
        self.socket.sendall(frame(messages.TO_CLIENT.encode(message), payload))

    def welcome(self):
        self.send(messages.ClientWelcome(b"OFFLOADC", 3, 0, 0, 64 << 20))

    def accepts(self, ticket):
        self.send(messages.Accepted(ticket, str(ticket)))

    def finishes(self, ticket, output=b"", outcome="ok", media_type="application/octet-stream"):
        error = None if outcome == "ok" else messages.ErrorDetail(outcome, "", None, None, None)
        report = messages.Report(str(ticket), "t", outcome, error, 1, NOTHING_USED, media_type, {}, [])
        self.send(messages.JobFinished(ticket, report), output)

    def close(self):
        self.socket.close()
