"""A hundred clients ask an application that crashes in one of fifty requests, while a worker is killed every 50 ms.

    storm.py PROGRAM SIGNAL COMMAND      the application of COMMAND crashes by SIGNAL

Each answer has to be right, or a 502 that says truly what happened to this job and to no other. None may be missing, and the supervisor
has to have counted them as the clients have. It prints its seed; STORM_SEED repeats the inputs.
"""

import collections
import hashlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

CLIENTS = 100
JOBS_OF_EACH = 20
# On a slow machine they do fewer; as many have to be right nevertheless.
BEGIN_NO_MORE_AFTER = 25
RIGHT_AT_LEAST = 100
KILLED_EVERY = 0.05
# A client that waits so long has lost its answer.
PATIENCE = 120

program, crash, command = sys.argv[1], int(sys.argv[2]), sys.argv[3]
seed = int(os.environ.get("STORM_SEED", random.SystemRandom().randrange(1 << 32)))
lock = threading.Lock()
counted = collections.Counter()
wrong = []


def note(what, wrong_because=None):
    with lock:
        counted[what] += 1
        if wrong_because is not None:
            wrong.append(f"{what}: {wrong_because}")


class Supervisor:
    def __init__(self, folder):
        self.socket = os.path.join(folder, "o.sock")
        self.log = open(os.path.join(folder, "log"), "w")
        words = ["serve", "--workers", "4", "--http", "127.0.0.1:0", "--tasks", "work,again:idempotent", "--worker-http", command]
        limits = ["--hello-timeout", "60s", "--backoff-max", "100ms", "--max-restarts", "1000000"]
        self.process = subprocess.Popen(
            [program, "--quiet", "--socket", self.socket, "--json", *words, *limits], stdout=subprocess.PIPE, stderr=self.log
        )
        ready = json.loads(self.process.stdout.readline() or "{}")
        if not ready:
            raise SystemExit(open(self.log.name).read())
        self.address = ready["http"]
        with open(os.path.join(folder, "http.token")) as token:
            self.token = token.read().strip()

    def view(self, verb):
        said = subprocess.run([program, "--socket", self.socket, "--json", verb], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(said.stdout) if said.returncode == 0 else None


def answer_of(connection, supervisor, task, body):
    """The status and the document. Asks again as long as it is turned away."""
    fields = {"Authorization": f"Bearer {supervisor.token}", "Content-Type": "application/json"}
    until = time.monotonic() + PATIENCE
    while True:
        connection.request("POST", f"/v1/tasks/{task}", json.dumps(body), fields)
        response = connection.getresponse()
        document = json.loads(response.read())
        if response.status not in (429, 503) or time.monotonic() > until:
            return response.status, document
        note("turned away")
        time.sleep(min(int(response.headers.get("Offload-Retry-After-Ms", 100)), 1000) / 1000)


def judge(task, body, status, document):
    expected = {"sha256": hashlib.sha256(body["text"].encode()).hexdigest()}
    said = json.dumps(document)
    is_guilty = body["dies"] and task == "work"
    if status == 200:
        return note("right", None if document == expected and not is_guilty else f"{body} answered {said}")
    if status != 502:
        return note(f"status {status}", said)
    # Whoever does not crash can only have been killed. The third attempt of an idempotent task may be killed, too.
    if f"signal {crash}" in said:
        return note("crashed", None if body["dies"] else f"an innocent job {said}")
    if "signal 9" in said and document["code"] in ("worker_crashed", "poison"):
        return note("killed")
    # It was killed when it had accepted the connection and not read all of the request: nobody knows whether it had begun.
    if document["code"] == "indeterminate" and task == "work":
        return note("in doubt")
    note("502 without a reason", said)


def be_a_client(number, supervisor, stop_at):
    numbers = random.Random(f"{seed} {number}")
    connection = http.client.HTTPConnection(supervisor.address, timeout=PATIENCE)
    try:
        for _ in range(JOBS_OF_EACH):
            if time.monotonic() > stop_at:
                return
            task = numbers.choice(["work", "again"])
            body = {"text": "x" * numbers.choice([1, 100, 10_000]) + str(numbers.random()), "dies": numbers.randrange(50) == 0}
            note("asked")
            judge(task, body, *answer_of(connection, supervisor, task, body))
    except Exception as error:  # whatever it is, an answer is missing
        note("lost", repr(error))


def crash_undisturbed(supervisor):
    """On a slow machine every guilty job may have been killed before it crashed. Nobody kills this one."""
    connection, body = http.client.HTTPConnection(supervisor.address, timeout=PATIENCE), {"text": "x", "dies": True}
    note("asked")
    judge("work", body, *answer_of(connection, supervisor, "work", body))


def applications_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            return [int(child) for child in children.read().split()]
    except OSError:
        return []


def be_the_killer(supervisor, over):
    numbers = random.Random(seed)
    workers, looked_at = [], 0.0
    while not over.wait(KILLED_EVERY):
        if time.monotonic() - looked_at > 4 * KILLED_EVERY:
            rows = supervisor.view("workers") or []
            workers, looked_at = [row["pid"] for row in rows if row["state"] in ("idle", "busy") and row["pid"]], time.monotonic()
        if not workers:
            continue
        pid = workers.pop(numbers.randrange(len(workers)))
        # The adapter or the application.
        victim = numbers.choice([pid, *applications_of(pid)])
        try:
            os.kill(victim, signal.SIGKILL)
            note("kills")
        except ProcessLookupError:
            pass


def main():
    print(f"seed {seed}: {command}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        supervisor = Supervisor(folder)
        try:
            over, stop_at = threading.Event(), time.monotonic() + BEGIN_NO_MORE_AFTER
            killer = threading.Thread(target=be_the_killer, args=(supervisor, over))
            clients = [threading.Thread(target=be_a_client, args=(number, supervisor, stop_at)) for number in range(CLIENTS)]
            for thread in [killer, *clients]:
                thread.start()
            for client in clients:
                client.join()
            over.set()
            killer.join()
            crash_undisturbed(supervisor)
            compare(supervisor.view("status"))
        finally:
            supervisor.process.terminate()
            code = supervisor.process.wait(60)
        if code != 0:
            wrong.append(f"the supervisor ended with {code}")
    print(", ".join(f"{what} {count}" for what, count in sorted(counted.items())))
    if wrong:
        raise SystemExit("\n".join([f"seed {seed}: {len(wrong)} wrong", *wrong[:10]]))


def compare(status):
    """What the supervisor has counted."""
    jobs = status["jobs"]
    if not status["ledger"]["balanced"]:
        wrong.append(f"the ledger is not balanced: {status}")
    if jobs["accepted"] != counted["asked"] or jobs["ok"] != counted["right"]:
        wrong.append(f"the supervisor has counted {jobs}, and the clients {dict(counted)}")
    for what, least in [("right", RIGHT_AT_LEAST), ("crashed", 1), ("kills", 1)]:
        if counted[what] < least:
            wrong.append(f"{counted[what]} {what}, at least {least} were expected")


main()
