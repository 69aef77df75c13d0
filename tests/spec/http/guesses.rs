//! Somebody guesses tokens, beside clients of the same address that show the right one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tests::harness::{PATIENCE, until};
use tests::http::HttpDaemon;

const WRONG: (&str, &str) = ("Authorization", "Bearer 0123456789abcdef0123456789abcdef");

#[test]
fn a_connection_ends_after_ten_wrong_tokens_and_others_do_not() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut honest = http.connect();
    let mut guesses = http.connect();
    for number in 1..=10 {
        guesses.send("GET", "/v1/status", &[WRONG], b"");
        assert_eq!(guesses.answer().expect("an answer").problem(), (401, "unauthenticated".to_owned()));
        honest.send("GET", "/v1/status", &[], b"");
        assert_eq!(honest.answer().expect("an answer").status, 200, "beside guess {number}");
    }
    assert_eq!(guesses.ends(), b"");
    let is_told = |line: &str| line.contains("127.0.0.1 has shown 10 wrong tokens");
    http.daemon.stderr.find(is_told, PATIENCE).expect("the log names the address");
    let mut forgetful = http.connect();
    for _ in 0..20 {
        let request = forgetful.head("GET", "/v1/status", &[("Authorization", "")]);
        forgetful.write(request.replace("Authorization: \r\n", "").as_bytes());
        assert_eq!(forgetful.answer().expect("no token is no guess").status, 401);
    }
}

#[test]
fn over_http2_a_connection_ends_after_ten_wrong_tokens_too() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut load = std::process::Command::new("h2load");
    load.args(["-n", "300", "-c", "1", "-m", "5", "-T", "60", "-N", "60", "-H"]);
    load.arg(format!("{}: {}", WRONG.0, WRONG.1)).arg(format!("http://{}/v1/status", http.address));
    let text = String::from_utf8_lossy(&tests::harness::run(&mut load, b"").stdout).into_owned();
    let refused =
        text.split_once(" 4xx").and_then(|(before, _)| before.rsplit(' ').next()?.parse::<u32>().ok());
    assert!(refused.is_some_and(|refused| (10..50).contains(&refused)), "{text}");
    assert_eq!(http.call("echo", &[], "x").status, 200);
}

#[test]
fn a_flood_of_guesses_keeps_nobody_out_that_has_the_token() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-connections", "8"]);
    let (is_over, guessed) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let mut connection = http.connect();
                    let request = connection.head("GET", "/v1/status", &[WRONG]);
                    // It may have to give way at any time.
                    let _ = connection.try_write(request.as_bytes());
                    if let Some((status, _)) = connection.head_of_answer() {
                        assert!(status == 401 || status == 503, "{status}");
                    }
                    guessed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        until("there are more guesses than a second has room for", || {
            (guessed.load(Ordering::Relaxed) > 150).then_some(())
        });
        for _ in 0..20 {
            until("the right token is taken", || {
                let mut connection = http.connect();
                let request = connection.head("GET", "/v1/status", &[]);
                connection.try_write(request.as_bytes()).ok()?;
                (connection.head_of_answer()?.0 == 200).then_some(())
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// When an answer to one of so many wrong tokens came late, if one did. `told` counts the answers.
fn late_answer(http: &HttpDaemon, count: usize, told: &AtomicUsize) -> Option<Instant> {
    let mut connection = http.connect();
    let mut late = None;
    for _ in 0..count {
        let asked = Instant::now();
        connection.send("GET", "/v1/status", &[WRONG], b"");
        assert_eq!(connection.answer().expect("an answer").problem().0, 401);
        told.fetch_add(1, Ordering::Relaxed);
        late = late.or((asked.elapsed() >= Duration::from_millis(900)).then(Instant::now));
    }
    late
}

/// A second has room for 100 of them, from all connections together. No connection shows so many that it ends.
#[test]
fn of_many_wrong_tokens_some_are_answered_late_and_the_right_one_is_not_kept_waiting() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut honest = http.connect();
    until("wrong tokens are answered late, and the right one before them", || {
        let told = AtomicUsize::new(0);
        let (told, http) = (&told, &http);
        std::thread::scope(|scope| {
            let guesses: Vec<_> = (0..40).map(|_| scope.spawn(|| late_answer(http, 4, told))).collect();
            until("there is no more room in this second", || {
                (told.load(Ordering::Relaxed) >= 100).then_some(())
            });
            honest.send("GET", "/v1/status", &[], b"");
            assert_eq!(honest.answer().expect("an answer").status, 200);
            let answered = Instant::now();
            let late = guesses.into_iter().filter_map(|guess| guess.join().expect("a client"));
            late.min().filter(|late| answered < *late).map(drop)
        })
    });
}
