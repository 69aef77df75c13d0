#!/usr/bin/env python3
"""HTTP beside others (P9): the same requests, by the same client, in turn.

    cargo build --release && supervisor/http/benches/run.py [--rounds 3] [--seconds 3] [--connections 64] [--json]

Needs wrk; the peers are installed into a folder of their own (--folder) by cargo, npm and pip. A peer that cannot be had is
left out, and said to be.

    hello         a constant answer: what the server itself costs
    echo          64 bytes go through a worker process. With hyper, through one of two children, as one would write it by hand:
                  nothing is bounded, timed, measured, authorized or started again
    primes        a job of about 1 ms: POST 200000

CPU is that of the server and all its children, per request; "loop" is the process that answers alone. Lag is for how long the loop
had no time for anything new, at the 99th percentile. A peer is asked how late a timer of 10 ms was (/lag). Ours says how long the loop
was busy between two looks for events (/metrics), which is the most that a timer or an event can have waited; it is told in steps, so
what is shown is "at most".
"""
import argparse, json, os, re, shutil, signal, socket, statistics, subprocess, sys, tempfile, time, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../../.."))
TICK = os.sysconf("SC_CLK_TCK")
BODIES = {"hello": None, "echo": "x" * 64, "primes": "200000"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def descendants(pid):
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children") as children:
                    todo += [int(child) for child in children.read().split()]
        except FileNotFoundError:
            pass
    return found


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        except FileNotFoundError:
            pass
    return total / TICK


class Server:
    """A server that was started, and where its three kinds of request go."""

    def __init__(self, name, command, paths, token=None, env=None, port=None):
        self.name, self.paths, self.token = name, paths, token
        self.port = port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, **(env or {})}, start_new_session=True)

    def wait(self):
        path, body = self.paths["echo"] if "echo" in self.paths else self.paths["hello"], None
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended")
            try:
                kind = "echo" if "echo" in self.paths else "hello"
                data = BODIES[kind].encode() if BODIES[kind] else None
                request = urllib.request.Request(f"http://127.0.0.1:{self.port}{self.paths[kind]}", data)
                if self.token:
                    request.add_header("Authorization", f"Bearer {self.token()}")
                if urllib.request.urlopen(request, timeout=5).status == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not answer")

    def get(self, path):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token()}")
        return urllib.request.urlopen(request, timeout=30).read().decode()

    def lags(self):
        """What the loop had to say of its lag before some work is measured: to be shown to `lag_since`."""
        return steps(self.get("/metrics")) if self.token else self.get("/lag")

    def lag_since(self, before):
        """The 99th percentile of the lag since then, in microseconds."""
        if not self.token:
            return float(self.get("/lag"))
        counts = [(up_to, count - was) for (up_to, count), (_, was) in zip(steps(self.get("/metrics")), before, strict=True)]
        return next(up_to for up_to, count in counts if count >= 0.99 * counts[-1][1]) * 1e6

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def steps(metrics):
    """How often the loop was busy for at most so many seconds, by their number."""
    found = re.findall(r'^offload_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\d+)', metrics, re.MULTILINE)
    return [(float(up_to), int(count)) for up_to, count in found]


def wrk(server, kind, seconds, connections, folder):
    script = os.path.join(folder, "request.lua")
    lines = []
    if BODIES[kind] is not None:
        lines += ["wrk.method = 'POST'", f"wrk.body = '{BODIES[kind]}'", "wrk.headers['Content-Type'] = 'application/json'"]
    if server.token:
        lines.append(f"wrk.headers['Authorization'] = 'Bearer {server.token()}'")
    lines.append("""done = function(summary, latency, requests)
  io.write(string.format('RESULT %d %d %d %d %d\\n', summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99),
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout))
end""")
    with open(script, "w") as file:
        file.write("\n".join(lines))
    pids = descendants(server.process.pid)
    lags = server.lags()
    before, before_loop = cpu_seconds(pids), cpu_seconds([server.process.pid])
    ran = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", script,
                          f"http://127.0.0.1:{server.port}{server.paths[kind]}"], capture_output=True, text=True)
    cpu = cpu_seconds(descendants(server.process.pid)) - before
    loop = cpu_seconds([server.process.pid]) - before_loop
    lag = server.lag_since(lags)
    result = next((line for line in ran.stdout.splitlines() if line.startswith("RESULT")), None)
    if result is None:
        raise RuntimeError(f"wrk failed on {server.name}: {ran.stdout}{ran.stderr}")
    requests, micros, p50, p99, errors = map(int, result.split()[1:])
    if errors or not requests:
        raise RuntimeError(f"{server.name} {kind}: {errors} of {requests} requests failed")
    return {"per_s": requests / (micros / 1e6), "p50_us": p50, "p99_us": p99,
            "cpu_us": cpu / requests * 1e6, "loop_us": loop / requests * 1e6, "lag_us": lag}


def ours(folder):
    port, place = free_port(), tempfile.mkdtemp(dir=folder)
    os.chmod(place, 0o700)
    binary = os.environ.get("OFFLOAD", os.path.join(ROOT, "target/release/offload"))
    command = [binary, "serve", "--quiet", "--socket", f"{place}/o.sock", "--workers", "2", "--http", f"127.0.0.1:{port}"]
    token = lambda: open(f"{place}/http.token").read().strip()
    return Server("offload", command, {"hello": "/healthz", "echo": "/v1/tasks/echo", "primes": "/v1/tasks/primes"},
                  token=token, port=port)


def hyper_tokio(folder):
    package, target = os.path.join(HERE, "peers/hyper_tokio"), os.path.join(folder, "target")
    subprocess.run(["cargo", "build", "-q", "--release", "--manifest-path", f"{package}/Cargo.toml", "--target-dir", target], check=True)
    port = free_port()
    return Server("hyper on tokio", [f"{target}/release/hyper_tokio", str(port)], {"hello": "/", "echo": "/echo"}, port=port)


def node(folder):
    place = os.path.join(folder, "node")
    os.makedirs(place, exist_ok=True)
    for name in os.listdir(os.path.join(HERE, "peers/node")):
        shutil.copy(os.path.join(HERE, "peers/node", name), place)
    if not os.path.isdir(os.path.join(place, "node_modules/piscina")):
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=place, check=True)
    port = free_port()
    return Server("node http + piscina", ["node", f"{place}/server.mjs", str(port)],
                  {"hello": "/hello", "echo": "/echo", "primes": "/primes"}, port=port)


def uvicorn(folder):
    place = os.path.join(folder, "venv")
    if not os.path.exists(f"{place}/bin/uvicorn"):
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([f"{place}/bin/pip", "install", "-q", "uvicorn[standard]"], check=True)
    port = free_port()
    return Server("uvicorn + process pool", [f"{place}/bin/uvicorn", "server:app", "--app-dir", os.path.join(HERE, "peers/python"),
                                             "--port", str(port), "--log-level", "error"],
                  {"hello": "/hello", "echo": "/echo", "primes": "/primes"}, port=port)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "offload-http-peers"))
    parser.add_argument("--only", default="", help="names of servers, separated by commas")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    makers = {"offload": ours, "hyper": hyper_tokio, "node": node, "uvicorn": uvicorn}
    chosen = [name for name in makers if not arguments.only or name in arguments.only.split(",")]
    samples, paths = {}, {}
    for _ in range(arguments.rounds):
        for name in list(chosen):
            server = None
            try:
                server = makers[name](arguments.folder)
                server.wait()
                for kind in server.paths:
                    wrk(server, kind, 1, arguments.connections, arguments.folder)
                    figures = wrk(server, kind, arguments.seconds, arguments.connections, arguments.folder)
                    samples.setdefault((kind, server.name), []).append(figures)
            except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                print(f"left out: {name}: {error}", file=sys.stderr)
                chosen.remove(name)
            finally:
                if server:
                    server.stop()
    hello = samples.get(("hello", "hyper on tokio"))
    limit = statistics.median(one["per_s"] for one in hello) if hello else None
    if not arguments.json:
        print(f"{'REQUEST':8} {'SERVER':24} {'PER S':>9} {'P50 us':>8} {'P99 us':>8} {'CPU us':>8} {'LOOP us':>8} {'LAG us':>8} {'OF HELLO':>9}")
    for kind in BODIES:
        for (of, name), all_of_it in samples.items():
            if of != kind:
                continue
            median = {key: statistics.median(one[key] for one in all_of_it) for key in all_of_it[0]}
            ratio = median["per_s"] / limit if limit else None
            if arguments.json:
                print(json.dumps({"w": "p9", "request": kind, "server": name, **median, "of_hello": ratio}))
            else:
                shown = f"{ratio:9.2f}" if ratio else " " * 9
                print(f"{kind:8} {name:24} {median['per_s']:9.0f} {median['p50_us']:8.0f} {median['p99_us']:8.0f} "
                      f"{median['cpu_us']:8.1f} {median['loop_us']:8.1f} {median['lag_us']:8.0f} {shown}")


main()
