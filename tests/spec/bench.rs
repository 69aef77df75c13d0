//! `offload bench compare`: partitioning against offloading, as a table and as a document. `offload bench pool`: every
//! workload runs, and its figures are consistent. How good they are is not tested, because a test does not know what
//! else its machine does.

use serde_json::Value;
use tests::harness::{command, run, run_offload};

#[test]
fn the_strategies_are_compared_under_a_prober() {
    let ran = run_offload(&[
        "bench",
        "compare",
        "--task",
        "average",
        "--size",
        "20000",
        "--seconds",
        "0.3",
        "--json",
    ])
    .ok();
    let report = ran.json();
    let names: Vec<_> = report["strategies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["strategy"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["inline", "partitioned_step", "partitioned_budget", "threads", "offloaded"]);
    for row in report["strategies"].as_array().unwrap() {
        assert!(row["jobs"].as_u64() > Some(0), "{row}");
        assert!(row["probes"].as_u64() > Some(10), "{row}");
        let latency = &row["probe_latency_us"];
        assert!(latency["p50"].as_u64() <= latency["p99"].as_u64(), "{row}");
        assert!(latency["p99"].as_u64() <= latency["max"].as_u64(), "{row}");
        let beside = &row["beside"];
        if row["strategy"] == "inline" {
            assert_eq!(*beside, Value::Null);
        } else {
            let figures = ["low", "ratio", "high"].map(|name| number(beside, name));
            assert!(beside["strategy"] == "inline" && figures.is_sorted(), "{row}");
        }
    }
    assert_eq!(report["rounds"], 20);
    assert!(number(&report["prober"], "cpu") > 0.0, "{report}");
}

#[test]
fn two_strategies_are_compared_in_the_order_in_which_they_are_named() {
    let flags = ["--strategies", "threads,inline,threads", "--rounds", "2", "--seconds", "0.1", "--json"];
    let report = run_offload(&[&["bench", "compare"], &flags[..]].concat()).ok().json();
    let beside = |at: usize| report["strategies"][at]["beside"].clone();
    assert_eq!(beside(0), Value::Null);
    for at in [1, 2] {
        assert_eq!(
            (&beside(at)["strategy"], &beside(at)["verdict"]),
            (&"threads".into(), &"too_few_rounds".into())
        );
        assert_eq!(beside(at)["low"], Value::Null);
    }
}

#[test]
fn json_can_be_compared_too_and_people_get_a_table() {
    let ran = run_offload(&["bench", "compare", "--task", "json", "--size", "2000", "--seconds", "0.3"]).ok();
    for word in ["inline", "offloaded", "jobs/s", "p99"] {
        assert!(ran.text().contains(word), "{}", ran.text());
    }
}

#[test]
fn each_task_is_compared_in_the_ways_that_are_possible_for_it() {
    for (task, size, possible) in
        [("primes", "100000", 5), ("pbkdf2", "100", 3), ("regex", "1000", 3), ("thumbnail", "64", 3)]
    {
        let flags = ["--task", task, "--size", size, "--rounds", "2", "--seconds", "0.04", "--json"];
        let report = run_offload(&[&["bench", "compare"], &flags[..]].concat()).ok().json();
        assert_eq!(report["strategies"].as_array().unwrap().len(), possible, "{report}");
        assert_eq!(report["left_out"].as_array().unwrap().len(), 5 - possible, "{report}");
    }
    let refused = run_offload(&["bench", "compare", "--task", "regex", "--strategies", "partitioned_step"]);
    refused.code(2);
    let sizes = ["--size", "1000,2000", "--rounds", "1", "--seconds", "0.01", "--json"];
    let reports = run_offload(&[&["bench", "compare"], &sizes[..]].concat()).ok().json_lines();
    assert_eq!(reports.iter().map(|report| &report["size"]).collect::<Vec<_>>(), [1000, 2000]);
}

/// The scenarios of `bench seeds`, in the order of their output.
const SCENARIOS: [&str; 8] = [
    "json-dos",
    "redos",
    "four-cores-five-workers",
    "one-pool-for-both",
    "long-tasks-in-the-pool",
    "readfile-whole-or-parts",
    "stuck-pool",
    "short-and-long-lanes",
];

#[test]
fn each_scenario_tells_what_is_claimed_and_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let mut seeds = command(&["bench", "seeds", "--quick", "--json"]);
    let lines = run(seeds.env("TMPDIR", folder.path()), b"").ok().json_lines();
    assert_eq!(lines.iter().map(|line| line["scenario"].as_str().unwrap()).collect::<Vec<_>>(), SCENARIOS);
    for line in &lines {
        assert!(["holds", "does_not_hold", "unclear"].contains(&line["verdict"].as_str().unwrap()), "{line}");
        assert!(line["claim"].as_str().unwrap().len() > 20 && line["sentence"].as_str().unwrap().len() > 20);
        let figures = line["figures"].as_array().unwrap();
        assert!(!figures.is_empty() && figures.iter().all(|figure| number(figure, "value") > 0.0), "{line}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    // Whatever this machine does meanwhile: these wait for what comes after 0.3 s, and that engine needs more for each slash.
    let of = |name: &str| lines.iter().find(|line| line["scenario"] == name).unwrap();
    let stuck = &of("stuck-pool")["figures"][0];
    assert!(number(stuck, "value") >= 250.0, "{stuck}");
    let stopped = &of("redos")["figures"][2];
    assert!(stopped["name"] == "stopped_after" && number(stopped, "value") >= 100.0, "{stopped}");
}

#[test]
fn one_scenario_can_be_run_and_people_get_a_paragraph() {
    let ran = run_offload(&["bench", "seeds", "--quick", "stuck-pool"]).ok();
    let text = ran.text();
    assert!(text.starts_with("stuck-pool\n  claim:") && text.contains(" here:"), "{text}");
    assert!(!text.contains("redos"), "{text}");
    run_offload(&["bench", "seeds", "nothing"]).code(2);
}

/// The lines of `bench pool --quick` for one workload, after what holds for all of them was checked: one object per
/// size, each with a limit and our figure, and nothing that failed.
fn pool_lines(workload: &str, unit: &str) -> Vec<Value> {
    let lines =
        run_offload(&["-q", "bench", "pool", "--quick", "--json", "--only", workload]).ok().json_lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in &lines {
        assert_eq!(
            (&line["w"], &line["unit"], &line["rounds"]),
            (&workload.into(), &unit.into(), &1.into()),
            "{line}"
        );
        assert!(number(line, "limit") >= 0.0 && number(line, "ours") >= 0.0, "{line}");
        assert!(line.get("error").is_none(), "{line}");
    }
    assert!(lines.is_sorted_by_key(|line| line["size"].as_u64()), "{lines:?}");
    lines
}

fn number(line: &Value, field: &str) -> f64 {
    line[field].as_f64().unwrap_or_else(|| panic!("{field} of {line}"))
}

#[test]
fn round_trips_are_measured_beside_those_of_two_processes() {
    for (workload, unit, jobs) in [("p1", "us", 300.0), ("p3", "ms", 2.0)] {
        for line in pool_lines(workload, unit) {
            assert!(number(&line, "limit") > 0.0 && number(&line, "ours") > 0.0, "{line}");
            assert!(number(&line, "jobs") >= jobs, "{line}");
        }
    }
}

#[test]
fn as_many_jobs_are_counted_as_were_in_flight() {
    for line in pool_lines("p2", "jobs/s") {
        assert_eq!(number(&line, "jobs"), number(&line, "size"), "{line}");
        assert!(number(&line, "ours") > 0.0 && number(&line, "limit") > 0.0, "{line}");
    }
}

#[test]
fn a_queued_job_takes_at_least_the_memory_of_its_payload() {
    for line in pool_lines("p10", "bytes") {
        assert_eq!(number(&line, "jobs"), number(&line, "size"), "{line}");
        assert!(number(&line, "ours") > 64.0 && number(&line, "limit") > 0.0, "{line}");
    }
}

#[test]
fn computing_jobs_have_an_efficiency_and_the_loop_a_lag_beside_them() {
    for line in pool_lines("p4", "ratio") {
        assert!(number(&line, "ours") > 0.0 && number(&line, "limit") > 0.0, "{line}");
        assert_eq!(number(&line, "jobs") * number(&line, "size"), 100_000.0, "{line}");
    }
    for line in pool_lines("p5", "ms") {
        assert!(number(&line, "p50_ms") <= number(&line, "ours"), "{line}");
        assert!(number(&line, "ours") <= number(&line, "max_ms"), "{line}");
    }
}

#[test]
fn the_death_of_a_worker_fails_no_job_but_its_own() {
    for line in pool_lines("p6", "ms") {
        assert_eq!((number(&line, "ok"), number(&line, "failed")), (number(&line, "size"), 0.0), "{line}");
        assert!(number(&line, "all_done_ms") > 0.0, "{line}");
    }
}

#[test]
fn a_first_result_comes_from_pools_of_one_two_and_four_workers() {
    let sizes: Vec<_> = pool_lines("p7", "ms").iter().map(|line| line["size"].clone()).collect();
    assert_eq!(sizes, [1, 2, 4]);
}

#[test]
fn under_many_deaths_every_job_is_done_and_none_is_lost() {
    for line in pool_lines("p12", "ratio") {
        assert!(number(&line, "kills") > 0.0 && number(&line, "jobs") > 0.0, "{line}");
        assert_eq!(number(&line, "lost"), 0.0, "{line}");
    }
}

#[test]
fn an_idle_supervisor_is_watched_alone_and_with_a_thousand_clients() {
    let lines = pool_lines("p13", "1/s");
    assert_eq!(lines.iter().map(|line| line["size"].clone()).collect::<Vec<_>>(), [0, 100, 1000]);
}

#[test]
fn people_get_a_table_of_the_pool_beside_its_limits() {
    let ran = run_offload(&["bench", "pool", "--quick", "--only", "p7"]).ok();
    for word in ["LIMIT", "OURS", "RATIO", "GOAL", "p7", "run_ms"] {
        assert!(ran.text().contains(word), "{}", ran.text());
    }
    assert!(ran.stderr.contains("--quick measures too little"), "{}", ran.stderr);
}

#[test]
fn a_workload_that_does_not_exist_is_wrong_usage_that_names_those_that_do() {
    let ran = run_offload(&["bench", "pool", "--only", "p8"]).code(2);
    assert!(ran.stderr.contains("p10, p12"), "{}", ran.stderr);
}

#[test]
fn as_a_peer_it_answers_the_workloads_that_the_environment_names() {
    let mut command = command(&["bench", "pool", "--as-peer"]);
    command.env("PEER_WORKERS", "2").env("PEER_WORKLOADS", "w1,w2,w3,w4,w5,w7").env("PEER_QUICK", "1");
    let lines = run(&mut command, b"").ok().json_lines();
    let names: Vec<_> = lines.iter().map(|line| line["w"].as_str().unwrap()).collect();
    assert_eq!(names, ["w7", "w1", "w2", "w3_1MiB", "w3_64MiB", "w4", "w6", "w5"]);
    assert!(lines.iter().all(|line| line["peer"] == "offload"), "{lines:?}");
    let (intact, crash) = (&lines[4]["intact"], &lines[7]);
    assert_eq!(
        (intact, &crash["ok"], &crash["failed"], &crash["hung"]),
        (&true.into(), &100.into(), &0.into(), &0.into())
    );
    assert!(crash["crash_job"].as_str().unwrap().contains("worker_crashed"), "{crash}");
    assert_eq!(crash["pool_usable_after"], true);
}

#[test]
fn as_a_peer_it_refuses_a_number_of_workers_that_is_none() {
    let mut command = command(&["bench", "pool", "--as-peer"]);
    let ran = run(command.env("PEER_WORKERS", "many"), b"").code(2);
    assert!(ran.stderr.contains("PEER_WORKERS"), "{}", ran.stderr);
}
