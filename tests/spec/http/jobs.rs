//! Jobs as resources.

use serde_json::Value;
use tests::harness::until;
use tests::http::{Answer, HttpDaemon};

fn accepted(answer: &Answer) -> String {
    assert_eq!(answer.status, 202, "{answer:?}");
    let place = answer.field("location").expect("where it is").to_owned();
    let job = answer.field("offload-job").expect("its id");
    assert_eq!(place, format!("/v1/jobs/{job}"));
    assert_eq!(answer.json()["job"], job);
    place
}

#[test]
fn a_job_can_be_left_alone_and_asked_for_later() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let place = accepted(&http.call("sleep", &[("Prefer", "respond-async")], "50"));
    let state = http.ask("GET", &format!("{place}?wait=60"), &[], b"").json();
    assert_eq!((&state["state"], &state["outcome"]), (&Value::from("ok"), &Value::from("ok")));
    let output = state["output_location"].as_str().expect("where the output is");
    for _ in 0..2 {
        let answer = http.ask("GET", output, &[], b"");
        assert_eq!((answer.status, answer.text().as_str()), (200, "null"), "looking at it changes nothing");
    }
    let head = {
        let mut connection = http.connect();
        connection.send("HEAD", output, &[], b"");
        connection.head_of_answer().expect("a head")
    };
    assert_eq!(head.0, 200);
}

#[test]
fn the_document_of_a_job_has_its_output_as_the_command_line_gives_it() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let json = "application/json";
    for (media_type, body, field) in [
        (json, &b"{\n \"n\": 123456789012345678901234567890.10\n}\n"[..], "output"),
        (json, b"{oops", "output_base64"),
        (json, b"1}, {\"x\": 1", "output_base64"),
        ("text/plain", "a \"b\"\nü".as_bytes(), "output"),
        ("text/plain", b"\xff", "output_base64"),
        ("application/octet-stream", b"\x00\xff", "output_base64"),
        ("image/png", b"", "output_base64"),
    ] {
        let fields = [("Prefer", "respond-async"), ("Content-Type", media_type)];
        let place = accepted(&http.call("echo", &fields, body));
        let answer = http.ask("GET", &format!("{place}?wait=60"), &[], b"");
        let (document, job) = (answer.json(), place.trim_start_matches("/v1/jobs/"));
        let by_socket = http.daemon.run(&["result", job, "--json"]).ok();
        assert!(!document[field].is_null(), "{document}");
        for same in
            ["job", "task", "outcome", "output", "output_base64", "content_type", "attempts", "receipt"]
        {
            assert_eq!(document.get(same), by_socket.json().get(same), "{same}: {document}");
        }
        let digits = "123456789012345678901234567890.10";
        assert_eq!(answer.text().contains(digits), by_socket.text().contains(digits), "{}", answer.text());
        assert_eq!(document["output_location"], format!("{place}/output"));
        let events = http.ask("GET", &format!("{place}/events"), &[], b"").text();
        assert_eq!(last_event(&events)[field], document[field], "{events}");
    }
}

/// The data of the last event.
fn last_event(events: &str) -> Value {
    let data = events.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
    serde_json::from_str(data.expect("an event")).expect("its data is JSON on one line")
}

#[test]
fn of_a_large_output_the_document_has_the_place_and_the_length() {
    const MAX: usize = 64 << 10;
    let http = HttpDaemon::start(&["--workers", "1"]);
    let document = |length: usize| {
        let fields = [("Prefer", "respond-async"), ("Content-Type", "text/plain")];
        let place = accepted(&http.call("echo", &fields, vec![b'x'; length]));
        (http.ask("GET", &format!("{place}?wait=60"), &[], b"").json(), format!("{place}/output"))
    };
    let (small, place) = document(MAX);
    assert_eq!(small["output"].as_str().map(str::len), Some(MAX));
    assert_eq!((&small["output_location"], small.get("output_bytes")), (&Value::from(place), None));
    let (large, place) = document(MAX + 1);
    assert_eq!((large.get("output"), large.get("output_base64")), (None, None), "{large}");
    assert_eq!(
        (&large["output_location"], &large["output_bytes"]),
        (&Value::from(&*place), &(MAX + 1).into())
    );
    assert_eq!(http.ask("GET", &place, &[], b"").body.len(), MAX + 1);
}

#[test]
fn a_job_whose_output_was_delivered_still_says_how_it_ended() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let called = http.call("echo", &[], "hello");
    let job = called.field("offload-job").expect("its id");
    let document = http.ask("GET", &format!("/v1/jobs/{job}"), &[], b"").json();
    assert_eq!((&document["outcome"], &document["attempts"]), (&"ok".into(), &1.into()), "{document}");
    assert_eq!(document["receipt"]["output_bytes"], 5, "{document}");
    for absent in ["output", "output_base64", "output_location", "content_type", "output_bytes"] {
        assert_eq!(document.get(absent), None, "its output is not kept: {document}");
    }
    let waited = http.ask("GET", &format!("/v1/jobs/{job}?wait=60"), &[], b"");
    assert_eq!((waited.status, waited.json()), (200, document), "there is nothing to wait for");
    let events = http.ask("GET", &format!("/v1/jobs/{job}/events"), &[], b"");
    assert_eq!((events.status, &last_event(&events.text())["outcome"]), (200, &"ok".into()));
}

#[test]
fn a_client_that_would_wait_a_while_gets_the_output_or_the_place() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let soon = http.call("sleep", &[("Prefer", "wait=60")], "1");
    assert_eq!((soon.status, soon.field("preference-applied")), (200, Some("wait=60")));
    let place = accepted(&http.call("sleep", &[("Prefer", "wait=1")], "3600000"));
    let output = http.ask("GET", &format!("{place}/output"), &[], b"");
    assert_eq!(output.problem(), (409, "conflict".to_owned()));
    let told = output.json()["detail"].as_str().map(str::to_owned).expect("a sentence");
    assert!(told.contains(&format!("GET {place}?wait=N waits for its end")), "{told}");
    assert_eq!(output.field("retry-after"), None, "nobody knows when it ends");
    let cancelled = http.ask("DELETE", &place, &[], b"").json();
    assert_eq!(cancelled["cancelled"], true);
    let again = http.ask("DELETE", &place, &[], b"").json();
    assert_eq!(again["cancelled"], false, "it had ended");
    let output = http.ask("GET", &format!("{place}/output"), &[], b"");
    assert_eq!(output.problem(), (499, "cancelled".to_owned()));
}

#[test]
fn a_job_that_nobody_knows_is_not_found() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    for path in ["/v1/jobs/nope", "/v1/jobs/nope/output", "/v1/jobs/nope/events", "/v1/jobs/nope?wait=60"] {
        assert_eq!(http.ask("GET", path, &[], b"").problem(), (404, "no_such_job".to_owned()), "{path}");
    }
    assert_eq!(http.ask("DELETE", "/v1/jobs/nope", &[], b"").problem(), (404, "no_such_job".to_owned()));
    assert_eq!(http.ask("GET", "/v2/jobs", &[], b"").problem().0, 404);
    assert_eq!(http.ask("PUT", "/v1/jobs/x", &[], b"").problem().0, 405);
}

#[test]
fn an_output_that_was_given_up_is_gone_and_one_that_was_collected_stays_no_longer_than_was_promised() {
    let output = |http: &HttpDaemon, place: &str| http.ask("GET", &format!("{place}/output"), &[], b"");
    let http = HttpDaemon::start(&["--workers", "1"]);
    let fields = [("Prefer", "respond-async"), ("Content-Type", "text/plain")];
    let given_up = accepted(&http.call("echo", &fields, "secret"));
    assert_eq!(http.ask("GET", &format!("{given_up}?wait=60"), &[], b"").json()["output"], "secret");
    assert_eq!(http.ask("DELETE", &given_up, &[], b"").status, 200);
    let gone = output(&http, &given_up);
    assert!(gone.status == 404 && gone.text().contains("given it up"), "{gone:?}");
    let told = http.ask("GET", &given_up, &[], b"").json();
    assert!(told["outcome"] == "ok" && told["output"].is_null(), "{told}");
    let http = HttpDaemon::start(&["--workers", "1", "--keep-results", "1s"]);
    let collected = http.call("echo", &[("Prefer", "wait=60")], "secret");
    assert_eq!(collected.status, 200, "{collected:?}");
    let job = collected.field("offload-job").expect("its id");
    let place = format!("/v1/jobs/{job}");
    let too_old = until("it is as old as it may be", || {
        Some(output(&http, &place)).filter(|answer| answer.status == 404)
    });
    assert!(too_old.text().contains("as long as results are kept"), "{too_old:?}");
}

#[test]
fn events_tell_what_happens_to_a_job_until_its_end() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let place = accepted(&http.call("sleep", &[("Prefer", "respond-async")], "3600000"));
    let mut connection = http.connect();
    connection.send("GET", &format!("{place}/events"), &[], b"");
    assert_eq!(connection.head_of_answer().expect("a head").0, 200);
    let mut seen = Vec::new();
    while !seen.iter().any(|line: &String| line == "event: state") {
        seen.push(connection.line().expect("an event"));
    }
    http.ask("DELETE", &place, &[], b"");
    let rest = String::from_utf8_lossy(&{
        // The rest is everything to the end of the chunked body.
        let mut rest = Vec::new();
        while let Some(line) = connection.line() {
            rest.extend(line.bytes().chain([b'\n']));
            if line == "0" {
                break;
            }
        }
        rest
    })
    .into_owned();
    assert!(rest.contains("event: end") && rest.contains("\"outcome\":\"cancelled\""), "{rest}");
    let id = rest.lines().find_map(|line| line.strip_prefix("id: ")).expect("events have ids").to_owned();
    let again = http.ask("GET", &format!("{place}/events"), &[("Last-Event-ID", &id)], b"");
    assert_eq!((again.status, again.text()), (204, String::new()), "the end was told: nobody need come back");
}

#[test]
fn lists_come_in_pages() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    for number in 0..5 {
        assert_eq!(http.call("echo", &[], number.to_string()).status, 200);
    }
    let (mut after, mut all) = (String::new(), Vec::new());
    loop {
        let page = http.ask("GET", &format!("/v1/jobs?limit=2&after={after}"), &[], b"").json();
        let rows = page["rows"].as_array().expect("rows").clone();
        assert!(rows.len() <= 2);
        all.extend(rows.into_iter().map(|row| row["job"].as_str().expect("an id").to_owned()));
        match page["next"].as_str() {
            Some(next) => after = next.replace('/', "%2F"),
            None => break,
        }
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 5);
    assert_eq!(http.ask("GET", "/v1/workers", &[], b"").json()["rows"][0]["state"], "idle");
    for limit in ["x", "0"] {
        assert_eq!(http.ask("GET", &format!("/v1/jobs?limit={limit}"), &[], b"").problem().0, 400, "{limit}");
    }
}

#[test]
fn the_supervisor_says_what_it_offers_and_how_it_is() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let tasks = http.ask("GET", "/v1/tasks", &[], b"").json();
    assert!(tasks.as_array().expect("a list").iter().any(|task| task["name"] == "primes"));
    assert_eq!(http.ask("GET", "/v1/tasks/primes", &[], b"").json()["schema"]["type"], "integer");
    assert_eq!(http.ask("GET", "/v1/tasks/nothing", &[], b"").problem().0, 404);
    assert_eq!(http.ask("GET", "/v1/status", &[], b"").json()["ledger"]["balanced"], true);
    assert_eq!(http.ask("GET", "/healthz", &[], b"").text(), "ok\n");
    assert_eq!(http.ask("GET", "/readyz", &[], b"").text(), "ready\n");
}

#[test]
fn what_is_kept_exceeds_its_limit_at_most_by_an_output_of_each_worker_and_of_those_that_ran_then() {
    const OUTPUT: usize = 6 << 20;
    const LIMIT: u64 = (8 << 20) + OUTPUT as u64;
    let http = HttpDaemon::start(&["--workers", "1", "--max-kept-bytes", "8MiB", "--max-payload", "6MiB"]);
    let body = vec![b'x'; OUTPUT];
    let submit = |client: &str| {
        let fields = [("Prefer", "respond-async"), ("Offload-Client", client)];
        accepted(&http.call("echo", &fields, &body))
    };
    // None of them ends before all were accepted.
    http.daemon.run(&["pause", "echo"]).ok();
    let places: Vec<String> = ["ann", "bob", "cat", "dan", "eve"].map(submit).into();
    http.daemon.run(&["resume", "echo"]).ok();
    let kept = || http.daemon.status()["kept"].clone();
    let full = until("no more of them start", || Some(kept()).filter(|kept| kept["held"] == 2));
    let bytes = full["bytes"].as_u64().expect("a number");
    assert!(bytes > LIMIT && bytes < LIMIT + OUTPUT as u64 + (64 << 10), "{full}");
    let waiting = http.daemon.run(&["jobs", "--json", "--outcome", "held"]).ok().json();
    assert_eq!(waiting.as_array().map(Vec::len), Some(2), "{waiting}");
    assert_eq!(http.call("echo", &[("Offload-Client", "fay")], "hello").text(), "hello");
    // Nothing that was promised is lost, and each that is collected makes room for the next.
    for place in &places {
        let state = http.ask("GET", &format!("{place}?wait=60"), &[], b"").json();
        assert_eq!(state["outcome"], "ok", "{state}");
        assert!(http.ask("GET", &format!("{place}/output"), &[], b"").body == body);
        let bytes = kept()["bytes"].as_u64().expect("a number");
        assert!(bytes < LIMIT + OUTPUT as u64 + (64 << 10), "{bytes}");
        assert_eq!(http.ask("DELETE", place, &[], b"").status, 200);
    }
    assert_eq!(kept()["jobs"], 0);
}

/// What is kept may be given up while somebody reads it.
#[test]
fn a_kept_output_on_its_way_to_a_client_is_charged_until_that_has_read_it() {
    const LENGTH: usize = 12 << 20;
    let http = HttpDaemon::start(&["--workers", "1"]);
    let submitted = http.call("echo", &[("prefer", "respond-async")], vec![b'x'; LENGTH]).json();
    let path = format!("/v1/jobs/{}", submitted["job"].as_str().expect("its id"));
    assert_eq!(http.ask("GET", &format!("{path}?wait=60"), &[], b"").json()["outcome"], "ok");
    let held = || http.daemon.status()["queue"]["bytes"].as_u64().expect("a number");
    let is_held = |bytes: usize| until("it is held", || (held() == bytes as u64).then_some(()));
    is_held(0);
    // It is in memory once, so it is charged once.
    let mut reading = [http.connect(), http.connect()];
    for reading in &mut reading {
        reading.send("GET", &format!("{path}/output"), &[], b"");
        assert_eq!(reading.head_of_answer().expect("a head").0, 200);
        is_held(LENGTH);
    }
    assert_eq!(http.ask("DELETE", &path, &[], b"").status, 200);
    assert_eq!(http.daemon.status()["kept"]["bytes"], 0);
    let [first, second] = reading;
    drop(first);
    assert_eq!(http.ask("GET", "/healthz", &[], b"").status, 200);
    is_held(LENGTH);
    drop(second);
    is_held(0);
}
