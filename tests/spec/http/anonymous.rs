//! What somebody who has shown no token is told of a job that failed.

use offload_protocol::nouns::OutcomeCode;
use tests::harness::until;
use tests::http::{Answer, HttpDaemon};

const ANONYMOUS: (&str, &str) = ("Authorization", "");

const SAID: &str = "KEY=hunter2";

fn daemon() -> HttpDaemon {
    HttpDaemon::start(&[
        "--workers",
        "3",
        "--allow-faults",
        "--worker",
        "builtin",
        "--worker-jsonl",
        "sh -c 'echo KEY=hunter2 >&2; exit 1'",
        "--exec-task",
        "boom -- sh -c 'echo KEY=hunter2 >&2; exit 3'",
        "--http-route",
        "POST /boom boom auth=none",
        "--http-route",
        "POST /boom-with-token boom",
        "--http-route",
        "POST /json json auth=none",
        "--http-route",
        "POST /fault fault auth=none",
        "--http-route",
        "POST /not-started other auth=none",
        "--http-route",
        "POST /not-started-with-token other",
    ])
}

fn detail(answer: &Answer) -> String {
    answer.json()["detail"].as_str().expect("a sentence").to_owned()
}

#[test]
fn what_a_program_wrote_is_told_to_those_who_have_shown_the_token() {
    let http = daemon();
    let told = http.ask("POST", "/boom-with-token", &[], b"");
    assert!(told.status == 422 && detail(&told).contains(SAID), "{told:?}");
    for fields in [&[ANONYMOUS][..], &[]] {
        let hidden = http.ask("POST", "/boom", fields, b"");
        assert_eq!(hidden.problem(), (422, "app_error".to_owned()));
        assert_eq!(detail(&hidden), "the program of the task has failed", "nobody looks at a token there");
        assert_eq!(hidden.json()["exit_code"], 3);
        let job = hidden.json()["job"].as_str().expect("its id").to_owned();
        let document = http.ask("GET", &format!("/v1/jobs/{job}"), &[], b"").text();
        assert!(document.contains(SAID), "{document}");
    }
    let events = http.ask("POST", "/boom", &[ANONYMOUS, ("Accept", "text/event-stream")], b"");
    assert!(events.text().contains("app_error") && !events.text().contains(SAID), "{}", events.text());
    let events = http.ask("POST", "/boom-with-token", &[("Accept", "text/event-stream")], b"");
    assert!(events.text().contains(SAID), "{}", events.text());
}

#[test]
fn why_a_worker_does_not_start_is_told_to_those_who_have_shown_the_token() {
    let http = daemon();
    let told = until("it is given up", || {
        let answer = http.ask("POST", "/not-started-with-token", &[], b"");
        (answer.status == 503).then_some(answer)
    });
    assert!(detail(&told).contains(SAID), "{told:?}");
    let hidden = http.ask("POST", "/not-started", &[ANONYMOUS], b"");
    assert_eq!(hidden.problem(), (503, "unavailable".to_owned()));
    assert_eq!(detail(&hidden), "the task cannot be run at the moment");
    assert_eq!(hidden.field("retry-after"), told.field("retry-after"));
}

#[test]
fn the_error_that_a_task_returns_is_its_answer_and_a_panic_is_not() {
    let http = daemon();
    let returned = http.ask("POST", "/json", &[ANONYMOUS], b"{");
    assert_eq!(returned.problem(), (422, "app_error".to_owned()));
    assert!(detail(&returned).contains("line 1"), "{returned:?}");
    let panicked = http.ask("POST", "/fault", &[ANONYMOUS], br#"{"act":"panic"}"#);
    assert_eq!(panicked.problem(), (500, "panic".to_owned()));
    assert_eq!(detail(&panicked), "the worker of the task has failed");
}

/// Who has shown no token can never collect it.
#[test]
fn what_is_kept_for_somebody_without_a_token_leaves_room_for_all_others() {
    let http = HttpDaemon::start(&[
        "--workers",
        "2",
        "--max-kept-bytes",
        "8MiB",
        "--http-route",
        "POST /echo echo auth=none mode=async",
    ]);
    http.daemon.run(&["pause", "echo"]).ok();
    let body = vec![b'x'; 3 << 20];
    let jobs = [0; 2].map(|_| {
        let accepted = http.ask("POST", "/echo", &[ANONYMOUS], &body);
        assert_eq!(accepted.status, 202, "{accepted:?}");
        accepted.json()["job"].as_str().expect("its id").to_owned()
    });
    http.daemon.run(&["resume", "echo"]).ok();
    until("both to end", || (http.daemon.status()["jobs"]["ok"] == 2).then_some(()));
    let ended = jobs.map(|job| http.daemon.run(&["result", &job]).code);
    assert!(ended.iter().filter(|code| **code != 0).count() == 1, "{ended:?}");
    let kept = http.daemon.status()["kept"]["bytes"].as_u64().expect("a number");
    assert!(kept < 4 << 20, "{kept}");
    assert_eq!(http.call("echo", &[("Prefer", "respond-async")], "hello").status, 202);
}

#[test]
fn what_is_told_beside_the_detail_is_words_of_a_list_and_numbers() {
    let http = daemon();
    let crash = http.ask("POST", "/fault", &[ANONYMOUS], br#"{"act":"segv"}"#);
    let boom = http.ask("POST", "/boom", &[ANONYMOUS], b"");
    for (answer, number) in [(crash, "signal"), (boom, "exit_code")] {
        let problem = answer.json();
        let members = problem.as_object().expect("a document");
        assert!(members[number].is_i64(), "{problem}");
        for (name, value) in members {
            let is_told = match name.as_str() {
                "title" | "detail" | "job" => value.is_string(),
                "code" | "cause" => OutcomeCode::ALL.iter().any(|code| code.as_str() == value),
                "status" | "attempts" | "signal" | "exit_code" | "retry_after_ms" => value.is_i64(),
                _ => false,
            };
            assert!(is_told, "{name}: {problem}");
        }
    }
}
