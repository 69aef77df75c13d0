#!/usr/bin/env python3
"""A worker for offload in plain Python: offload serve --worker 'python3 examples/worker.py'

The bytes are described in the PROTOCOL section of protocol/src/lib.rs. `reverse` turns bytes around, `py.sum` adds up
a JSON array of numbers.
"""
import json, socket, struct, time

BYTES, JSON = "application/octet-stream", "application/json"   # what a payload is: any media type
RUN, CANCEL, DRAIN = range(3)                                 # to the worker
HELLO, STARTED, FINISHED, FAILED = range(4)                   # from the worker
APP_ERROR = 0
UNKNOWN = bytes(24)                                           # CPU time and memory that a job used

def reverse(data):
    return BYTES, data[::-1]

def py_sum(data):
    return JSON, json.dumps(sum(json.loads(data)), allow_nan=False).encode()

TASKS = {"reverse": (reverse, True), "py.sum": (py_sum, True)}   # name: (function, idempotent)

channel = socket.socket(fileno=0)                             # descriptor 0 is a socket: read it and write it
channel.setblocking(True)
incoming = channel.makefile("rb")

def read(length):
    data = incoming.read(length)
    if len(data) < length:
        raise SystemExit(0)                                   # the supervisor is gone
    return data

def text(string):
    return struct.pack("<Q", len(string.encode())) + string.encode()

def send(header, payload=b""):
    channel.sendall(struct.pack("<II", len(header), len(payload)) + header + payload)

offers = [text(name) + struct.pack("<?I??I", idempotent, 0, False, False, 0) for name, (_, idempotent) in TASKS.items()]
send(struct.pack("<I8sHHQ", HELLO, b"OFFLOADW", 2, 0, len(offers)) + b"".join(offers))

while True:
    header_length, payload_length = struct.unpack("<II", read(8))
    header, payload = read(header_length), read(payload_length)
    (number,) = struct.unpack_from("<I", header)
    if number == DRAIN:                                       # everything given before it has been answered
        break
    if number == CANCEL:                                      # one job at a time: whatever came before it has run
        continue
    job, attempt, name_length = struct.unpack_from("<QIQ", header, 4)
    run, _ = TASKS[header[24:24 + name_length].decode()]
    send(struct.pack("<IQI", STARTED, job, attempt))          # before the task runs: if we die, it was this job
    start = time.monotonic_ns()
    try:
        media_type, output = run(payload)
        send(struct.pack("<IQIQ", FINISHED, job, attempt, time.monotonic_ns() - start) + text(media_type) + UNKNOWN, output)
    except Exception as error:                                # the job fails, the worker goes on
        message = text(str(error).encode()[:1024].decode(errors="ignore"))
        send(struct.pack("<IQIQI", FAILED, job, attempt, time.monotonic_ns() - start, APP_ERROR) + message + UNKNOWN)
