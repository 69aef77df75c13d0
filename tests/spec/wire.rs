//! The wire as another program sees it: what reaches a worker that only keeps to PROTOCOL, and what became of ends of other
//! versions.

use offload_protocol::codec;
use offload_protocol::messages::ToWorker;
use offload_protocol::nouns::MediaType;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use tests::harness::{Daemon, PATIENCE, private_folder, run_offload, workspace};

/// The command of a worker like the example, with one thing changed.
fn changed_example(folder: &Path, from: &str, to: &str) -> String {
    let example = std::fs::read_to_string(workspace().join("examples/worker.py")).unwrap();
    assert!(example.contains(from), "the example has changed");
    let file = folder.join("worker.py");
    std::fs::write(&file, example.replace(from, to)).unwrap();
    format!("python3 {}", file.display())
}

#[test]
fn a_worker_learns_the_media_type_the_time_limits_and_the_metadata_of_its_job() {
    let folder = private_folder();
    let worker = changed_example(folder.path(), "output = run(payload)", "output = header");
    let daemon = Daemon::start(&["--workers", "1", "--worker", &worker]);
    let submit = |flags: &[&str]| daemon.run(&[&["submit"], flags, &["reverse", "x"]].concat()).ok().stdout;
    let given = submit(&[
        "--content-type",
        "image/jpeg; quality=high",
        "--timeout",
        "30s",
        "--deadline",
        "1h",
        "--meta",
        "tenant=blue",
    ]);
    let ToWorker::Run { task, media_type, timeout_ms, deadline_ms, metadata, .. } =
        codec::decode(&given).unwrap()
    else {
        panic!("{given:?}")
    };
    assert_eq!((task, media_type.as_str()), ("reverse", "image/jpeg; quality=high"));
    assert_eq!((timeout_ms, metadata.get("tenant")), (30_000, Some("blue")));
    assert!(deadline_ms > 3_000_000 && deadline_ms <= 3_600_000, "{deadline_ms}");

    let plain = submit(&[]);
    let ToWorker::Run { media_type, deadline_ms: 0, metadata, .. } = codec::decode(&plain).unwrap() else {
        panic!("{plain:?}")
    };
    assert!(media_type == MediaType::TEXT && metadata.is_empty());
}

#[test]
fn a_line_that_a_worker_prints_during_a_job_shows_the_metadata_of_the_job() {
    let folder = private_folder();
    let prints = "output = print('a line', flush=True) or time.sleep(600)";
    let worker = changed_example(folder.path(), "output = run(payload)", prints);
    let daemon = Daemon::start(&["--workers", "1", "--worker", &worker]);
    let metadata = ["--meta", "tenant=blue", "--meta", "traceparent=00-ab-cd-01"];
    daemon.run(&[&["submit", "--detach"], &metadata[..], &["reverse", "x"]].concat()).ok();
    let is_it = |line: &str| line.ends_with(" tenant=blue traceparent=00-ab-cd-01] a line");
    assert!(daemon.stderr.find(is_it, PATIENCE).is_some(), "{:#?}", daemon.stderr.all());
}

#[test]
fn a_job_whose_start_and_end_are_heard_together_ran_for_as_long_as_its_worker_says() {
    let folder = private_folder();
    let frame = r#"struct.pack("<II", len(header), len(payload)) + header + payload"#;
    // The start is sent together with the end.
    let holds = format!(
        "global held; held = globals().get('held', b'') + {frame}\n    if header[0] != STARTED: \
         channel.sendall(held); held = b''; time.sleep(0.001)"
    );
    let worker = changed_example(folder.path(), &format!("channel.sendall({frame})"), &holds);
    let worker = worker.replace("worker.py", "late.py");
    let example = std::fs::read_to_string(folder.path().join("worker.py")).unwrap();
    let late = example.replace("output = run(payload)", "output = time.sleep(0.001) or run(payload)");
    std::fs::write(folder.path().join("late.py"), late).unwrap();
    let daemon = Daemon::start(&["--workers", "1", "--worker", &worker]);
    let report = daemon.submit(&["reverse", "abc"]);
    assert!(report["receipt"]["run_us"].as_u64() >= Some(1000), "{report}");
}

/// The command of a worker that prints its input, and ends the job right after that.
fn printing_worker(folder: &Path) -> String {
    let prints = "output = print('line', payload.decode(), flush=True) or run(payload)";
    changed_example(folder, "output = run(payload)", prints)
}

#[test]
fn a_line_that_is_read_after_the_end_of_its_job_names_it() {
    let folder = private_folder();
    let daemon = Daemon::start(&["--workers", "1", "--worker", &printing_worker(folder.path())]);
    for number in 0..15 {
        let (meta, input) = (format!("number={number}"), number.to_string());
        let report = daemon.submit(&["--meta", &meta, "reverse", &input]);
        let line = format!("job {} number={number}] line {number}", report["job"].as_str().unwrap());
        let is_it = |said: &str| said.ends_with(&line);
        assert!(daemon.stderr.find(is_it, PATIENCE).is_some(), "{line}: {:#?}", daemon.stderr.all());
    }
}

#[test]
fn of_many_jobs_at_once_no_line_names_another_than_its_own() {
    let folder = private_folder();
    let daemon = Daemon::start(&["--workers", "1", "--worker", &printing_worker(folder.path())]);
    let numbers: Vec<String> = (10..28).map(|number| number.to_string()).collect();
    let submit = |number: &String| {
        let meta = format!("number={number}");
        daemon.run(&["submit", "--detach", "--meta", &meta, "reverse", number]).ok().text().trim().to_owned()
    };
    let jobs: Vec<String> = numbers.iter().map(submit).collect();
    for (job, number) in jobs.iter().zip(&numbers) {
        let is_it = |said: &str| said.ends_with(&format!("] line {number}"));
        let line =
            daemon.stderr.find(is_it, PATIENCE).unwrap_or_else(|| panic!("{:#?}", daemon.stderr.all()));
        let names_none = !line.contains(" job ");
        let names_it = line.contains(&format!("job {job} number={number}]"));
        let is_among_several = line.contains(" or ") && line.contains(job);
        assert!(names_none || names_it || is_among_several, "{line}");
    }
}

#[test]
fn the_media_type_of_an_output_is_the_workers_and_one_that_is_none_is_its_fault() {
    let folder = private_folder();
    let typed = |media_type: &str| {
        let changed = format!("output, media_type = run(payload), {media_type}");
        let worker = changed_example(folder.path(), "output = run(payload)", &changed);
        run_offload(&["run", "--json", "--attempts", "1", "--worker", &worker, "reverse", "abc"]).json()
    };
    let longest = format!("image/{}", "x".repeat(127 - "image/".len()));
    assert_eq!(typed("'image/jpeg'")["content_type"], "image/jpeg");
    assert_eq!(typed(&format!("'{longest}'"))["content_type"], longest.as_str());
    for wrong in [&format!("'{longest}x'"), "'jpeg'", "''", "'image/jpeg\\n'"] {
        let report = typed(wrong);
        assert_eq!(report["outcome"], "worker_protocol", "{wrong}: {report}");
    }
}

#[test]
fn an_input_of_a_type_that_is_none_is_refused_where_it_is_typed() {
    let refused = run_offload(&["run", "--content-type", "jpeg", "echo", "x"]).code(2);
    assert!(refused.stderr.contains("no media type"), "{}", refused.stderr);
}

#[test]
fn a_worker_with_capabilities_that_nobody_knows_works_as_before() {
    let folder = private_folder();
    let worker = changed_example(folder.path(), "3, 0, 0)", "3, 7, 2**64 - 1)");
    assert_eq!(run_offload(&["run", "--worker", &worker, "reverse", "abc"]).ok().stdout, b"cba");
}

#[test]
fn a_client_of_another_version_gets_one_sentence_that_says_what_to_do() {
    let daemon = Daemon::start(&["--workers", "1"]);
    // The hello of a client of protocol 2, which had no capabilities.
    let mut old = UnixStream::connect(&daemon.socket).unwrap();
    old.set_read_timeout(Some(PATIENCE)).unwrap();
    old.write_all(b"\x1a\0\0\0\0\0\0\0\0\0\0\0OFFLOADC\x02\0\0\0\x02\0\0\0\0\0\0\0me").unwrap();
    let mut heard = Vec::new();
    old.read_to_end(&mut heard).unwrap();
    let heard = String::from_utf8_lossy(&heard);
    let sentence =
        "this client speaks protocol 2.0, this supervisor 3.0: use the `offload` of this supervisor";
    assert!(heard.contains(sentence), "{heard}");
}
