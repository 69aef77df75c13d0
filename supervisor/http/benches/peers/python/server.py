"""uvicorn in front of a process pool, two workers, the same jobs."""
import asyncio
import json
import math
from concurrent.futures import ProcessPoolExecutor

pool = None
late = None


def echo(body):
    return body


def primes(body):
    n = int(body)
    sieve = bytearray([1]) * (n + 1)
    sieve[0:2] = b"\0\0"
    for p in range(2, int(n ** 0.5) + 1):
        if sieve[p]:
            sieve[p * p :: p] = bytes(len(range(p * p, n + 1, p)))
    return json.dumps({"count": sum(sieve), "largest": sieve.rindex(1)}).encode()


def watch(loop):
    """How late a timer of 10 ms was, each time since it was last asked, in microseconds."""
    due = loop.time() + 0.01

    def fired():
        late.append(max(0, loop.time() - due) * 1e6)
        watch(loop)

    loop.call_at(due, fired)


def take_lag():
    """The 99th percentile; the first time, it begins to watch."""
    global late
    every, late = sorted(late or []), []
    return str(every[math.ceil(len(every) * 0.99) - 1] if every else 0).encode()


async def answer(send, body):
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def app(scope, receive, send):
    global pool
    if scope["type"] != "http":
        return
    if scope["path"] == "/hello":
        return await answer(send, b"ok\n")
    if scope["path"] == "/lag":
        if late is None:
            watch(asyncio.get_running_loop())
        return await answer(send, take_lag())
    pool = pool or ProcessPoolExecutor(2)
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    task = {"/echo": echo, "/primes": primes}[scope["path"]]
    await answer(send, await asyncio.get_running_loop().run_in_executor(pool, task, body))
