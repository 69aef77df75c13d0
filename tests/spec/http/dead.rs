//! Dead letters as resources, and the supervisor as a stream of events.

use serde_json::Value;
use tests::harness::until;
use tests::http::{HttpConnection, HttpDaemon};

const KILL: &str = r#"{"act":"kill"}"#;

/// A job that is given up because it ends every worker; its id.
fn poisoned(http: &HttpDaemon) -> String {
    let answer = http.call("fault", &[("Offload-Client", "guilty")], KILL);
    assert_eq!(answer.problem(), (502, "poison".to_owned()));
    answer.field("offload-job").expect("its id").to_owned()
}

#[test]
fn dead_letters_are_listed_shown_retried_and_dropped_as_by_the_command_line() {
    let http = HttpDaemon::start(&["--workers", "2", "--allow-faults"]);
    let (first, second) = (poisoned(&http), poisoned(&http));
    assert_eq!(http.call("echo", &[("Offload-Client", "innocent")], "x").status, 200);
    let list = |limit: &str| http.ask("GET", &format!("/v1/dead{limit}"), &[], b"").json();
    let all = list("");
    let jobs: Vec<&Value> = all["rows"].as_array().expect("rows").iter().map(|row| &row["job"]).collect();
    assert_eq!(jobs, [&Value::from(&*second), &Value::from(&*first)], "the youngest first");
    assert_eq!(list("?limit=1")["rows"].as_array().map(Vec::len), Some(1));
    let shown = http.ask("GET", &format!("/v1/dead/{first}"), &[], b"").json();
    assert_eq!(shown["attempts"].as_array().map(Vec::len), Some(3));
    assert_eq!(shown, http.daemon.run(&["dead", "show", &first, "--json"]).ok().json().without_times(&shown));
    let retried = http.ask("POST", &format!("/v1/dead/{first}/retry"), &[], b"").json();
    assert_eq!(retried["dead"], Value::from(&*first));
    let again = retried["job"].as_str().expect("a new job");
    let end = http.ask("GET", &format!("/v1/jobs/{again}?wait=60"), &[], b"").json();
    assert_eq!(end["outcome"], "poison", "it does the same again");
    let dropped = http.ask("DELETE", &format!("/v1/dead/{second}"), &[], b"").json();
    assert_eq!(dropped["dropped"], true);
    let left = list("");
    let left: Vec<&Value> = left["rows"].as_array().expect("rows").iter().map(|row| &row["job"]).collect();
    assert_eq!(left, [&Value::from(again)]);
    assert_eq!(http.daemon.status()["ledger"]["balanced"], true);
}

/// What grows from one look to the next is taken from the other document.
trait WithoutTimes {
    fn without_times(self, other: &Value) -> Value;
}

impl WithoutTimes for Value {
    fn without_times(mut self, other: &Value) -> Value {
        for field in ["dead_for_us", "kept_for_us"] {
            assert!(self[field].is_u64(), "{self}");
            self[field] = other[field].clone();
        }
        self
    }
}

#[test]
fn dead_letters_are_guarded_like_everything_else() {
    let http = HttpDaemon::start(&["--workers", "1", "--allow-faults"]);
    let job = poisoned(&http);
    let (retry, one) = (format!("/v1/dead/{job}/retry"), format!("/v1/dead/{job}"));
    let refused: [(&str, &str, (&str, &str), u16); 5] = [
        ("POST", &retry, ("Authorization", "Bearer wrong"), 401),
        ("DELETE", &one, ("Authorization", "Bearer wrong"), 401),
        ("POST", &retry, ("Origin", "https://evil.example"), 403),
        ("DELETE", &one, ("Sec-Fetch-Site", "cross-site"), 403),
        ("GET", &retry, ("Accept", "*/*"), 405),
    ];
    for (method, path, field, status) in refused {
        assert_eq!(http.ask(method, path, &[field], b"").problem().0, status, "{method} {path} {field:?}");
    }
    for (method, path) in [("GET", "/v1/dead/x"), ("DELETE", "/v1/dead/x"), ("POST", "/v1/dead/x/retry")] {
        assert_eq!(http.ask(method, path, &[], b"").problem(), (404, "no_such_job".to_owned()), "{path}");
    }
    assert_eq!(http.ask("GET", &one, &[], b"").status, 200, "it is still there");
}

fn watch(http: &HttpDaemon, client: &str) -> (u16, HttpConnection) {
    let mut connection = http.connect();
    connection.send("GET", "/v1/events", &[("offload-client", client)], b"");
    let (status, fields) = connection.head_of_answer().expect("a head");
    if status == 200 {
        assert!(fields.contains(&("content-type".to_owned(), "text/event-stream".to_owned())), "{fields:?}");
    }
    (status, connection)
}

fn next_event(connection: &mut HttpConnection) -> Value {
    loop {
        let line = connection.line().expect("more events");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).expect("a document");
        }
    }
}

#[test]
fn whoever_watches_is_told_what_waits_and_runs_in_which_slot() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let (_, mut watcher) = watch(&http, "a client");
    assert_eq!(next_event(&mut watcher)["status"]["workers"]["busy"], 0);
    for _ in 0..3 {
        let answer = http.call("sleep", &[("Prefer", "respond-async")], "3600000");
        assert_eq!(answer.status, 202);
    }
    let now = until("the jobs are seen", || {
        let now = next_event(&mut watcher);
        let is_all = now["slots"][0]["task"] == "sleep" && now["status"]["queue"]["jobs"] == 2;
        is_all.then_some(now)
    });
    assert_eq!(now["status"]["workers"]["busy"], 1);
    let tasks = now["tasks"].as_array().expect("tasks");
    let sleep = tasks.iter().find(|task| task["task"] == "sleep").expect("its row");
    assert_eq!((&sleep["running"], &sleep["waiting"]), (&1.into(), &2.into()));
    let later = next_event(&mut watcher);
    assert!(later["at_us"].as_f64() > now["at_us"].as_f64(), "they go on");
}

/// A client may have as many places as it leaves to others.
#[test]
fn so_many_may_watch_and_who_leaves_makes_room() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut watchers: Vec<_> =
        (0..offload_http::limits::WATCHERS_MAX / 2).map(|_| watch(&http, "greedy")).collect();
    assert_eq!(watch(&http, "greedy").0, 503);
    watchers.extend((0..watchers.len()).map(|client| watch(&http, &client.to_string())));
    assert!(watchers.iter().all(|(status, _)| *status == 200));
    assert_eq!(watch(&http, "newcomer").0, 503);
    let same: Vec<Value> = watchers.iter_mut().map(|(_, watcher)| next_event(watcher)).collect();
    assert!(same.iter().all(|now| now["status"]["pid"] == same[0]["status"]["pid"]));
    drop(watchers.pop());
    until("there is room again", || (watch(&http, "newcomer").0 == 200).then_some(()));
}
