#!/usr/bin/env python3
"""`map --exec` beside GNU parallel and xargs -P: the same commands, as many at a time, in turn.

    cargo build --release && supervisor/cli/benches/map.py [--rounds 3] [--jobs 500] [--workers N] [--binary FILE] [--json]

Needs parallel and xargs (Debian: parallel, findutils). A peer that is not there is left out, and said to be.

    sleep 0.01    commands of 10 ms: how close each comes to jobs * 10 ms / workers
    true          commands that do nothing: the time per job is what each costs

All print nothing, and all results are read. The best round of each counts, because what else the machine does only makes it
slower. Nothing here is a test: the figures are of this machine, in this minute.
"""
import argparse, json, os, shutil, subprocess, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../../.."))
COMMANDS = {"sleep 0.01": ["sleep", "0.01"], "true": ["true"]}


def tools(binary, workers):
    """Each tool as a function from a command to what runs it once for each line of standard input."""
    count = str(workers)
    offload = lambda command: [binary, "-q", "map", "--workers", count, "--exec", " ".join(command)]
    parallel = lambda command: ["parallel", "-j", count, " ".join(command) + " #"]
    xargs = lambda command: ["xargs", "-P", count, "-I", "{}"] + command
    return {"offload": offload, "parallel": parallel, "xargs": xargs}


def seconds(words, lines):
    began = time.monotonic()
    ended = subprocess.run(words, input=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    took = time.monotonic() - began
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: exit code {ended.returncode}: {ended.stderr.decode()[-500:]}")
    return took


def measure(arguments):
    lines = "".join(f"{number}\n" for number in range(arguments.jobs)).encode()
    best = {}
    for _ in range(arguments.rounds):
        for name, words in tools(arguments.binary, arguments.workers).items():
            program = arguments.binary if name == "offload" else name
            if not shutil.which(program):
                best[name] = None
                continue
            for label, command in COMMANDS.items():
                took = seconds(words(command), lines)
                of_tool = best.setdefault(name, {})
                of_tool[label] = min(took, of_tool.get(label, took))
    return best


def report(best, arguments):
    ideal = arguments.jobs * 0.01 / arguments.workers
    rows = []
    for name, times in best.items():
        if times is None:
            print(f"{name}: not installed, left out")
            continue
        per_job = times["true"] / arguments.jobs * 1e6
        rows.append({"tool": name, "sleep_s": times["sleep 0.01"], "of_ideal": times["sleep 0.01"] / ideal, "us_per_true": per_job})
    ours = next(row for row in rows if row["tool"] == "offload")
    for row in rows:
        row["sleep_ratio"] = row["sleep_s"] / ours["sleep_s"]
        row["overhead_ratio"] = row["us_per_true"] / ours["us_per_true"]
        if arguments.json:
            print(json.dumps(row))
    if not arguments.json:
        print(f"{arguments.jobs} jobs, {arguments.workers} at a time, best of {arguments.rounds} rounds; load {os.getloadavg()[0]:.1f}")
        print(f"{'TOOL':10} {'10 MS':>9} {'OF IDEAL':>9} {'US/TRUE':>9} {'10 MS VS OURS':>14} {'OVERHEAD VS OURS':>17}")
        for row in rows:
            print(
                f"{row['tool']:10} {row['sleep_s']:7.2f} s {row['of_ideal']:9.2f} {row['us_per_true']:9.0f}"
                f" {row['sleep_ratio']:14.2f} {row['overhead_ratio']:17.2f}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/offload"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not os.access(arguments.binary, os.X_OK):
        raise SystemExit(f"{arguments.binary} is not there: cargo build --release, or --binary FILE")
    # What they write beside their results goes to a folder of its own.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        os.environ.pop("OFFLOAD_SOCKET", None)
        report(measure(arguments), arguments)


if __name__ == "__main__":
    main()
