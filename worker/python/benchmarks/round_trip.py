"""How long a call takes, beside bare loops over the same socket: `python3 benchmarks/round_trip.py`.

A bare client and a bare worker send the bytes of the protocol by hand, through the same supervisor. Each line is the time of
one call with an input of 100 bytes: the median of many rounds, in which all four take turns. The ratio is what the package
costs; at most 1.3 is the aim.
"""

import os
import pathlib
import socket
import statistics
import struct
import sys
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from offload import Pool  # noqa: E402
from offload import _messages as messages  # noqa: E402
from offload._requests import job_request  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
CALLS = 100
DATA = b"x" * 100


def bare_client(path):
    """A function that calls `echo`."""
    end = socket.socket(socket.AF_UNIX)
    end.connect(path)
    hello = messages.TO_SUPERVISOR.encode(messages.ClientHello(b"OFFLOADC", 3, 0, 0, ""))
    end.sendall(struct.pack("<II", len(hello), 0) + hello)
    end.recv(4096)
    header = job_request("echo", DATA).header(0)
    before, behind = struct.pack("<III", len(header), len(DATA), 1), header[12:] + DATA
    ticket = 0

    def call():
        nonlocal ticket
        ticket += 1
        end.sendall(before + struct.pack("<Q", ticket) + behind)
        data = b""
        while True:
            data += end.recv(65536)
            while len(data) >= 8:
                header_length, payload_length = struct.unpack_from("<II", data)
                if len(data) < 8 + header_length + payload_length:
                    break
                number, answered = struct.unpack_from("<IQ", data, 8)
                if number == 3 and answered == ticket:
                    return data[8 + header_length :]
                data = data[8 + header_length + payload_length :]

    return call


def microseconds(call):
    """The time of one call, from `CALLS` of them in a row."""
    began = time.perf_counter()
    for _ in range(CALLS):
        assert call() == DATA
    return (time.perf_counter() - began) / CALLS * 1e6


def main():
    worker = str(HERE / "bare_worker.py")
    package = str(HERE.parent)
    quiet = open(os.devnull, "w")
    with Pool(worker=[sys.executable, worker], workers=1, log=quiet) as bare, Pool(
        worker=[sys.executable, worker, package], workers=1, log=quiet
    ) as full:
        calls = {
            "bare client, bare worker": bare_client(bare.socket),
            "bare client, worker of the package": bare_client(full.socket),
            "client of the package, bare worker": lambda: bare.call("echo", DATA),
            "client and worker of the package": lambda: full.call("echo", DATA),
        }
        times = {name: [] for name in calls}
        for call in calls.values():
            microseconds(call)
        for _ in range(ROUNDS):
            for name, call in calls.items():
                times[name].append(microseconds(call))
    bare_time = statistics.median(times["bare client, bare worker"])
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:36} {median:7.1f} us  ratio {median / bare_time:.2f}  (best {min(measured):.1f} us)")


if __name__ == "__main__":
    main()
