//! `offload bench compare`: partitioning against offloading, as a table and as a JSON document.

use tests::harness::run_offload;

#[test]
fn the_four_strategies_are_compared_under_a_prober() {
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
    assert_eq!(names, ["inline", "partitioned_step", "partitioned_budget", "offloaded"]);
    for row in report["strategies"].as_array().unwrap() {
        assert!(row["jobs"].as_u64() > Some(0), "{row}");
        assert!(row["probes"].as_u64() > Some(10), "{row}");
        let latency = &row["probe_latency_us"];
        assert!(latency["p50"].as_u64() <= latency["p99"].as_u64(), "{row}");
        assert!(latency["p99"].as_u64() <= latency["max"].as_u64(), "{row}");
    }
}

#[test]
fn json_can_be_compared_too_and_people_get_a_table() {
    let ran = run_offload(&["bench", "compare", "--task", "json", "--size", "2000", "--seconds", "0.3"]).ok();
    for word in ["inline", "offloaded", "jobs/s", "p99"] {
        assert!(ran.text().contains(word), "{}", ran.text());
    }
}
