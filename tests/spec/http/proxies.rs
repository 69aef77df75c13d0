//! Clients behind proxies.

use serde_json::Value;
use tests::http::HttpDaemon;

/// The clients of the last jobs, the newest first.
fn clients(http: &HttpDaemon) -> Vec<String> {
    let jobs = http.daemon.run(&["jobs", "--json"]).ok().json();
    let name = |job: &Value| job["client"].as_str().expect("a name").to_owned();
    jobs.as_array().expect("a list").iter().map(name).collect()
}

#[test]
fn a_trusted_proxy_names_the_client_and_a_client_cannot_name_itself() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-trusted-proxy", "127.0.0.1,10.0.0.0/8"]);
    for (fields, client) in [
        (&[("X-Forwarded-For", "203.0.113.9")][..], "203.0.113.9"),
        (&[("X-Forwarded-For", "1.1.1.1, 203.0.113.8, 10.7.7.7")], "203.0.113.8"),
        (
            &[("Forwarded", "for=1.1.1.1"), ("Forwarded", "for=\"[2001:db8::7]:80\";proto=https")],
            "2001:db8::7",
        ),
        (&[("X-Forwarded-For", "203.0.113.9"), ("Forwarded", "for=203.0.113.8")], "127.0.0.1"),
        (&[("X-Forwarded-For", "not an address")], "127.0.0.1"),
        (&[("Forwarded", "for=_hidden")], "127.0.0.1"),
        (&[("X-Forwarded-For", "203.0.113.9"), ("Offload-Client", "team")], "team"),
        (&[], "127.0.0.1"),
    ] {
        assert_eq!(http.call("echo", fields, "x").status, 200);
        assert_eq!(clients(&http)[0], client, "{fields:?}");
    }
}

#[test]
fn who_is_no_trusted_proxy_speaks_for_itself_alone() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-trusted-proxy", "10.0.0.0/8"]);
    let fields = [("X-Forwarded-For", "203.0.113.9"), ("Forwarded", "for=203.0.113.9")];
    assert_eq!(http.call("echo", &fields, "x").status, 200);
    assert_eq!(clients(&http), ["127.0.0.1"]);
    for wrong in ["10.0.0.1/8", "proxy.example", "10.0.0.0/40"] {
        let refused =
            tests::harness::run_offload(&["serve", "--http", "127.0.0.1:0", "--http-trusted-proxy", wrong]);
        assert!(refused.code == 2 && refused.stderr.contains("10.0.0.0/8"), "{refused:?}");
    }
}

#[test]
fn a_greedy_client_behind_a_proxy_fills_its_own_share_and_not_that_of_the_others_there() {
    let http = HttpDaemon::start(&[
        "--workers",
        "1",
        "--max-jobs-per-client",
        "3",
        "--http-trusted-proxy",
        "127.0.0.0/8",
    ]);
    let later = |client: &str, ms: &str| {
        http.call("sleep", &[("X-Forwarded-For", client), ("Prefer", "respond-async")], ms).status
    };
    let greedy: Vec<u16> = (0..8).map(|_| later("203.0.113.1", "600000")).collect();
    assert!(greedy.contains(&429) && greedy.iter().all(|status| [202, 429].contains(status)), "{greedy:?}");
    for number in 2..6 {
        assert_eq!(later(&format!("203.0.113.{number}"), "600000"), 202, "client {number}");
    }
    assert_eq!(later("203.0.113.1", "600000"), 429);
    assert_eq!(http.daemon.status()["ledger"]["balanced"], true);
}
