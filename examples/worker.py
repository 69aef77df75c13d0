#!/usr/bin/env python3
"""A worker for offload in plain Python: offload serve --worker 'python3 examples/worker.py'

The bytes are described in the PROTOCOL section of protocol/src/lib.rs. `reverse` turns bytes around, `py.sum` adds up
a JSON array of numbers.
"""
import json, socket, struct, time

BYTES, JSON = "application/octet-stream", "application/json"   # what a payload is: any media type
RUN, DRAIN = 1, 3                                             # to the worker
HELLO, OFFER, READY, STARTED, FINISHED, FAILED = range(6)     # from the worker
APP_ERROR, UNKNOWN = 0, bytes(24)                             # how a task failed; CPU time and memory that a job used

TASKS = {                            # name: function, idempotent, description, what it takes and returns, an example
    "reverse": (lambda data: data[::-1], True, "turns bytes around", "*/*", BYTES, b"abc"),
    "py.sum": (lambda data: json.dumps(sum(json.loads(data)), allow_nan=False).encode(),
               True, "adds up an array of numbers", JSON, JSON, b"[1, 2]"),
}

channel = socket.socket(fileno=0)                             # descriptor 0 is a socket: read it and write it
channel.setblocking(True)
incoming = channel.makefile("rb")

def read(length):
    data = incoming.read(length)
    if len(data) < length: raise SystemExit(0)                # the supervisor is gone
    return data

def text(string):
    return struct.pack("<Q", len(string.encode())) + string.encode()

def send(header, payload=b""):
    channel.sendall(struct.pack("<II", len(header), len(payload)) + header + payload)

send(struct.pack("<I8sHHQ", HELLO, b"OFFLOADW", 3, 0, 0) + text("worker.py"))
for name, (_, idempotent, description, accepts, produces, example) in TASKS.items():
    about = text(description) + struct.pack("<Q", 1) + text(accepts) + text(produces)
    send(struct.pack("<I", OFFER) + text(name) + struct.pack("<?I??I", idempotent, 0, False, False, 0) + about
         + struct.pack("<?Q?II", False, 0, False, len(example), 0), example)
send(struct.pack("<I", READY))

while True:
    header_length, payload_length = struct.unpack("<II", read(8))
    header, payload = read(header_length), read(payload_length)
    (number,) = struct.unpack_from("<I", header)
    if number == DRAIN:                                       # everything given before it has been answered
        break
    if number != RUN:                                         # Welcome, or a Cancel of a job that has run already
        continue
    job, attempt, name_length = struct.unpack_from("<QIQ", header, 4)
    run, _, _, _, media_type, _ = TASKS[header[24:24 + name_length].decode()]
    send(struct.pack("<IQI", STARTED, job, attempt))          # before the task runs: if we die, it was this job
    start = time.monotonic_ns()
    try:
        output = run(payload)
        send(struct.pack("<IQIQ", FINISHED, job, attempt, time.monotonic_ns() - start) + text(media_type) + UNKNOWN, output)
    except Exception as error:                                # the job fails, the worker goes on
        message = text(str(error).encode()[:1024].decode(errors="ignore"))
        send(struct.pack("<IQIQI", FAILED, job, attempt, time.monotonic_ns() - start, APP_ERROR) + message + UNKNOWN)
