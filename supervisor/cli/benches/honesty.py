#!/usr/bin/env python3
"""Whether `offload bench compare` and `advise` can be trusted, on this machine: they are given what is known before.

    cargo build --release && supervisor/cli/benches/honesty.py [--only NAME,NAME] [--binary FILE] [--json]

    verdicts    three runs of one command: are the verdicts the same?
    slower      a strategy that takes 10 % longer on purpose: is it reported as slower?  (10 runs)
    same        a strategy beside itself: is there no difference in at least 19 of 20 runs?
    crossover   a task whose crossover is known: is it found within 20 %?  (10 runs)
    auto        sizes on either side of an advised crossover: what does `auto` do beside the better strategy?
    claims      requests beside inline and offloaded work, partitioned beside inline, one worker more than there are cores

All runs print what the prober costs by itself. Nothing here is a test: the figures are of this machine, in these minutes. What is
deterministic is tested with samples of known costs, in `bench/statistics.rs` and `bench/advice.rs`.
"""
import argparse, json, os, subprocess, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../../.."))
FLAGS = None


def bench(*words):
    """What `offload bench ... --json` prints, a document each line."""
    command = [FLAGS.binary, "-q", "bench", *words, "--json"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {ran.returncode}: {ran.stderr.decode()[-500:]}")
    return [json.loads(line) for line in ran.stdout.decode().splitlines()]


def compare(*words):
    return bench("compare", "--seconds", str(FLAGS.seconds), *words)


def row(report, strategy):
    return next(row for row in report["strategies"] if row["strategy"] == strategy)


def machine(report):
    prober, noise = report["prober"], report["noise"]
    return (f"the prober alone: p99 {prober['probe_latency_us']['p99']} us, {prober['cpu']:.0%} of a core; "
            f"others used {noise['foreign'] + noise['stolen']:.0%}")


def verdicts():
    runs = [compare("--task", "json", "--size", "5000")[0] for _ in range(3)]
    found = [{row["strategy"]: row["beside"]["verdict"] for row in run["strategies"] if row["beside"]} for run in runs]
    for strategy in found[0]:
        ratios = ", ".join(f"{row(run, strategy)['beside']['ratio']:.2f}" for run in runs)
        yield f"{strategy}: {', '.join(run[strategy] for run in found)} ({ratios})", len({run[strategy] for run in found}) == 1
    yield machine(runs[0]), None


def counted(wanted, runs, *words):
    reports = [compare("--strategies", "inline,inline", "--size", "100000", *words)[0] for _ in range(runs)]
    besides = [report["strategies"][1]["beside"] for report in reports]
    ratios = " ".join(f"{beside['ratio']:.3f}" for beside in besides)
    found = [beside["verdict"] for beside in besides]
    counts = ", ".join(f"{verdict} {found.count(verdict)}" for verdict in sorted(set(found)))
    yield f"{counts} of {runs} (ratios {ratios})", found.count(wanted) >= runs - runs // 20
    yield machine(reports[0]), None


def crossover():
    known, sizes = 10_000, []
    for _ in range(10):
        found = bench("advise", "--synthetic", str(known), "--workers", "2")[0]["crossover"]
        sizes.append(found.get("size", 0) if found["found"] == "at" else 0)
    within = [abs(size / known - 1) <= 0.2 for size in sizes]
    yield f"known {known}, found {' '.join(map(str, sizes))}", all(within)


def auto():
    with tempfile.TemporaryDirectory() as folder:
        policy = os.path.join(folder, "policy.json")
        advice = bench("advise", "--task", "average", "--write", policy)[0]
        at = advice["offload_from"]
        if at is None:
            yield f"average is never offloaded here: {advice['crossover']}", None
            return
        sizes = ",".join(str(max(1000, int(at * factor))) for factor in (0.25, 0.5, 2, 4))
        strategies = "partitioned_budget,offloaded,auto"
        for report in compare("--task", "average", "--size", sizes, "--policy", policy, "--strategies", strategies):
            rates = {each["strategy"]: each["jobs_per_s"] for each in report["strategies"]}
            share = rates["auto"] / max(rates["partitioned_budget"], rates["offloaded"])
            rates = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
            yield f"size {report['size']} (crossover {at}): {rates} jobs/s; auto does {share:.2f} of the better one", share >= 0.9


def claims():
    report = compare("--task", "average", "--size", "10000000", "--strategies", "inline,partitioned_budget,offloaded")[0]
    inline, budget, offloaded = (row(report, name) for name in ("inline", "partitioned_budget", "offloaded"))
    p99 = offloaded["probe_latency_us"]["p99"]
    yield (f"requests wait {p99} us beside offloaded work (p99; max {offloaded['probe_latency_us']['max']}), "
           f"{inline['probe_latency_us']['p99']} us beside inline, whose jobs take {1e6 / inline['jobs_per_s']:.0f} us"), p99 <= 2000
    cost = 1 / budget["beside"]["ratio"]
    yield f"partitioned with a budget, average takes {cost:.2f} times as long as the direct loop", cost <= 1.3
    yield machine(report), None
    seeds = bench("seeds", "four-cores-five-workers")[0]
    yield f"four-cores-five-workers: {seeds['verdict']}: {seeds['sentence']}", seeds["verdict"] == "holds"


CHECKS = {
    "verdicts": verdicts, "slower": lambda: counted("less", 10, "--handicap", "10"), "same": lambda: counted("no_difference", 20),
    "crossover": crossover, "auto": auto, "claims": claims,
}


def main():
    global FLAGS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CHECKS))
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/offload"))
    parser.add_argument("--seconds", type=float, default=2.0, help="for each strategy, all rounds together")
    parser.add_argument("--json", action="store_true")
    FLAGS = parser.parse_args()
    for name in FLAGS.only.split(","):
        for line, holds in CHECKS[name]():
            if FLAGS.json:
                print(json.dumps({"check": name, "holds": holds, "found": line}), flush=True)
            else:
                print(f"{name:10} {'' if holds is None else 'yes' if holds else 'NO':4} {line}", flush=True)


if __name__ == "__main__":
    main()
