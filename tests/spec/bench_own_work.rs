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
