//! Somebody guesses tokens, beside clients of the same address that show the right one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
