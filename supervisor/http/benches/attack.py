#!/usr/bin/env python3
"""What the others feel when some clients misbehave, in one run: with the same clients and nobody else, and beside them.

    cargo build --release && supervisor/http/benches/attack.py [--seconds 5] [--rounds 3] [--slow 2000] [--json]

    slowloris   a polite client asks every 2 ms (in turn: a constant answer, and an echo through a worker), measured from the time
                at which it meant to ask; beside it, so many connections send a head a byte at a time and come back when they
                are cut off. First they do so to another supervisor ("elsewhere"): what they cost the machine, not the loop. The
                attackers run only while a core has nothing else to do, as if they had a machine of their own, or one would
                measure who gets a core; "connects" and "bytes" a second say that the attack is one
    crowd       the same, with 1,024 places for all of them: most are refused, and come back twice a second
    overload    ten times as many jobs as two workers can do arrive, whether the ones before were answered or not: how many
                are done beside what the workers can do, and how fast the others are refused
"""
import argparse, asyncio, json, mmap, os, signal, struct, statistics, subprocess, tempfile, time, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../../.."))
JOB_MS = 10
WORKERS = 2


class Supervisor:
    def __init__(self, *arguments):
        self.folder = tempfile.TemporaryDirectory()
        binary = os.environ.get("OFFLOAD", os.path.join(ROOT, "target/release/offload"))
        self.process = subprocess.Popen(
            [binary, "serve", "--json", "--quiet", "--socket", f"{self.folder.name}/o.sock", "--workers", str(WORKERS),
             "--http", "127.0.0.1:0", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        ready = json.loads(self.process.stdout.readline())
        self.host, port = ready["http"].rsplit(":", 1)
        self.port = int(port)
        self.token = open(ready["http_token_file"]).read().strip()

    def request(self, method, path, body=b""):
        head = (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n")
        return head.encode() + body

    def lag_ms(self):
        """How late the event loop was: p99 and the worst, since the start."""
        request = urllib.request.Request(f"http://{self.host}:{self.port}/v1/status", headers={"Authorization": f"Bearer {self.token}"})
        lag = json.load(urllib.request.urlopen(request, timeout=30))["event_loop"]["lag_us"]
        return lag["p99"] / 1000, lag["max"] / 1000

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.folder.cleanup()


class Connection:
    async def open(self, supervisor):
        self.reader, self.writer = await asyncio.open_connection(supervisor.host, supervisor.port)
        return self

    async def ask(self, request):
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        await self.reader.readexactly(length)
        return int(head[9:12])

    def close(self):
        self.writer.close()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


async def polite(supervisor, seconds):
    """Latencies in ms, from the time at which each request was due."""
    asked = {"hello": supervisor.request("GET", "/healthz"), "echo": supervisor.request("POST", "/v1/tasks/echo", b"x" * 64)}
    connection, found = await Connection().open(supervisor), {"hello": [], "echo": []}
    start, number = time.perf_counter(), 0
    while (due := number * 0.002) < seconds:
        await asyncio.sleep(max(0, start + due - time.perf_counter()))
        kind = ("hello", "echo")[number % 2]
        status = await connection.ask(asked[kind])
        assert status == 200, status
        found[kind].append((time.perf_counter() - start - due) * 1000)
        number += 1
    connection.close()
    return found


class Counts:
    """What the attackers have done, counted in memory that they share with this process."""
    def __init__(self):
        self.memory = mmap.mmap(-1, 16)

    def all(self):
        return struct.unpack("QQ", self.memory[:16])

    def add(self, connects, sent):
        before = self.all()
        self.memory[:16] = struct.pack("QQ", before[0] + connects, before[1] + sent)


async def slow(supervisor, stop, counts):
    """One slow client: a head that never ends, over and over."""
    while not stop.is_set():
        try:
            connection = await Connection().open(supervisor)
            counts.add(1, 0)
            connection.writer.write(b"POST /v1/tasks/echo HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            gone = asyncio.ensure_future(connection.reader.read(1 << 16))
            while not stop.is_set() and not gone.done():
                await asyncio.wait({gone}, timeout=2)
                connection.writer.write(b"a")
                counts.add(0, 1)
            gone.cancel()
            connection.close()
        except OSError:
            pass
        await asyncio.sleep(0.5)


def slowloris_process(supervisor, count, counts):
    """The attackers are a process of their own, so that the polite client does not wait for them."""
    async def attack():
        stop = asyncio.Event()
        await asyncio.gather(*(slow(supervisor, stop, counts) for _ in range(count)))
    pid = os.fork()
    if pid == 0:
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            asyncio.run(attack())
        finally:
            os._exit(0)
    return pid


def beside(supervisor, attacked, arguments):
    """What the polite client of one supervisor feels while one is attacked."""
    counts = Counts()
    attacker = slowloris_process(attacked, arguments.slow, counts)
    try:
        time.sleep(3)
        before, began = counts.all(), time.monotonic()
        found = asyncio.run(polite(supervisor, arguments.seconds))
        took = time.monotonic() - began
        found["connects"], found["bytes"] = ((now - then) / took for now, then in zip(counts.all(), before))
        return found
    finally:
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)


def slowloris(arguments, name="slowloris"):
    room = ("--http-connections", str(arguments.slow + 64)) if name == "slowloris" else ()
    supervisor, other = Supervisor(*room), Supervisor(*room)
    rounds = []
    try:
        asyncio.run(polite(supervisor, 1))
        for _ in range(arguments.rounds):
            rounds.append((asyncio.run(polite(supervisor, arguments.seconds)), beside(supervisor, other, arguments),
                           beside(supervisor, supervisor, arguments)))
        lag = supervisor.lag_ms()
    finally:
        supervisor.stop()
        other.stop()
    for kind in ("hello", "echo"):
        before, there, here = (statistics.median(percentile(one[kind], 0.99) for one in column) for column in zip(*rounds))
        connects, sent = (statistics.median(one[2][what] for one in rounds) for what in ("connects", "bytes"))
        report(arguments, {"w": name, "request": kind, "connects_per_s": connects, "bytes_per_s": sent, "slow": arguments.slow, "p99_alone_ms": before, "p99_elsewhere_ms": there,
                           "p99_here_ms": here, "ratio": here / before, "to_elsewhere": here / there, "lag_p99_ms": lag[0],
                           "lag_max_ms": lag[1], "target": "at most 2"})


def crowd(arguments):
    slowloris(arguments, "crowd")


async def overload_run(supervisor, per_second, seconds):
    request, idle, running = supervisor.request("POST", "/v1/tasks/sleep", str(JOB_MS).encode()), [], set()
    statuses, refused = {}, []

    async def one():
        connection = idle.pop() if idle else await Connection().open(supervisor)
        began = time.perf_counter()
        status = await connection.ask(request)
        statuses[status] = statuses.get(status, 0) + 1
        if status in (429, 503):
            refused.append((time.perf_counter() - began) * 1000)
        idle.append(connection)

    start, sent = time.perf_counter(), 0
    while (now := time.perf_counter() - start) < seconds:
        while sent < now * per_second:
            task = asyncio.ensure_future(one())
            running.add(task)
            task.add_done_callback(running.discard)
            sent += 1
        await asyncio.sleep(0.001)
    done = statuses.get(200, 0)
    await asyncio.gather(*running)
    for connection in idle:
        connection.close()
    return done / seconds, sent / seconds, refused, statuses


def overload(arguments):
    capacity = WORKERS * 1000 / JOB_MS
    supervisor = Supervisor("--max-jobs", "64")
    try:
        asyncio.run(overload_run(supervisor, capacity / 2, 1))
        full, _, _, _ = asyncio.run(overload_run(supervisor, capacity * 1.2, arguments.seconds))
        done, offered, refused, statuses = asyncio.run(overload_run(supervisor, capacity * 10, arguments.seconds))
    finally:
        supervisor.stop()
    report(arguments, {"w": "overload", "possible_per_s": capacity, "done_per_s_at_1.2": full, "offered_per_s": offered,
                       "done_per_s": done, "goodput": done / capacity, "refused": len(refused),
                       "refused_p50_ms": percentile(refused, 0.5), "refused_p99_ms": percentile(refused, 0.99),
                       "statuses": statuses, "target": "goodput at least 0.9; p99 of refusals under 5 ms"})


def report(arguments, figures):
    if arguments.json:
        return print(json.dumps(figures), flush=True)
    shown = "  ".join(f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}" for key, value in figures.items() if key != "w")
    print(f"{figures['w']:10} {shown}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3, help="of the first two; the median of their p99 is told")
    parser.add_argument("--slow", type=int, default=2000)
    parser.add_argument("--only", choices=["slowloris", "crowd", "overload"])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for name, measure in {"slowloris": slowloris, "crowd": crowd, "overload": overload}.items():
        if arguments.only in (None, name):
            measure(arguments)


main()
