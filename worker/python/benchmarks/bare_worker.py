"""The least that a worker in Python can do: one task `echo`, its bytes by hand, no checks, no threads."""

import socket
import struct
import sys

if len(sys.argv) > 1:  # the same task with the package
    sys.path.insert(0, sys.argv[1])
    from offload import serve, task

    @task(idempotent=True)
    def echo(data: bytes) -> bytes:
        return data

    serve()
    raise SystemExit

channel = socket.socket(fileno=0)
channel.setblocking(True)


def text(value):
    return struct.pack("<Q", len(value)) + value


def frame(header, payload=b""):
    return struct.pack("<II", len(header), len(payload)) + header + payload


hello = struct.pack("<I8sHHQ", 0, b"OFFLOADW", 3, 0, 0) + text(b"bare")
offer = struct.pack("<I", 1) + text(b"echo") + struct.pack("<?I??I", True, 0, False, False, 0)
offer += text(b"") + struct.pack("<Q", 0) + text(b"*/*") + struct.pack("<?Q?II", False, 0, False, 0, 0)
channel.sendall(frame(hello) + frame(offer) + frame(struct.pack("<I", 2)))
media_type = text(b"application/octet-stream")
started, finished = struct.Struct("<IIIQI"), struct.Struct("<IQIQ")
data = b""
while True:
    if len(data) < 8 or len(data) < 8 + sum(struct.unpack_from("<II", data)):
        more = channel.recv(65536)
        if not more:
            break
        data += more
        continue
    header_length, payload_length = struct.unpack_from("<II", data)
    header, payload = data[8 : 8 + header_length], data[8 + header_length : 8 + header_length + payload_length]
    data = data[8 + header_length + payload_length :]
    if header[0] == 3:
        break
    if header[0] == 1:
        job, attempt = struct.unpack_from("<QI", header, 4)
        channel.sendall(started.pack(16, 0, 3, job, attempt))
        channel.sendall(frame(finished.pack(4, job, attempt, 1000) + media_type + bytes(24), payload))
