//! The tasks that need no worker: `fs.read`, `fs.stat` and `dns.lookup`, by the command line and over HTTP.

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::json;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use tempfile::TempDir;
use tests::chaos::process::peak_resident_bytes;
use tests::harness::{Daemon, Ran, run_offload, until};
use tests::http::HttpDaemon;

/// A folder to be read, `root`, with a secret beside it.
fn tree() -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path().join("root");
    std::fs::create_dir_all(root.join("inner")).unwrap();
    std::fs::write(tree.path().join("secret"), "secret").unwrap();
    std::fs::write(root.join("file"), "hello").unwrap();
    std::fs::write(root.join("inner/deep"), "deep").unwrap();
    std::fs::write(root.join("large"), vec![b'x'; 3 << 20]).unwrap();
    symlink("inner/deep", root.join("link")).unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink(tree.path().join("secret"), root.join("absolute")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink("/proc/self/fd", root.join("descriptors")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    mkfifoat(CWD, root.join("fifo"), Mode::from(0o600)).unwrap();
    tree
}

fn root(tree: &TempDir) -> String {
    tree.path().join("root").to_str().unwrap().to_owned()
}

fn path(path: &str) -> String {
    json!({ "path": path }).to_string()
}

fn daemon(tree: &TempDir, arguments: &[&str]) -> Daemon {
    let root = root(tree);
    Daemon::start(&[&["--workers", "1", "--io-root", &root], arguments].concat())
}

fn read(daemon: &Daemon, file: &str) -> Ran {
    daemon.run(&["submit", "fs.read", &path(file)])
}

/// Paths that must not be read, for whatever reason.
fn bad_paths(tree: &Path) -> Vec<String> {
    let outside = tree.join("secret").to_str().unwrap().to_owned();
    let inside = tree.join("root/file").to_str().unwrap().to_owned();
    let mut paths: Vec<String> = [
        "../secret",
        "inner/../../secret",
        "./../secret",
        "inner/../inner/../../secret",
        "/etc/passwd",
        "//etc/passwd",
        "/",
        "out",
        "absolute",
        "magic/etc/passwd",
        "magic",
        "descriptors/0",
        "descriptors/../..",
        "loop",
        "..",
        "../root/file",
        ".",
        "",
        "inner",
        "inner/",
        "file/",
        "file/.",
        "file/../file",
        "link/",
        "fifo",
        "missing",
        "missing/../file",
        "fi\0le",
        "file\0",
        "\0",
        "file ",
        " file",
        "file\n",
        "..\\secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "\u{2025}/secret",
        "~",
        "~/x",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "/dev/zero",
        "/dev/stdin",
        "file:///etc/passwd",
    ]
    .map(str::to_owned)
    .into();
    for within in ["", "./", "inner/", "inner/./", "inner//", "inner/../", "link/../"] {
        for up in ["../", "../../", "..//", ".././", "../../../../../../../../", "./../", "inner/../../"] {
            let targets = ["secret", "root/../secret", "etc/passwd", "proc/self/environ"];
            paths.extend(targets.map(|target| format!("{within}{up}{target}")));
        }
    }
    paths.extend([
        outside,
        inside,
        "x".repeat(256),
        "x".repeat(5000),
        "../".repeat(2000),
        "inner/".repeat(1000),
    ]);
    paths
}

#[test]
fn a_file_is_read_without_a_worker_and_the_job_is_one_like_others() {
    let tree = tree();
    let daemon = daemon(&tree, &[]);
    assert_eq!(read(&daemon, "file").ok().stdout, b"hello");
    assert_eq!(read(&daemon, "link").ok().stdout, b"deep");
    assert_eq!(read(&daemon, "large").ok().stdout.len(), 3 << 20);
    let stat = daemon.submit(&["fs.stat", &path("file")]);
    assert_eq!((&stat["output"]["bytes"], &stat["outcome"]), (&json!(5), &json!("ok")));
    let found = daemon.submit(&["dns.lookup", r#"{"host":"127.0.0.1"}"#]);
    assert_eq!(found["output"], json!({"addresses": ["127.0.0.1"]}));
    let job = found["job"].as_str().unwrap();
    let explained = daemon.run(&["explain", "--json", job]).ok().json();
    assert_eq!((&explained["state"], &explained["slot"]), (&json!("ok"), &json!(null)));
    let jobs = daemon.run(&["jobs", "--json"]).ok().json();
    assert!(
        jobs.as_array().unwrap().iter().all(|job| job["slot"].is_null() && job["state"] == "ok"),
        "{jobs}"
    );
    let status = daemon.status();
    assert_eq!((&status["jobs"]["ok"], &status["ledger"]["balanced"]), (&json!(5), &json!(true)));
    assert_eq!(status["io_pool"]["stuck"], 0);
}

#[test]
fn they_are_on_the_list_of_tasks_only_where_a_folder_was_named() {
    let tree = tree();
    let daemon = daemon(&tree, &[]);
    let task = daemon.run(&["tasks", "--json", "fs.read"]).ok().json();
    let task = if task.is_array() { task[0].clone() } else { task };
    assert!(task.to_string().contains("supervisor") && task.to_string().contains("octet-stream"), "{task}");
    for name in ["fs.read", "fs.stat", "dns.lookup"] {
        assert!(daemon.run(&["tasks"]).ok().text().contains(name));
    }
    let without = Daemon::start(&["--workers", "1"]);
    let refused = read(&without, "file").code(4);
    assert!(refused.stderr.contains("unknown_task"), "{}", refused.stderr);
    let ran = run_offload(&["run", "--io-root", "/no/such/folder", "fs.read", "{}"]).code(2);
    assert!(ran.stderr.contains("io.root /no/such/folder"), "{}", ran.stderr);
}

#[test]
fn run_and_map_read_files_too() {
    let tree = tree();
    let ran =
        run_offload(&["run", "--io-root", &root(&tree), "fs.read", &path("file"), &path("inner/deep")]).ok();
    assert!(ran.text().contains("hello") && ran.text().contains("deep"), "{}", ran.text());
    let failed = run_offload(&["run", "--json", "--io-root", &root(&tree), "fs.read", &path("missing")]);
    assert_ne!(failed.code, 0);
    assert_eq!(failed.json_lines()[0]["outcome"], "io_error");
}

#[test]
fn no_path_leads_out_by_the_command_line_or_over_http() {
    let tree = tree();
    let http = HttpDaemon::of(daemon(&tree, &["--http", "127.0.0.1:0"]));
    let mut connection = http.connect();
    let mut refused = 0;
    let bad_paths = bad_paths(tree.path());
    assert!(bad_paths.len() > 200, "{}", bad_paths.len());
    for bad in bad_paths {
        for task in ["fs.read", "fs.stat"] {
            connection.send("POST", &format!("/v1/tasks/{task}"), &[], path(&bad).as_bytes());
            let answer = connection.answer().expect("an answer");
            assert_eq!(answer.problem(), (502, "io_error".to_owned()), "{task} {bad:?}");
            refused += 1;
        }
    }
    for bad in ["../secret", "/etc/passwd", "out", "absolute", "magic/etc/passwd", "fifo", "inner", "fi\0le"]
    {
        let json = http.daemon.submit(&["fs.read", &path(bad)]);
        assert_eq!(json["outcome"], "io_error", "{bad:?}: {json}");
        assert!(!json.to_string().contains("\"secret\""), "{json}");
        refused += 1;
    }
    let status = http.daemon.status();
    assert_eq!((&status["jobs"]["io_error"], &status["ledger"]["balanced"]), (&json!(refused), &json!(true)));
    assert_eq!(http.call("fs.read", &[], path("file")).text(), "hello");
}

#[test]
fn an_input_that_is_no_path_is_an_error_of_the_application() {
    let tree = tree();
    let http = HttpDaemon::of(daemon(&tree, &["--http", "127.0.0.1:0"]));
    let long = path(&"x".repeat(40_000));
    for input in
        ["", "{}", "[]", "null", r#"{"path":1}"#, r#"{"path":"file","mode":"w"}"#, "{\"path\":\"a", &long]
    {
        assert_eq!(http.call("fs.read", &[], input).problem(), (422, "app_error".to_owned()), "{input}");
    }
    let mut latin = path("x").into_bytes();
    latin[9] = 0xe9;
    assert_eq!(http.call("fs.read", &[], latin).problem(), (422, "app_error".to_owned()));
    for host in ["", "a\0b", &"x".repeat(254)] {
        let input = json!({ "host": host }).to_string();
        assert_eq!(http.call("dns.lookup", &[], input).problem(), (422, "app_error".to_owned()));
    }
}

#[test]
fn a_file_that_is_longer_than_an_output_may_be_is_refused() {
    let tree = tree();
    let daemon = daemon(&tree, &["--max-payload", "1MiB"]);
    let refused = daemon.submit(&["fs.read", &path("large")]);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("max_payload") && refused["outcome"] == "io_error", "{refused}");
    assert_eq!(read(&daemon, "file").ok().stdout, b"hello");
}

/// A read of `zero` would never end, and one of `tty` or the FIFO would wait.
#[test]
fn devices_pipes_and_sockets_are_refused_for_what_they_are() {
    let tree = tree();
    let _socket = UnixListener::bind(tree.path().join("root/socket")).unwrap();
    let of_devices = Daemon::start(&["--workers", "1", "--io-root", "/dev"]);
    let of_tree = daemon(&tree, &[]);
    for (daemon, name, kind) in [
        (&of_devices, "null", "a device"),
        (&of_devices, "zero", "a device"),
        (&of_devices, "tty", "a device"),
        (&of_tree, "fifo", "a FIFO"),
        (&of_tree, "socket", "a socket"),
    ] {
        for task in ["fs.read", "fs.stat"] {
            let refused = daemon.submit(&[task, &path(name)]);
            let message = refused["error"]["message"].as_str().expect("why");
            let reason = format!("it is {kind}, and only regular files are read");
            assert!(
                refused["outcome"] == "io_error" && message.contains(&reason),
                "{task} {name}: {refused}"
            );
        }
    }
    for daemon in [&of_devices, &of_tree] {
        assert_eq!(daemon.status()["io_pool"]["stuck"], 0);
    }
}

/// It has no byte on the disk, so only what the supervisor reads of it could cost anything.
#[test]
fn a_file_of_a_tebibyte_is_refused_without_memory_for_it() {
    let tree = tree();
    let sparse = std::fs::File::create(tree.path().join("root/sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let daemon = daemon(&tree, &[]);
    assert_eq!(daemon.submit(&["fs.stat", &path("sparse")])["output"]["bytes"], 1_u64 << 40);
    let before = peak_resident_bytes(daemon.pid());
    for _ in 0..3 {
        let refused = daemon.submit(&["fs.read", &path("sparse")]);
        let message = refused["error"]["message"].as_str().expect("why");
        assert!(message.contains("max_payload") && refused["outcome"] == "io_error", "{refused}");
    }
    let grown = peak_resident_bytes(daemon.pid()) - before;
    assert!(grown < 16 << 20, "{grown} bytes for a file that is not read");
}

/// The only worker is busy, is killed and comes again; files are read all the time, by several clients.
#[test]
fn files_are_read_while_workers_are_busy_and_die() {
    let tree = tree();
    let daemon = daemon(&tree, &["--allow-faults", "--max-jobs", "50"]);
    let sleeping = daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok().text().trim().to_owned();
    daemon.worker_running("sleep");
    std::thread::scope(|scope| {
        for client in ["ann", "bob", "cat"] {
            let daemon = &daemon;
            scope.spawn(move || {
                for round in 0..8 {
                    let file = if round % 3 == 0 { "large" } else { "file" };
                    let ran = daemon.run(&["submit", "--client", client, "fs.read", &path(file)]).ok();
                    assert!(ran.stdout.len() >= 5);
                    let bad =
                        daemon.run(&["submit", "--client", client, "fs.read", &path("../secret")]).code(1);
                    assert!(bad.stderr.contains("leads out"), "{}", bad.stderr);
                }
            });
        }
        let pid = daemon.worker_running("sleep")["pid"].as_u64().unwrap();
        tests::harness::signal(pid as u32, rustix::process::Signal::KILL);
    });
    daemon.run(&["cancel", &sleeping]).ok();
    let counts = until("all jobs to end", || {
        let counts = daemon.status();
        (counts["jobs"]["running"] == 0 && counts["jobs"]["queued"] == 0).then_some(counts)
    });
    assert_eq!((&counts["jobs"]["ok"], &counts["jobs"]["io_error"]), (&json!(24), &json!(24)), "{counts}");
    assert_eq!(counts["ledger"]["balanced"], true);
    assert_eq!(counts["queue"]["bytes"], 0, "{counts}");
}

#[test]
fn results_are_kept_and_keys_stand_for_them() {
    let tree = tree();
    let daemon = daemon(&tree, &[]);
    let input = path("file");
    let submit = ["submit", "--detach", "--idempotency-key", "k", "fs.read", &input];
    let id = daemon.run(&submit).ok().text();
    std::fs::write(tree.path().join("root/file"), "changed").unwrap();
    assert_eq!(daemon.run(&submit).ok().text(), id);
    let first = daemon.run(&["wait", id.trim()]).ok().stdout;
    assert_eq!(daemon.run(&["result", id.trim()]).ok().stdout, first);
    assert_eq!(read(&daemon, "file").ok().stdout, b"changed");
}

fn detach(daemon: &Daemon, client: &str) -> String {
    let ran = daemon.run(&["submit", "--detach", "--client", client, "fs.read", &path("large")]).ok();
    ran.text().trim().to_owned()
}

fn end_of(daemon: &Daemon, job: &str) -> String {
    until("the end of the job", || {
        let explained = daemon.run(&["explain", "--json", job]).ok().json();
        explained["outcome"]
            .as_str()
            .or(explained["state"].as_str())
            .map(str::to_owned)
            .filter(|state| ["ok", "io_error"].contains(&state.as_str()))
    })
}

/// Six clients have a file read that is to be kept for them. There is room for two.
#[test]
fn a_read_that_ended_well_has_its_output_and_one_without_room_for_it_has_failed() {
    let tree = tree();
    let daemon = daemon(&tree, &["--max-kept-bytes", "8MiB", "--io-threads", "8"]);
    let jobs: Vec<String> =
        ["a", "b", "c", "d", "e", "f"].iter().map(|client| detach(&daemon, client)).collect();
    let ends: Vec<String> = jobs.iter().map(|job| end_of(&daemon, job)).collect();
    assert_eq!(ends.iter().filter(|end| *end == "ok").count(), 2, "{ends:?}");
    for (job, end) in jobs.iter().zip(&ends) {
        let ran = daemon.run(&["wait", job]);
        if end == "ok" {
            assert_eq!(ran.ok().stdout.len(), 3 << 20);
        } else {
            let message = ran.code(1).stderr;
            assert!(message.contains("there is no room to keep it (storage_full)"), "{message}");
        }
    }
}

#[test]
fn an_output_that_went_to_who_waited_and_had_no_room_is_storage_full_for_whoever_asks_later() {
    let tree = tree();
    let http = HttpDaemon::of(daemon(&tree, &["--http", "127.0.0.1:0", "--max-kept-bytes", "8MiB"]));
    for client in ["a", "b"] {
        let job = detach(&http.daemon, client);
        assert_eq!(end_of(&http.daemon, &job), "ok");
    }
    let answer = http.call("fs.read", &[("Prefer", "wait=60")], path("large"));
    assert_eq!((answer.status, answer.body.len()), (200, 3 << 20));
    let job = answer.field("offload-job").expect("its id").to_owned();
    assert_eq!(end_of(&http.daemon, &job), "ok");
    let again = http.ask("GET", &format!("/v1/jobs/{job}/output"), &[], b"");
    assert_eq!(again.problem(), (507, "storage_full".to_owned()));
    for verb in ["wait", "result"] {
        let refused = http.daemon.run(&[verb, &job]).code(4).stderr;
        assert!(refused.contains("storage_full") && refused.contains("no room among"), "{verb}: {refused}");
    }
    assert_eq!(http.ask("GET", "/v1/jobs/nothing/output", &[], b"").problem().0, 404);
}

#[test]
fn a_drain_lets_them_end() {
    let tree = tree();
    let mut daemon = daemon(&tree, &[]);
    for _ in 0..10 {
        daemon.run(&["submit", "--detach", "fs.stat", &path("file")]).ok();
    }
    daemon.run(&["drain"]).ok();
    assert_eq!(daemon.wait(), 0);
}
