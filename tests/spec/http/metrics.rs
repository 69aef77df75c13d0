//! What is measured, as Prometheus reads it.

use offload_event_loop::Phase;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use tests::harness::until;
use tests::http::HttpDaemon;

/// A sample: its name, its labels in their order, its value.
type Sample = (String, Vec<(String, String)>, f64);

/// The families of a scrape by their names, each with its type and its samples.
type Families = BTreeMap<String, (String, Vec<Sample>)>;

const OPEN_METRICS: (&str, &str) =
    ("Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5");

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("labels do not end: {line}"));
    let label = |text: &str| {
        let (key, value) = text.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
        let value = value.strip_suffix('"').unwrap_or_else(|| panic!("no quoted value: {line}"));
        assert!(is_name(key) && !value.contains(['"', '\\', '\n']), "{line}");
        (key.to_owned(), value.to_owned())
    };
    assert!(is_name(name), "{line}");
    let labels = labels.split(',').filter(|label| !label.is_empty()).map(label).collect();
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
}

/// Reads a scrape of either format, and is content with nothing that a strict reader would refuse.
fn parse(text: &str, is_open_metrics: bool) -> Families {
    let (mut families, mut current, mut seen) = (Families::new(), String::new(), BTreeSet::new());
    let text = match is_open_metrics {
        true => text.strip_suffix("# EOF\n").expect("the end is said"),
        false => text,
    };
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                assert!(is_name(name) && !help.is_empty(), "{line}");
                let before = families.insert(name.to_owned(), (String::new(), Vec::new()));
                assert!(before.is_none(), "a family comes once: {line}");
                current = name.to_owned();
            }
            ["#", "TYPE", name, kind] => {
                assert_eq!(name, current, "{line}");
                families.get_mut(name).expect("its help came before").0 = kind.to_owned();
            }
            ["#", "UNIT", name, unit] => {
                assert!(is_open_metrics && name == current && name.ends_with(&format!("_{unit}")), "{line}");
            }
            ["#", ..] => panic!("what is that? {line}"),
            _ => {
                let sample = sample(line);
                assert!(seen.insert((sample.0.clone(), sample.1.clone())), "twice: {line}");
                families.get_mut(&current).expect("a family").1.push(sample);
            }
        }
    }
    families.iter().for_each(|(name, (kind, samples))| check(name, (kind, samples), is_open_metrics));
    families
}

/// The samples of a family have the names and the order that its type asks for.
fn check(name: &str, (kind, samples): (&str, &[Sample]), is_open_metrics: bool) {
    let suffixes: &[&str] = match (kind, is_open_metrics) {
        ("counter", true) => &["_total"],
        ("info", true) => &["_info"],
        ("counter" | "gauge", _) => &[""],
        ("histogram", _) => &["_sum", "_count", "_bucket"],
        _ => panic!("{name} is a {kind:?}"),
    };
    for (sample, _, value) in samples {
        let suffix = sample.strip_prefix(name).unwrap_or_else(|| panic!("{sample} in {name}"));
        assert!(suffixes.contains(&suffix) && *value >= 0.0, "{sample} of the {kind} {name}");
    }
    assert!(kind != "counter" || is_open_metrics || name.ends_with("_total"), "{name}");
    if kind == "histogram" {
        samples.chunk_by(|before, after| labels_of(before) == labels_of(after)).for_each(check_histogram);
    }
}

fn labels_of((_, labels, _): &Sample) -> Vec<&(String, String)> {
    labels.iter().filter(|(key, _)| key != "le").collect()
}

fn check_histogram(samples: &[Sample]) {
    let count = samples.iter().find(|(name, ..)| name.ends_with("_count")).expect("a count").2;
    let buckets = samples.iter().filter(|(name, ..)| name.ends_with("_bucket"));
    let bound = |(_, labels, _): &Sample| match labels.iter().find(|(key, _)| key == "le") {
        Some((_, text)) if text == "+Inf" => f64::INFINITY,
        Some((_, text)) => text.parse().expect("a bound"),
        None => panic!("a bucket has a bound"),
    };
    let buckets: Vec<(f64, f64)> = buckets.map(|sample| (bound(sample), sample.2)).collect();
    assert!(buckets.is_sorted_by(|before, after| before.0 < after.0 && before.1 <= after.1), "{samples:?}");
    assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{samples:?}");
}

fn scrape(http: &HttpDaemon) -> Families {
    let answer = http.ask("GET", "/metrics", &[OPEN_METRICS], b"");
    let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((answer.status, answer.field("content-type")), (200, Some(media_type)));
    parse(&answer.text(), true)
}

/// The sum of the samples of this name that have all these labels.
fn sum(families: &Families, name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |all: &[(String, String)]| {
        labels.iter().all(|(key, value)| all.iter().any(|(k, v)| k == key && v == value))
    };
    let samples = families.values().flat_map(|(_, samples)| samples);
    samples.filter(|(its, all, _)| its == name && has(all)).map(|(.., value)| value).sum()
}

/// Task, fields, input, and the status of the answer.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], String, u16);

/// Jobs that end in as many ways as there are.
fn mixture(http: &HttpDaemon) {
    let fault = |act: &str| json!({ "act": act }).to_string();
    for number in 0..20 {
        assert_eq!(http.call("echo", &[("Offload-Client", "polite")], number.to_string()).status, 200);
    }
    let once = [("Offload-Attempts", "1"), ("Offload-Client", "guilty")];
    let timeout = [once[0], once[1], ("Offload-Timeout", "50ms")];
    let cases: [Case<'_>; 7] = [
        ("primes", &once, "no number".to_owned(), 422),
        ("fault", &once, fault("panic"), 500),
        ("fault", &once, fault("segv"), 502),
        ("fault", &timeout, fault("hang"), 504),
        ("not \"offered\"", &once, "1".to_owned(), 404),
        ("made_up", &once, "1".to_owned(), 404),
        ("echo", &once, "x".repeat((1 << 20) + 1), 413),
    ];
    for (task, fields, input, status) in cases {
        let task = task.replace(' ', "%20").replace('"', "%22");
        assert_eq!(http.call(&task, fields, &input).status, status, "{task}");
    }
    let cancelled = http.call("sleep", &[("Prefer", "respond-async")], "3600000");
    let place = cancelled.field("location").expect("its place").to_owned();
    assert_eq!(http.ask("DELETE", &place, &[], b"").status, 200);
}

#[test]
fn the_counters_agree_with_the_status_whatever_jobs_come_to() {
    let http = HttpDaemon::start(&["--workers", "2", "--allow-faults", "--max-payload", "1MiB"]);
    mixture(&http);
    // Nothing is on its way any more that one of the two would count and the other not.
    http.daemon.wait_until_whole();
    let (families, status) = until("no worker is replaced between the two", || {
        let (families, status) = (scrape(&http), http.daemon.status());
        let restarts = sum(&families, "offload_worker_restarts_total", &[]);
        (status["workers"]["restarts"] == restarts).then_some((families, status))
    });
    let jobs = |word: &str| status["jobs"][word].as_f64().expect("a number");
    for word in ["ok", "app_error", "panic", "worker_crashed", "timeout", "cancelled", "poison"] {
        let ended = sum(&families, "offload_jobs_ended_total", &[("outcome", word)]);
        assert_eq!(ended, jobs(word), "{word}");
    }
    assert_eq!(sum(&families, "offload_jobs_accepted_total", &[]), jobs("accepted"));
    assert_eq!(sum(&families, "offload_jobs_rejected_total", &[]), jobs("rejected"));
    for (code, count) in [("unknown_task", 2.0), ("too_large", 1.0)] {
        assert_eq!(sum(&families, "offload_jobs_rejected_total", &[("code", code)]), count, "{code}");
    }
    assert_eq!(sum(&families, "offload_worker_restarts_total", &[]), status["workers"]["restarts"]);
    for (name, told) in [
        ("offload_batches_total", "batches"),
        ("offload_batched_jobs_total", "batched_jobs"),
        ("offload_batches_halved_total", "halved_batches"),
    ] {
        assert_eq!(sum(&families, name, &[]), status["workers"][told], "{name}");
    }
    let echo = [("task", "echo")];
    for name in ["offload_job_queue_seconds_count", "offload_job_run_seconds_count"] {
        assert_eq!(sum(&families, name, &echo), 20.0, "{name}");
    }
    assert_eq!(sum(&families, "offload_job_input_bytes_total", &echo), 30.0);
    assert_eq!(sum(&families, "offload_job_output_bytes_total", &echo), 30.0);
    let ended = jobs("accepted") - jobs("running") - jobs("queued");
    assert_eq!(sum(&families, "offload_job_total_seconds_count", &[]), ended);
}

#[test]
fn a_scrape_says_how_full_the_supervisor_is_and_what_its_connections_carry() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    let place = http.call("sleep", &[("Prefer", "respond-async")], "3600000");
    let place = place.field("location").expect("its place").to_owned();
    tests::harness::until("it runs", || {
        let state = http.ask("GET", &place, &[], b"").json()["state"].clone();
        (state == "running").then_some(())
    });
    let families = scrape(&http);
    let value = |name: &str| sum(&families, name, &[]);
    assert_eq!((value("offload_slots"), value("offload_slots_busy")), (2.0, 1.0));
    assert_eq!((value("offload_saturation_ratio"), value("offload_jobs_running")), (0.5, 1.0));
    assert_eq!(sum(&families, "offload_state", &[("state", "running")]), 1.0);
    assert_eq!(sum(&families, "offload_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    assert_eq!(sum(&families, "offload_http_requests_total", &[("status", "202")]), 1.0);
    assert_eq!(value("offload_io_threads"), 4.0);
    assert!(value("offload_http_connections") >= 1.0);
    assert!(value("offload_http_received_bytes_total") > 100.0);
    assert!(value("offload_http_sent_bytes_total") > 100.0);
    assert!(value("offload_event_loop_lag_seconds_count") > 0.0);
    assert!(value("offload_event_loop_phase_seconds_total") > 0.0);
}

/// All families, each with its type, as OpenMetrics names them. Dashboards and alerts of others are written for these names.
const FAMILIES: [(&str, &str); 43] = [
    ("offload_build", "info"),
    ("offload_uptime_seconds", "gauge"),
    ("offload_state", "gauge"),
    ("offload_slots", "gauge"),
    ("offload_slots_ready", "gauge"),
    ("offload_slots_busy", "gauge"),
    ("offload_saturation_ratio", "gauge"),
    ("offload_worker_starts", "counter"),
    ("offload_worker_restarts", "counter"),
    ("offload_batches", "counter"),
    ("offload_batched_jobs", "counter"),
    ("offload_batches_halved", "counter"),
    ("offload_queue_jobs", "gauge"),
    ("offload_queue_jobs_limit", "gauge"),
    ("offload_held_bytes", "gauge"),
    ("offload_held_limit_bytes", "gauge"),
    ("offload_expected_wait_seconds", "gauge"),
    ("offload_dead_letters", "gauge"),
    ("offload_jobs_running", "gauge"),
    ("offload_jobs_accepted", "counter"),
    ("offload_jobs_rejected", "counter"),
    ("offload_jobs_ended", "counter"),
    ("offload_job_queue_seconds", "histogram"),
    ("offload_job_run_seconds", "histogram"),
    ("offload_job_total_seconds", "histogram"),
    ("offload_job_input_bytes", "counter"),
    ("offload_job_output_bytes", "counter"),
    ("offload_event_loop_iterations", "counter"),
    ("offload_event_loop_lag_seconds", "histogram"),
    ("offload_event_loop_phase_seconds", "counter"),
    ("offload_event_loop_blocked", "counter"),
    ("offload_io_threads", "gauge"),
    ("offload_io_threads_busy", "gauge"),
    ("offload_io_tasks_queued", "gauge"),
    ("offload_io_threads_stuck", "gauge"),
    ("offload_io_tasks_finished", "counter"),
    ("offload_http_connections", "gauge"),
    ("offload_http_connections_opened", "counter"),
    ("offload_http_received_bytes", "counter"),
    ("offload_http_sent_bytes", "counter"),
    ("offload_http_requests", "counter"),
    ("offload_http_tls_handshakes", "counter"),
    ("offload_http_tls_handshakes_failed", "counter"),
];

#[test]
fn a_scrape_has_these_families_each_with_its_type() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let families = scrape(&http);
    let known: BTreeMap<&str, &str> = FAMILIES.into();
    let told: BTreeMap<&str, &str> =
        families.iter().map(|(name, (kind, _))| (name.as_str(), kind.as_str())).collect();
    assert_eq!(told, known);
}

/// The jobs before those that wait have shown how long such a job takes.
#[test]
fn while_jobs_wait_a_scrape_says_how_long_another_one_would() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let wait = || sum(&scrape(&http), "offload_expected_wait_seconds", &[]);
    for _ in 0..5 {
        assert_eq!(http.call("sleep", &[], "20").status, 200);
    }
    assert_eq!(wait(), 0.0, "nothing waits, and the worker is idle");
    for _ in 0..5 {
        assert_eq!(http.call("sleep", &[("Prefer", "respond-async")], "3600000").status, 202);
    }
    http.daemon.worker_running("sleep");
    let expected = wait();
    assert!(expected > 0.0, "four jobs wait behind one, and a fifth would wait {expected} s");
}

#[test]
fn both_formats_say_the_same_and_none_of_it_without_the_token() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    assert_eq!(http.call("echo", &[], "x").status, 200);
    let older = http.ask("GET", "/metrics", &[], b"");
    assert_eq!(older.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let samples = |families: Families| {
        let all = families.into_values().flat_map(|(_, samples)| samples);
        all.map(|(name, labels, _)| (name, labels)).collect::<BTreeSet<_>>()
    };
    let (older, newer) = (samples(parse(&older.text(), false)), samples(scrape(&http)));
    for phase in Phase::ALL {
        let labels = vec![("phase".to_owned(), phase.name().to_owned())];
        let name = "offload_event_loop_phase_seconds_total".to_owned();
        assert!(older.contains(&(name, labels)), "{phase:?} is there, whether it had anything to run or not");
    }
    // The first scrape is in the second one.
    assert!(older.is_subset(&newer) && newer.len() <= older.len() + 1, "{older:?} {newer:?}");
    let refused = http.ask("GET", "/metrics", &[("Authorization", "Bearer wrong")], b"");
    assert_eq!(refused.problem().0, 401);
}
