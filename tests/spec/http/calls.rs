//! Tasks are called, and what comes of it has its status.

use offload_protocol::codec;
use offload_protocol::messages::ToWorker;
use serde_json::json;
use tests::harness::{private_folder, until, workspace};
use tests::http::HttpDaemon;

#[test]
fn the_output_of_a_task_is_the_answer_with_its_media_type_its_job_and_its_times() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let answer = http.call("primes", &[], "1000");
    assert_eq!((answer.status, answer.text().as_str()), (200, r#"{"count":168,"largest":997}"#));
    assert_eq!(answer.field("content-type"), Some("application/json"));
    let job = answer.field("offload-job").expect("the id of the job");
    let timing = answer.field("server-timing").expect("the times");
    assert!(timing.starts_with("queue;dur=") && timing.contains("run;dur="), "{timing}");
    assert_eq!(http.daemon.run(&["explain", job, "--json"]).ok().json()["state"], "ok");
}

#[test]
fn bytes_come_back_as_they_were_with_the_type_that_they_had() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    for length in [0_usize, 1, 65_535, 65_536, 65_537, 3_000_000] {
        let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let answer = http.call("echo", &[("Content-Type", "image/x-odd; a=b")], &body);
        assert_eq!((answer.status, answer.field("content-type")), (200, Some("image/x-odd; a=b")));
        assert!(answer.body == body, "{length} bytes came back as {}", answer.body.len());
    }
}

#[test]
fn a_chunked_body_is_the_same_as_one_with_a_length() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    let head = connection.head("POST", "/v1/tasks/echo", &[("Transfer-Encoding", "chunked")]);
    connection.write(head.as_bytes());
    for piece in ["5\r\nhello\r\n", "1;x=y\r\n,\r\n", "6\r\n world\r\n", "0\r\nX-Trailer: z\r\n\r\n"] {
        connection.write(piece.as_bytes());
    }
    assert_eq!(connection.answer().expect("an answer").text(), "hello, world");
    connection.send("POST", "/v1/tasks/echo", &[], b"next");
    assert_eq!(connection.answer().expect("on the same connection").text(), "next");
}

#[test]
fn requests_that_are_sent_at_once_are_answered_in_their_order() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    let mut connection = http.connect();
    for number in 0..50 {
        let wait = if number % 7 == 0 { "sleep" } else { "echo" };
        connection.send("POST", &format!("/v1/tasks/{wait}"), &[], (number % 10).to_string().as_bytes());
    }
    for number in 0..50 {
        let answer = connection.answer().expect("an answer to each");
        let expected = if number % 7 == 0 { "null".to_owned() } else { (number % 10).to_string() };
        assert_eq!((answer.status, answer.text()), (200, expected), "request {number}");
    }
}

#[test]
fn a_client_that_waits_for_leave_to_send_gets_it_only_if_its_body_will_be_read() {
    let http = HttpDaemon::start(&["--workers", "1", "--max-payload", "1MiB"]);
    let mut connection = http.connect();
    let expect = [("Expect", "100-continue"), ("Content-Length", "5")];
    let head = connection.head("POST", "/v1/tasks/echo", &expect);
    connection.write(head.as_bytes());
    assert_eq!(connection.line().as_deref(), Some("HTTP/1.1 100 Continue"));
    assert_eq!(connection.line().as_deref(), Some(""));
    connection.write(b"hello");
    assert_eq!(connection.answer().expect("an answer").text(), "hello");
    for (fields, status) in [
        ([("Expect", "100-continue"), ("Content-Length", "2000000"), ("X-Y", "z")], 413),
        ([("Expect", "100-continue"), ("Content-Length", "5"), ("Authorization", "Bearer wrong")], 401),
    ] {
        let mut connection = http.connect();
        let head = connection.head("POST", "/v1/tasks/echo", &fields);
        connection.write(head.as_bytes());
        assert_eq!(
            connection.line().and_then(|line| line.split(' ').nth(1).map(str::to_owned)),
            Some(status.to_string())
        );
    }
}

/// Over every way in: nobody is to send an input for nothing.
#[test]
fn a_job_that_would_be_refused_is_refused_before_its_input_was_read() {
    let http = HttpDaemon::start(&["--workers", "1", "--max-jobs", "1"]);
    let mut busy: Vec<_> = (0..2).map(|_| http.connect()).collect();
    for (number, connection) in busy.iter_mut().enumerate() {
        connection.send("POST", "/v1/tasks/sleep", &[], b"3600000");
        until("it is accepted", || {
            let jobs = &http.daemon.status()["jobs"];
            (jobs["running"] == 1 && jobs["accepted"] == number as u64 + 1).then_some(())
        });
    }
    let whole = http.call("echo", &[], "x");
    assert_eq!(whole.problem().0, 503, "{}", whole.text());
    for ways in
        [[("Prefer", "wait=5")], [("Prefer", "respond-async")], [("Offload-Stream", "true")], [("X", "y")]]
    {
        for (task, problem) in [("nothing", (404, "unknown_task".to_owned())), ("echo", whole.problem())] {
            let fields = [("Expect", "100-continue"), ("Content-Length", "5"), ways[0]];
            let mut connection = http.connect();
            let head = connection.head("POST", &format!("/v1/tasks/{task}"), &fields);
            connection.write(head.as_bytes());
            let answer = connection.answer().expect("an answer to the head alone");
            assert_eq!(answer.problem(), problem, "{task} {ways:?} {}", answer.text());
            assert_eq!(answer.field("retry-after").is_some(), task == "echo", "{task} {ways:?}");
        }
    }
    // A small rest may be there already, so the connection goes on; a large one is not read.
    let mut connection = http.connect();
    connection.send("POST", "/v1/tasks/nothing", &[], b"hello");
    let answer = connection.answer().expect("an answer");
    assert_eq!((answer.status, answer.field("connection")), (404, None));
    let head = connection.head("POST", "/v1/tasks/nothing", &[("Content-Length", "1000000")]);
    connection.write(head.as_bytes());
    let answer = connection.answer().expect("an answer on the same connection");
    assert_eq!((answer.status, answer.field("connection")), (404, Some("close")));
    assert_eq!(connection.ends(), b"");
    let rejected = &http.daemon.status()["jobs"]["rejected"];
    assert_eq!(rejected.as_u64(), Some(11), "{rejected}");
}

#[test]
fn every_ending_of_a_job_has_its_status_and_says_why() {
    let http = HttpDaemon::start(&["--workers", "1", "--allow-faults", "--max-payload", "1MiB"]);
    let fault = |act: &str| json!({ "act": act }).to_string();
    let cases = [
        ("fault", fault("panic"), 500, "panic"),
        ("fault", fault("segv"), 502, "worker_crashed"),
        ("fault", fault("exit"), 502, "worker_crashed"),
        ("fault", fault("garbage"), 502, "worker_protocol"),
        ("primes", "no number".to_owned(), 422, "app_error"),
        ("nothing", "1".to_owned(), 404, "unknown_task"),
        ("echo", "x".repeat((1 << 20) + 1), 413, "too_large"),
    ];
    for (task, input, status, code) in cases {
        let answer = http.call(task, &[("Offload-Attempts", "1")], &input);
        assert_eq!(answer.problem(), (status, code.to_owned()), "{task} {}", answer.text());
    }
    let crashed = http.call("fault", &[("Offload-Attempts", "1")], fault("segv")).json();
    assert_eq!((&crashed["signal"], &crashed["attempts"]), (&json!(11), &json!(1)));
    let hang = http.call("fault", &[("Offload-Attempts", "1"), ("Offload-Timeout", "100ms")], fault("hang"));
    assert_eq!(hang.problem(), (504, "timeout".to_owned()));
    let poison = http.call("fault", &[], fault("kill"));
    assert_eq!((poison.problem(), &poison.json()["attempts"]), ((502, "poison".to_owned()), &json!(3)));
    assert_eq!(poison.json()["cause"], "worker_crashed");
    assert_eq!(http.daemon.status()["ledger"]["balanced"], true);
}

#[test]
fn what_is_not_understood_is_a_bad_request_and_nothing_runs() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    for field in [
        ("Offload-Timeout", "soon"),
        ("Offload-Deadline", "-1s"),
        ("Offload-Priority", "high"),
        ("Offload-Priority", "99"),
        ("Offload-Attempts", "0"),
        ("Offload-Attempts", "many"),
        ("Idempotency-Key", "\"\""),
        ("Offload-Attempt-", "1"),
    ] {
        let answer = http.call("echo", &[field], "x");
        assert_eq!(answer.problem(), (400, "bad_request".to_owned()), "{field:?}");
    }
    assert_eq!(http.daemon.status()["jobs"]["accepted"], 0);
}

/// Whoever sends it counts on it.
#[test]
fn a_field_of_ours_that_there_is_not_is_refused_with_the_nearest() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-route", "POST /echo echo"]);
    for path in ["/v1/tasks/echo", "/echo"] {
        let answer = http.ask("POST", path, &[("Offload-Timout", "10ms")], b"");
        assert_eq!(answer.problem(), (400, "bad_request".to_owned()), "{path}");
        assert!(answer.text().contains("did you mean Offload-Timeout?"), "{}", answer.text());
    }
    let guess = http.ask("POST", "/v1/tasks/echo", &[("Authorization", ""), ("Offload-Timout", "1s")], b"");
    assert_eq!(guess.status, 401, "nothing is explained to strangers");
    // What an answer has, and what an HTTP application gets, may be passed on.
    let passed_on = [
        ("Offload-Job", "7"),
        ("Offload-Attempt", "2"),
        ("Offload-Remaining-Ms", "10"),
        ("Offload-Retry-After-Ms", "10"),
        ("Offload-Meta-Anything", "x"),
        ("Offload-Label", "x"),
    ];
    assert_eq!(http.call("echo", &passed_on, "x").status, 200);
    assert_eq!(http.daemon.status()["jobs"]["accepted"], 1);
}

/// There its value would be ignored, too.
#[test]
fn where_no_job_is_described_nothing_is_refused_for_a_field_of_ours() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-route", "POST /open echo auth=none"]);
    let stranger = ("Authorization", "");
    for field in [("Offload-Timout", "10ms"), ("Offload-Timeout", "soon"), ("Offload-Client", "no name")] {
        for path in ["/healthz", "/readyz"] {
            assert_eq!(http.ask("GET", path, &[stranger, field], b"").status, 200, "{path} {field:?}");
        }
        let answer = http.ask("POST", "/open", &[stranger, field], b"x");
        assert_eq!((answer.status, answer.text().as_str()), (200, "x"), "{field:?}");
    }
    for field in [("Offload-Timout", "10ms"), ("Offload-Timeout", "soon")] {
        assert_eq!(http.ask("GET", "/v1/status", &[field], b"").status, 200, "{field:?}");
        assert_eq!(http.ask("DELETE", "/v1/jobs/1", &[field], b"").status, 404, "{field:?}");
    }
}

#[test]
fn no_request_fails_for_a_preference() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let applied = |prefer: &str| {
        let answer = http.call("echo", &[("Prefer", prefer)], "x");
        assert_eq!((answer.status, answer.text().as_str()), (200, "x"), "{prefer}");
        answer.field("preference-applied").map(str::to_owned)
    };
    for wait in ["wait=3601", "wait=99999999999999999999", "wait=\"18446744073709551616\""] {
        assert_eq!(applied(wait).as_deref(), Some("wait=3600"), "{wait}");
    }
    for nonsense in ["wait=long", "wait=-1", "wait=1.5", "wait=", "wait", "handling=strict"] {
        assert_eq!(applied(nonsense), None, "{nonsense}");
    }
    assert_eq!(applied("wait=long, wait=5"), None, "of several the first one counts");
    for field in ["Prefer: caf\u{e9}", "Accept: text/event-stream, caf\u{e9}/x"] {
        let mut connection = http.connect();
        let (name, value) = field.split_once(": ").expect("a field");
        connection.send("POST", "/v1/tasks/echo", &[(name, value)], b"x");
        let answer = connection.answer().expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (200, "x"), "{field}");
    }
    let job = http.call("echo", &[("Prefer", "respond-async")], "x");
    let job = job.field("location").expect("its address").to_owned();
    for (query, status) in [("wait=99999999999999999999", 200), ("wait=-1", 400), ("wait=", 400)] {
        assert_eq!(http.ask("GET", &format!("{job}?{query}"), &[], b"").status, status, "{query}");
    }
    for (query, status) in [("99999999999999999999", 200), ("-1", 400), ("", 400)] {
        let path = format!("/v1/jobs?limit={query}");
        assert_eq!(http.ask("GET", &path, &[], b"").status, status, "{path}");
    }
}

/// 2^64 of a unit is more than there is, and no number is rounded to what there is.
#[test]
fn a_time_that_is_no_whole_number_with_its_unit_or_is_too_large_is_a_bad_request() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    for name in ["Offload-Timeout", "Offload-Deadline"] {
        for value in [
            "0",
            "60",
            "s",
            "NaN",
            "NaNs",
            "inf",
            "-1s",
            "+1s",
            "1.5s",
            "1e3s",
            "1d",
            "18446744073709551616",
            "18446744073709551616ms",
            "18446744073709551616s",
            "18446744073709551615h",
        ] {
            let answer = http.call("echo", &[(name, value)], "x");
            assert_eq!(answer.problem(), (400, "bad_request".to_owned()), "{name}: {value}");
        }
        assert_eq!(http.call("echo", &[(name, "1h")], "x").status, 200, "{name}");
    }
    // No time to run makes no sense; no time until the result is over at once.
    for zero in ["0ms", "0s", "0h"] {
        let timeout = http.call("echo", &[("Offload-Timeout", zero)], "x");
        assert_eq!(timeout.problem(), (400, "bad_request".to_owned()), "{zero}");
        let deadline = http.call("echo", &[("Offload-Deadline", zero)], "x");
        assert_eq!(deadline.problem(), (504, "timeout".to_owned()), "{zero}");
        assert_eq!(deadline.json()["attempts"], 0, "{zero}");
    }
    assert_eq!(http.daemon.status()["jobs"]["ok"], 2);
}

#[test]
fn a_key_gives_the_same_job_and_another_input_is_a_conflict() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let key = [("Idempotency-Key", "\"bill-17\"")];
    let first = http.call("echo", &key, "one");
    let again = http.call("echo", &key, "one");
    assert_eq!((again.status, again.text().as_str()), (200, "one"));
    assert_eq!(first.field("offload-job"), again.field("offload-job"));
    assert_eq!(http.call("echo", &key, "two").problem(), (409, "conflict".to_owned()));
}

#[test]
fn a_key_is_the_same_from_every_address_and_clients_with_a_name_have_their_own() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let key = ("Idempotency-Key", "\"bill-17\"");
    let here = http.call("echo", &[key], "one");
    let mut connection = http.connect_from([127, 0, 0, 2]);
    connection.send("POST", "/v1/tasks/echo", &[key], b"one");
    let elsewhere = connection.answer().expect("an answer");
    assert_eq!((elsewhere.status, elsewhere.field("offload-job")), (200, here.field("offload-job")));
    let named = ["one", "two"].map(|name| http.call("echo", &[key, ("Offload-Client", name)], "one"));
    let jobs = [&here, &named[0], &named[1]].map(|answer| answer.field("offload-job"));
    assert!(jobs[0] != jobs[1] && jobs[0] != jobs[2] && jobs[1] != jobs[2], "{jobs:?}");
}

#[test]
fn a_worker_is_given_the_metadata_and_the_trace() {
    let (folder, header) = (private_folder(), "output = header");
    let example = std::fs::read_to_string(workspace().join("examples/worker.py")).expect("it is there");
    assert!(example.contains("output = run(payload)"), "the example has changed");
    let file = folder.path().join("worker.py");
    std::fs::write(&file, example.replace("output = run(payload)", header)).expect("our own folder");
    let http = HttpDaemon::start(&["--workers", "1", "--worker", &format!("python3 {}", file.display())]);
    let given = |fields: &[(&str, &str)]| {
        let answer = http.call("reverse", fields, "x");
        assert_eq!((answer.status, answer.field("traceparent")), (200, fields.first().map(|field| field.1)));
        let Ok(ToWorker::Run { metadata, .. }) = codec::decode(&answer.body) else { panic!("{answer:?}") };
        metadata.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    let fields = [
        ("traceparent", TRACE),
        ("tracestate", "vendor=7"),
        ("Offload-Meta-Tenant", "blue"),
        ("Offload-Meta-Album", "summer 2026"),
        ("Offload-Label", "nightly"),
        ("X-Other", "not for the worker"),
    ];
    let mut of_all = given(&fields);
    of_all.sort();
    let trace = format!("traceparent={TRACE}");
    assert_eq!(of_all, ["album=summer 2026", "tenant=blue", &trace, "tracestate=vendor=7"]);
    assert_eq!(given(&[]), [""; 0], "nothing is left of the job before");
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn the_trace_comes_back_the_metadata_are_in_the_result_and_labels_find_the_job() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let fields = [
        ("traceparent", TRACE),
        ("Offload-Meta-Tenant", "blue"),
        ("Offload-Label", "nightly, batch=7"),
        ("Prefer", "respond-async"),
    ];
    for (task, status) in [("echo", 200), ("nobody", 404)] {
        let answer = http.call(task, &fields[..1], "x");
        assert_eq!((answer.status, answer.field("traceparent")), (status, Some(TRACE)), "{task}");
    }
    let answer = http.call("echo", &fields, "x");
    assert_eq!((answer.status, answer.field("traceparent")), (202, Some(TRACE)));
    let job = answer.field("offload-job").expect("an id").to_owned();
    for label in ["batch=7", "nightly"] {
        let found = http.daemon.run(&["jobs", "--label", label, "--json"]).ok().json();
        assert_eq!((found.as_array().map(Vec::len), &found[0]["job"]), (Some(1), &json!(job)), "{found}");
        let path = format!("/v1/jobs?label={}", label.replace('=', "%3D"));
        let rows = http.ask("GET", &path, &[], b"").json()["rows"].clone();
        assert_eq!((rows.as_array().map(Vec::len), &rows[0]["job"]), (Some(1), &json!(job)), "{rows}");
        assert_eq!(rows[0]["labels"], json!(["nightly", "batch=7"]));
    }
    let result = http.daemon.run(&["wait", &job, "--json"]).ok().json();
    assert_eq!(result["metadata"], json!({"tenant": "blue", "traceparent": TRACE}), "{result}");
}

#[test]
fn no_request_is_refused_for_its_trace() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let metadata_of = |fields: &[(&str, &str)]| {
        let answer = http.call("echo", &[fields, &[("Prefer", "respond-async")]].concat(), "x");
        assert_eq!(answer.status, 202, "{answer:?}");
        let job = answer.field("offload-job").expect("an id");
        http.daemon.run(&["wait", job, "--json"]).ok().json()["metadata"].clone()
    };
    let (trace, long) = (("traceparent", TRACE), "vendor=7,".repeat(50));
    assert_eq!(metadata_of(&[trace, ("tracestate", &long)]), json!({ "traceparent": TRACE }));
    assert_eq!(metadata_of(&[trace, ("Offload-Meta-Traceparent", "mine")]), json!({ "traceparent": "mine" }));
    let names: Vec<String> = (0..16).map(|number| format!("Offload-Meta-{number}")).collect();
    let full: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).chain([trace]).collect();
    assert_eq!(
        metadata_of(&full).as_object().map(|all| (all.len(), all.contains_key("15"))),
        Some((16, true))
    );
}

#[test]
fn the_parts_of_an_output_come_as_bytes_or_as_events() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let bytes = http.call("count", &[("Offload-Stream", "true")], r#"{"to":30,"every_ms":1}"#);
    assert_eq!(bytes.field("content-type"), Some("text/plain; charset=utf-8"), "as its task says");
    let expected: String = (1..=30).map(|number| format!("{number}\n")).collect();
    assert_eq!((bytes.status, bytes.text(), bytes.is_broken), (200, expected, false));
    assert_eq!(bytes.field("transfer-encoding"), Some("chunked"));
    let events = http.call("count", &[("Accept", "text/event-stream")], r#"{"to":3,"every_ms":1}"#);
    let text = events.text();
    assert_eq!(events.field("content-type"), Some("text/event-stream"));
    assert!(text.starts_with("event: job\n") && text.contains("event: part\n"), "{text}");
    assert!(text.trim_end().lines().last().is_some_and(|line| line.contains("\"outcome\":\"ok\"")), "{text}");
}

#[test]
fn an_output_that_a_client_would_rather_have_is_not_sent_as_events() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    for (accept, media_type) in [
        ("text/html, text/event-stream;q=0.001", "text/plain; charset=utf-8"),
        ("*/*, text/event-stream;q=0.1", "text/plain; charset=utf-8"),
        ("application/json, text/event-stream", "text/event-stream"),
        ("text/event-stream;q=0.2, */*;q=0.1", "text/event-stream"),
    ] {
        let answer = http.call("count", &[("Accept", accept)], r#"{"to":2,"every_ms":1}"#);
        assert_eq!((answer.status, answer.field("content-type")), (200, Some(media_type)), "{accept}");
    }
}

#[test]
fn a_stream_of_events_tells_how_far_its_job_is() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    let events = [("Accept", "text/event-stream")];
    // It takes more than a minute, and tells how far it is after each row.
    let view = r#"{"x":-0.1,"y":0.8,"scale":0.00001,"width":2000,"height":2000,"iterations":10000}"#;
    connection.send("POST", "/v1/tasks/mandelbrot", &events, view.as_bytes());
    let (status, _) = connection.head_of_answer().expect("the first event has come");
    assert_eq!(status, 200);
    let mut next_progress = || loop {
        let line = connection.line().expect("the job has not ended");
        assert!(!line.contains("event: end"), "{line}");
        if let Some((_, data)) = line.split_once("data: ").filter(|(_, data)| data.contains("progress")) {
            let told: serde_json::Value = serde_json::from_str(data.trim()).expect("a document");
            let number = |at: usize| told["progress"][at].as_u64().expect("a number");
            break (number(0), number(1), told["job"].clone());
        }
    };
    let (first, second) = (next_progress(), next_progress());
    assert!(first.0 < second.0 && second.0 < second.1, "{first:?} {second:?}");
    assert_eq!((first.1, &first.2), (second.1, &second.2));
    drop(connection);
    until("the end of the job", || (http.daemon.status()["jobs"]["running"] == 0).then_some(()));
}

#[test]
fn a_stream_that_fails_midway_breaks_off_and_is_never_taken_for_a_whole() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    connection.send(
        "POST",
        "/v1/tasks/count",
        &[("Offload-Stream", "true")],
        br#"{"to":100000,"every_ms":20}"#,
    );
    let (status, _) = connection.head_of_answer().expect("the first part has come");
    assert_eq!(status, 200);
    assert!(connection.line().is_some(), "a chunk");
    let worker = http.daemon.worker_running("count");
    let pid = worker["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process");
    tests::harness::signal(pid, rustix::process::Signal::KILL);
    let rest = String::from_utf8_lossy(&connection.ends()).into_owned();
    assert!(!rest.ends_with("0\r\n\r\n"), "it has no proper end: {rest:?}");
    until("the end of the job", || (http.daemon.status()["jobs"]["running"] == 0).then_some(()));
}

#[test]
fn a_field_that_says_two_things_or_none_is_refused() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    for name in [
        "Idempotency-Key",
        "Offload-Timeout",
        "Offload-Deadline",
        "Offload-Priority",
        "Offload-Attempts",
        "Offload-Client",
        "Offload-Stream",
        "Offload-Meta-Who",
    ] {
        let value = match name {
            "Offload-Stream" => "false",
            "Offload-Timeout" | "Offload-Deadline" => "60s",
            _ => "1",
        };
        assert_eq!(http.call("echo", &[(name, value)], "x").status, 200, "{name} once");
        for fields in [vec![(name, value), (name, value)], vec![(name, "caf\u{e9}")]] {
            let answer = http.call("echo", &fields, "x");
            assert_eq!(answer.problem(), (400, "bad_request".to_owned()), "{fields:?}");
        }
    }
    for (name, value) in [("Offload-Label", "\u{e9}"), ("Offload-Stream", "perhaps")] {
        assert_eq!(http.call("echo", &[(name, value)], "x").status, 400, "{name}: {value}");
    }
    let traced = http.call("echo", &[("traceparent", "a"), ("traceparent", "b")], "x");
    assert_eq!(traced.status, 200, "as the standard for traces wants it");
}
