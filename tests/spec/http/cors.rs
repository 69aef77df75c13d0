//! Pages of other sites that are let in.

use tests::http::{Answer, HttpDaemon};

const PAGE: &str = "https://app.example";

fn preflight(http: &HttpDaemon, origin: &str, method: &str, path: &str) -> Answer {
    let fields = [
        ("Authorization", ""),
        ("Origin", origin),
        ("Sec-Fetch-Site", "cross-site"),
        ("Access-Control-Request-Method", method),
        ("Access-Control-Request-Headers", "authorization,offload-timeout,x-evil,content-type"),
    ];
    http.ask("OPTIONS", path, &fields, b"")
}

fn allowed(answer: &Answer) -> Option<&str> {
    answer.field("access-control-allow-origin")
}

#[test]
fn a_page_of_the_list_asks_first_and_then_reads_its_answer() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-cors", PAGE]);
    let asked = preflight(&http, PAGE, "POST", "/v1/tasks/echo");
    assert_eq!((asked.status, allowed(&asked)), (204, Some(PAGE)), "{asked:?}");
    assert_eq!(asked.field("access-control-allow-methods"), Some("POST"));
    assert_eq!(
        asked.field("access-control-allow-headers"),
        Some("authorization, offload-timeout, content-type")
    );
    assert!(asked.field("vary").is_some_and(|vary| vary.starts_with("Origin")), "{asked:?}");
    let page = [("Origin", PAGE), ("Sec-Fetch-Site", "cross-site")];
    let answer = http.call("echo", &page, "hello");
    assert_eq!((answer.status, allowed(&answer), answer.field("vary")), (200, Some(PAGE), Some("Origin")));
    assert!(answer.field("access-control-expose-headers").is_some_and(|names| names.contains("offload-job")));
    assert_eq!(answer.field("access-control-allow-credentials"), None);
    let wrong = http.call("echo", &[page[0], page[1], ("Authorization", "Bearer wrong")], "x");
    assert_eq!((wrong.status, allowed(&wrong)), (401, Some(PAGE)), "the page can read why");
    assert_eq!(
        http.call("echo", &[], "x").field("vary"),
        Some("Origin"),
        "whatever keeps answers has to know"
    );
}

#[test]
fn other_pages_get_nothing_and_a_question_runs_nothing() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-cors", PAGE]);
    for origin in ["https://evil.example", "null", "http://app.example", "https://app.example:444", "*"] {
        let asked = preflight(&http, origin, "POST", "/v1/tasks/echo");
        assert_eq!((asked.status, allowed(&asked)), (403, None), "{origin}");
        assert_eq!(asked.field("access-control-allow-methods"), None);
        let answer = http.call("echo", &[("Origin", origin)], "x");
        assert_eq!((answer.status, allowed(&answer)), (403, None), "{origin}");
    }
    assert_eq!(preflight(&http, PAGE, "PUT", "/v1/tasks/echo").field("access-control-allow-methods"), None);
    assert_eq!(preflight(&http, PAGE, "POST", "/nowhere").status, 404);
    assert_eq!(http.daemon.status()["jobs"]["accepted"], 0);
}

#[test]
fn any_page_may_use_a_route_without_auth_if_the_owner_says_so() {
    let routes = ["--http-route", "POST /open echo auth=none", "--http-route", "POST /closed echo"];
    let with =
        |cors: &str| HttpDaemon::start(&[&["--workers", "1", "--http-cors", cors], &routes[..]].concat());
    let any = with("*");
    let stranger = "https://stranger.example";
    let page = [("Origin", stranger), ("Authorization", "")];
    let asked = preflight(&any, stranger, "POST", "/open");
    assert_eq!((asked.status, allowed(&asked)), (204, Some(stranger)), "{asked:?}");
    let answer = any.ask("POST", "/open", &page, b"hello");
    assert_eq!((answer.status, allowed(&answer), answer.text().as_str()), (200, Some(stranger), "hello"));
    for path in ["/closed", "/v1/tasks/echo"] {
        assert_eq!(preflight(&any, stranger, "POST", path).status, 403, "{path}");
        let knows_the_token = any.ask("POST", path, &[("Origin", stranger)], b"x");
        assert_eq!((knows_the_token.status, allowed(&knows_the_token)), (403, None), "{path}");
    }
    let listed = with(PAGE);
    assert_eq!(preflight(&listed, stranger, "POST", "/open").status, 403);
    assert_eq!(preflight(&listed, PAGE, "POST", "/open").status, 204);
}
