//! `offload bench compare --with-node` and `--with-python`: the same jobs in other runtimes, in the same rounds; and `--policy`.

use serde_json::Value;
use tests::harness::{PATIENCE, command, private_folder, run, run_offload, wait_for_end, write_executable};

const SHORT: [&str; 8] =
    ["bench", "compare", "--strategies", "inline,offloaded", "--rounds", "2", "--seconds", "0.1"];

fn names(report: &Value) -> Vec<&str> {
    let rows = report["strategies"].as_array().expect("a list");
    rows.iter().map(|row| row["strategy"].as_str().expect("a name")).collect()
}

#[test]
fn node_and_python_are_measured_beside_ours() {
    for (task, size, partitioned) in [
        ("average", "20000", true),
        ("json", "200", true),
        ("primes", "20000", true),
        ("pbkdf2", "100", false),
    ] {
        let flags = ["--task", task, "--size", size, "--with-node", "--with-python", "--json"];
        let mut compare = command(&[&SHORT[..], &flags].concat());
        // No package can be found in an empty folder.
        let folder = private_folder();
        compare.current_dir(folder.path()).env("HOME", folder.path()).env_remove("NODE_PATH");
        compare.env("TMPDIR", folder.path());
        let report = run(&mut compare, b"").ok().json();
        let expected =
            ["inline", "offloaded", "node_inline", "node_partitioned", "python_inline", "python_processes"];
        let expected = expected.into_iter().filter(|name| partitioned || *name != "node_partitioned");
        assert_eq!(names(&report), expected.collect::<Vec<_>>());
        for row in report["strategies"].as_array().expect("a list") {
            assert!(row["jobs"].as_u64() > Some(0) && row["jobs_per_s"].as_f64() > Some(0.0), "{row}");
            assert_eq!(row["probes"], 100, "one for each millisecond: {row}");
            assert!(row["timer_lag_over_time_us"].as_array().expect("a list").len() == 20, "{row}");
            assert!(row["cpu_s"].as_f64() > Some(0.0), "{row}");
        }
        let row = |name| names(&report).iter().position(|each| *each == name).expect("it is there");
        let bytes = |name| report["strategies"][row(name)]["bytes_serialized"].as_u64();
        assert!(bytes("python_processes") > Some(0) && bytes("node_inline") == Some(0), "{report}");
        assert_eq!(report["missing"][0]["strategy"], "node_piscina");
        assert!(report["missing"][0]["because"].as_str().expect("a reason").contains("npm install piscina"));
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is left behind");
    }
}

#[test]
fn a_runtime_that_is_not_there_is_wrong_usage_that_says_what_to_do() {
    let folder = private_folder();
    for (flag, program) in [("--with-node", "node"), ("--with-python", "python3")] {
        let mut compare = command(&[&SHORT[..], &[flag]].concat());
        let ran = run(compare.env("PATH", folder.path()), b"").code(2);
        let expected = format!("{flag}: there is no program `{program}` in PATH: install it");
        assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
    }
    let ran = run_offload(&[&SHORT[..], &["--task", "regex", "--with-node"]].concat()).code(2);
    assert!(ran.stderr.contains("not for --task regex"), "{}", ran.stderr);
    run_offload(&[&SHORT[..], &["--exec", "cat", "--with-python"]].concat()).code(2);
}

#[test]
fn a_runtime_that_lies_fails_or_talks_too_much_ends_the_comparison_and_leaves_nothing() {
    let folder = private_folder();
    let pid = folder.path().join("pid");
    let flood = "#!/bin/sh\nexec /bin/sh -c 'while :; do printf xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done'\n";
    let with_child = format!(
        "#!/bin/sh\nsleep 3600 >/dev/null 2>&1 &\necho $! >{}\necho '{{\"error\": \"no\"}}'\n",
        pid.display()
    );
    for (script, expected) in [
        ("#!/bin/sh\necho '{\"ready\": true, \"answer\": 1}'\n", "its answer is 1, and ours"),
        ("#!/bin/sh\necho broken >&2\n", "node_inline: it has ended (broken)"),
        ("#!/bin/sh\necho nonsense\n", "nonsense"),
        (flood, "more than anybody reads"),
        (&with_child, "node_inline: no"),
    ] {
        write_executable(&folder.path().join("node"), script.as_bytes());
        let path = format!("{}:/bin:/usr/bin", folder.path().display());
        let mut compare = command(&[&SHORT[..], &["--with-node"]].concat());
        let ran = run(compare.env("PATH", path), b"").code(70);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    let pid = std::fs::read_to_string(pid).expect("the number of what it has started");
    let pid = pid.trim().parse().expect("a number");
    assert!(wait_for_end(pid, PATIENCE), "it was killed with the rest");
}

#[test]
fn jobs_go_where_a_policy_says() {
    let folder = private_folder();
    let file = folder.path().join("policy.json");
    std::fs::write(&file, r#"{"tasks": {"average": {"offload_from": 5000, "slice_us": 500}}}"#)
        .expect("a file");
    let file = file.to_str().expect("a path");
    let flags = ["bench", "compare", "--policy", file, "--rounds", "1", "--seconds", "0.05", "--json"];
    let reports = run_offload(&[&flags[..], &["--size", "1000,20000"]].concat()).ok().json_lines();
    let sent = |report: &Value| {
        let row = names(report).iter().position(|name| *name == "auto").expect("the strategy");
        report["strategies"][row]["bytes_serialized"].as_u64().expect("a number")
    };
    assert_eq!(sent(&reports[0]), 0, "on the loop nothing is sent");
    assert!(sent(&reports[1]) > 0, "a worker gets it");
    run_offload(&["bench", "compare", "--strategies", "auto"]).code(2);
    run_offload(&["bench", "compare", "--policy", "/nonexistent", "--seconds", "600"]).code(2);
}
