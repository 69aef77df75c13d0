//! `offload bench compare` with work of one's own: any kind of worker, and inputs of one's own.

use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;
use tests::harness::{Ran, command, private_folder, run, run_offload, workspace};

/// As short as it can be: what is tested is not how fast anything is.
const SHORT: [&str; 9] =
    ["bench", "compare", "--json", "--workers", "2", "--rounds", "2", "--seconds", "0.04"];

fn compare(words: &[&str]) -> Ran {
    run_offload(&[&SHORT[..], words].concat())
}

/// What a report says of one worker and two, after what holds for all such reports was checked.
fn rows(report: &Value) -> [&Value; 2] {
    let rows = report["strategies"].as_array().expect("a list");
    let names: Vec<_> = rows.iter().map(|row| &row["strategy"]).collect();
    assert_eq!(names, ["one_worker", "offloaded"], "{report}");
    let impossible = json!(["inline", "partitioned_step", "partitioned_budget", "threads"]);
    assert_eq!((&report["left_out"], &report["size"]), (&impossible, &Value::Null), "{report}");
    assert!(report["left_out_because"].as_str().expect("a text").contains("workers only"), "{report}");
    for row in rows {
        assert!(row["jobs"].as_u64() >= Some(2) && row["probes"].as_u64() >= Some(10), "{row}");
    }
    [&rows[0], &rows[1]]
}

/// A program that does its tasks in Python, one file, in a folder of its own.
fn program(text: &str) -> (TempDir, String) {
    let folder = private_folder();
    let path = folder.path().join("program.py");
    std::fs::write(&path, text).expect("a file");
    (folder, format!("python3 {}", path.display()))
}

/// A JSON Lines program with the task `t`, whose output is this expression.
fn jsonl(output: &str) -> (TempDir, String) {
    program(&format!(
        "import json, os, time\njobs, answers = open(3), open(4, 'w', buffering=1)\n\
         print(json.dumps({{'hello': {{'tasks': [{{'name': 't'}}]}}}}), file=answers)\n\
         for line in jobs:\n    job = json.loads(line)\n    \
         print(json.dumps({{'job': job['job'], 'output': {output}}}), file=answers)\n"
    ))
}

const HTTP: &str = "
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";

#[test]
fn one_worker_is_compared_with_several_for_each_kind_of_program() {
    let protocol = format!("python3 {}", workspace().join("examples/worker.py").display());
    let (_lines, jsonl) = jsonl("job['input']");
    let (_application, http) = program(HTTP);
    let http = format!("{http} {{port}}");
    let kinds: [&[&str]; 4] = [
        &["--worker", &protocol, "--task", "py.sum", "--input", "[1, 2]", "[3]"],
        &["--worker-jsonl", &jsonl, "--task", "t", "--input", "[1, 2]", "[3]"],
        &["--worker-http", &http, "--tasks", "t", "--task", "t", "--input", "[1, 2]", "[3]"],
        &["--exec", "cat", "--input", "[1, 2]", "[3]"],
    ];
    for words in kinds {
        let report = compare(words).ok().json();
        assert_eq!(report["inputs"], json!({"count": 2, "bytes": 9}), "{report}");
        for row in rows(&report) {
            assert_eq!(row["outputs_differ"], 0, "{words:?}: {row}");
            assert!(row["bytes_serialized"].as_u64() > Some(0), "{row}");
        }
    }
}

#[test]
fn outputs_that_differ_from_time_to_time_are_told() {
    let (_folder, worker) = jsonl("time.time_ns()");
    let words = ["--worker-jsonl", &worker, "--task", "t", "--input", "1"];
    let report = compare(&words).ok().json();
    for row in rows(&report) {
        assert_eq!(row["outputs_differ"], row["jobs"], "{row}");
    }
    let text =
        run_offload(&[&["bench", "compare", "--rounds", "1", "--seconds", "0.01"], &words[..]].concat());
    let text = text.ok().text();
    assert!(text.contains("Outputs differ: ") && text.contains("t, 1 input (1 B)"), "{text}");
    assert!(text.contains("done by workers only: inline, partitioned_step"), "{text}");
}

#[test]
fn inputs_are_files_words_standard_input_or_a_place_in_the_command() {
    let folder = private_folder();
    let file = folder.path().join("input");
    std::fs::write(&file, "from a file").expect("a file");
    let at_file = format!("@{}", file.display());
    let mut all = command(&[&SHORT[..], &["--exec", "cat", "--input", "a word", &at_file, "-"]].concat());
    let report = run(&mut all, b"from a pipe").ok().json();
    assert_eq!(report["inputs"], json!({"count": 3, "bytes": 6 + 11 + 11}), "{report}");
    let mut piped = command(&[&SHORT[..], &["--exec", "cat"]].concat());
    assert_eq!(run(&mut piped, b"piped").ok().json()["inputs"], json!({"count": 1, "bytes": 5}));
    let named = compare(&["--exec", "wc -c {}", "--input", &at_file]).ok().json();
    assert_eq!(named["inputs"]["bytes"].as_u64(), Some(length(&file)), "{named}");
    rows(&named);
}

fn length(path: &Path) -> u64 {
    path.as_os_str().len() as u64
}

#[test]
fn a_built_in_task_can_have_inputs_of_ones_own() {
    let report = compare(&["--task", "wordcount", "--input", "a b a"]).ok().json();
    assert_eq!(report["task"], "wordcount");
    rows(&report);
}

#[test]
fn what_cannot_be_compared_is_refused_before_anything_is_measured() {
    let (_folder, worker) = jsonl("1/0");
    let many: Vec<&str> = [&["--exec", "cat", "--input"][..], &["x"; 257]].concat();
    let refused: [(&[&str], i32, &str); 9] = [
        (&["--task", "wordcount"], 2, "average, json, primes, pbkdf2, regex, thumbnail"),
        (&["--worker", "no-such-program", "--task", "t"], 2, "no-such-program"),
        (&["--exec", "no-such-program"], 2, "no-such-program"),
        (&["--worker-jsonl", &worker], 2, "--task"),
        (&["--exec", "cat", "--input", "@/no/such/file"], 2, "/no/such/file"),
        (&["--exec", "cat", "--strategies", "inline"], 2, "workers only"),
        (&["--exec", "false"], 1, "exit code 1"),
        (&["--worker-jsonl", &worker, "--task", "t", "--input", "1"], 125, "worker_crashed"),
        (&many, 2, "1 to 256"),
    ];
    for (words, code, expected) in refused {
        let ran = compare(words).code(code);
        assert!(ran.stderr.contains(expected), "{words:?}: {}", ran.stderr);
    }
    compare(&["--exec", "cat", "--size", "7"]).code(2);
    compare(&["--exec", "cat", "--task", "average"]).code(2);
    let unknown = compare(&["--task", "nope", "--input", "x"]).code(4);
    assert!(unknown.stderr.contains("unknown_task"), "{}", unknown.stderr);
}

/// A JSON Lines program whose jobs take this long at least.
fn slow(seconds: f64) -> (TempDir, String) {
    jsonl(&format!("time.sleep({seconds})"))
}

/// Enough rounds to be sure, and each as short as it can be.
fn rounds(worker: &str, words: &[&str]) -> Ran {
    let fixed = ["bench", "compare", "--json", "--workers", "2", "--rounds", "6", "--seconds", "0.06"];
    let own = ["--worker-jsonl", worker, "--task", "t", "--input", "1"];
    run_offload(&[&fixed[..], &own, words].concat())
}

fn verdicts(report: &Value) -> Vec<&Value> {
    rows(report).map(|row| &row["baseline"]["verdict"]).to_vec()
}

#[test]
fn a_strategy_that_became_slower_than_the_baseline_ends_with_1_and_the_same_does_not() {
    let ((_fast_folder, fast), (_slow_folder, slow)) = (slow(0.005), slow(0.2));
    let folder = private_folder();
    let file = folder.path().join("before.json");
    let before = rounds(&fast, &[]).ok();
    assert_eq!(rows(&before.json())[0]["baseline"], Value::Null);
    std::fs::write(&file, &before.stdout).expect("a file");
    let with_baseline = ["--baseline", file.to_str().expect("a path")];
    let slower = rounds(&slow, &with_baseline).code(1);
    assert_eq!(verdicts(&slower.json()), ["slower", "slower"]);
    let row = &slower.json()["strategies"][0]["baseline"];
    assert!(row["high"].as_f64() < Some(1.0) && row["low"].as_f64() <= row["ratio"].as_f64(), "{row}");
    assert!(slower.stderr.contains("beside the baseline: one_worker 0."), "{}", slower.stderr);
    // A wide tolerance, because other tests run meanwhile.
    let same = rounds(&fast, &[&with_baseline[..], &["--tolerance", "90"]].concat()).ok();
    assert!(verdicts(&same.json()).iter().all(|verdict| *verdict != "slower"), "{same:?}");
}

#[test]
fn a_baseline_of_something_else_is_refused_before_anything_is_measured() {
    let folder = private_folder();
    let file = folder.path().join("before.json");
    let average = |words: &[&str]| {
        let fixed =
            ["bench", "compare", "--json", "--strategies", "inline", "--size", "1000", "--seconds", "0.02"];
        run_offload(&[&fixed[..], &["--rounds", "2"], words].concat())
    };
    let before = average(&[]).ok().json();
    let with_baseline = ["--baseline", file.to_str().expect("a path")];
    let refused = |text: &str, words: &[&str], expected: &str| {
        std::fs::write(&file, text).expect("a file");
        let ran = average(&[&with_baseline[..], words].concat()).code(2);
        assert!(ran.stderr.contains(expected) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    };
    let mut elsewhere = before.clone();
    elsewhere["machine"]["model"] = "another".into();
    refused(&elsewhere.to_string(), &[], "another machine");
    refused(&before.to_string(), &["--task", "primes"], "is of average 1000, and this is primes 1000");
    let workers = before["workers"].as_u64().expect("a number");
    refused(&before.to_string(), &["--workers", &(workers + 1).to_string()], &format!("--workers {workers}"));
    refused("", &[], "it is empty");
    refused("{}", &[], "no report of `offload bench compare --json`");
    std::fs::remove_file(&file).expect("a file");
    assert!(average(&with_baseline).code(2).stderr.contains("cannot read"));
    average(&["--tolerance", "5"]).code(2);
}
