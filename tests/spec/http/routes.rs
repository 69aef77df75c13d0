//! Routes that are written in the configuration.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tempfile::TempDir;
use tests::harness::{Daemon, private_folder, run_offload, until};
use tests::http::{Answer, HttpDaemon};

const ROUTES: &str = r#"
[[route]]
method = "POST"
path = "/albums/{album}/hash"
task = "sha256"
query = ["size", "fit"]
max_body = 8
accepts = ["image/*", "text/plain"]
headers = { Cache-Control = "max-age=60", Content-Type = "text/x-hash" }

[[route]]
method = "PUT"
path = "/open/{what}"
task = "echo"
auth = "none"

[[route]]
method = "POST"
path = "/later"
task = "sleep"
mode = "async"

[[route]]
method = "POST"
path = "/brief"
task = "spin"
timeout = "50ms"
priority = 3
"#;

/// A supervisor with this configuration, and the file.
fn configured(text: &str) -> (HttpDaemon, PathBuf, TempDir) {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().expect("a path of ours");
    let http = HttpDaemon::start(&["--config", path, "--workers", "1", "--allow-faults"]);
    (http, file, folder)
}

fn status_and_text(answer: &Answer) -> (u16, String) {
    (answer.status, answer.text())
}

#[test]
fn a_route_runs_its_task_and_its_parameters_become_metadata() {
    let (http, _file, _folder) = configured(ROUTES);
    let jpeg = [("Content-Type", "image/jpeg"), ("Offload-Meta-Tenant", "blue")];
    let answer = http.ask("POST", "/albums/summer%202026/hash", &jpeg, b"abc");
    assert!(answer.status == 200 && answer.text().starts_with("ba7816bf"), "{answer:?}");
    assert_eq!(answer.field("cache-control"), Some("max-age=60"));
    assert_eq!(answer.field("content-type"), Some("text/x-hash"));
    let job = answer.field("offload-job").expect("its id");
    assert_eq!(http.daemon.run(&["explain", job, "--json"]).ok().json()["task"], "sha256");
    let detached = [jpeg[0], jpeg[1], ("Prefer", "respond-async")];
    let later = http.ask("POST", "/albums/summer%202026/hash", &detached, b"abc");
    let job = later.field("offload-job").expect("its id");
    let told = http.daemon.run(&["wait", job, "--json"]).ok().json();
    assert_eq!(
        (&told["metadata"]["album"], &told["metadata"]["tenant"]),
        (&"summer 2026".into(), &"blue".into())
    );
    let twice = [("Content-Type", "image/jpeg"), ("Offload-Meta-Album", "winter")];
    let answer = http.ask("POST", "/albums/summer/hash", &twice, b"abc");
    assert_eq!(answer.problem(), (400, "bad_request".to_owned()), "nobody says what the path says");
    let long = format!("/albums/{}/hash", "x".repeat(257));
    assert_eq!(http.ask("POST", &long, &jpeg, b"abc").problem().0, 400);
}

#[test]
fn of_the_fields_of_a_route_all_are_sent_that_have_one_name() {
    let fields = ["Cache-Control: max-age=60", "Link: </a>", "link: </b>"];
    let fields = fields.map(|field| format!(" 'headers={field}'")).concat();
    let http = HttpDaemon::start(&["--workers", "1", "--http-route", &format!("POST /linked echo{fields}")]);
    let answer = http.ask("POST", "/linked", &[], b"x");
    let all = |name: &str| {
        let fields = answer.fields.iter().filter(|(known, _)| known == name);
        fields.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
    };
    assert_eq!((all("link"), all("cache-control")), (vec!["</a>", "</b>"], vec!["max-age=60"]));
}

#[test]
fn the_parameters_of_the_query_that_a_route_names_become_metadata_and_others_are_ignored() {
    let (http, _file, _folder) = configured(ROUTES);
    let detached = [("Content-Type", "image/jpeg"), ("Prefer", "respond-async")];
    let metadata_of = |query: &str| {
        let answer = http.ask("POST", &format!("/albums/a/hash?{query}"), &detached, b"abc");
        assert_eq!(answer.status, 202, "{query}: {answer:?}");
        let job = answer.field("offload-job").expect("its id");
        http.daemon.run(&["wait", job, "--json"]).ok().json()["metadata"].clone()
    };
    let expected = serde_json::json!({"album": "a", "size": "64 x 48", "fit": ""});
    assert_eq!(metadata_of("utm=1&size=64+x%2048&size=2&fit&traceparent=x"), expected);
    let long = "x".repeat(300);
    assert_eq!(metadata_of(&format!("other={long}")), serde_json::json!({"album": "a"}));
    for refused in [format!("size={long}"), "size=%0a".to_owned()] {
        let answer = http.ask("POST", &format!("/albums/a/hash?{refused}"), &detached, b"abc");
        assert_eq!(answer.problem(), (400, "bad_request".to_owned()), "{refused}");
    }
}

#[test]
fn what_a_route_does_not_take_is_refused_before_anything_runs() {
    let (http, _file, _folder) = configured(ROUTES);
    let refused = http.ask("POST", "/albums/a/hash", &[("Content-Type", "video/mp4")], b"abc");
    assert_eq!(refused.problem(), (415, "unsupported".to_owned()));
    assert_eq!(refused.field("accept"), Some("image/*, text/plain"));
    assert_eq!(
        refused.field("cache-control"),
        Some("no-store"),
        "the fields of a route are for what it returns"
    );
    let text = [("Content-Type", "text/plain")];
    assert_eq!(
        http.ask("POST", "/albums/a/hash", &text, b"123456789").problem(),
        (413, "too_large".to_owned())
    );
    let mut chunked = http.connect();
    let head = chunked.head("POST", "/albums/a/hash", &[text[0], ("Transfer-Encoding", "chunked")]);
    chunked.write(format!("{head}5\r\n12345\r\n4\r\n6789\r\n0\r\n\r\n").as_bytes());
    assert_eq!(chunked.answer().expect("an answer").problem().0, 413);
    let wrong = http.ask("GET", "/albums/a/hash", &[], b"");
    assert_eq!((wrong.problem().0, wrong.field("allow")), (405, Some("POST, OPTIONS")));
    assert_eq!(http.ask("POST", "/albums/hash", &text, b"x").problem().0, 404);
    assert_eq!(http.ask("POST", "/albums/a/hash", &[("Authorization", "")], b"x").problem().0, 401);
    let status = http.daemon.status();
    assert_eq!((&status["jobs"]["accepted"], &status["ledger"]["balanced"]), (&0.into(), &true.into()));
}

#[test]
fn a_route_without_auth_is_open_and_nothing_else_is() {
    let (http, _file, _folder) = configured(ROUTES);
    let nobody = ("Authorization", "");
    let posing =
        [nobody, ("Offload-Client", "boss"), ("Offload-Priority", "10"), ("Prefer", "respond-async")];
    let answer = http.ask("PUT", "/open/echo", &posing, b"hello");
    assert_eq!(status_and_text(&answer), (200, "hello".to_owned()), "its preference does not count");
    let job = answer.field("offload-job").expect("its id");
    let jobs = http.daemon.run(&["jobs", "--json"]).ok().json();
    assert_eq!((&jobs[0]["job"], &jobs[0]["client"]), (&job.into(), &"anonymous 127.0.0.1".into()), "{jobs}");
    for (method, path) in
        [("POST", "/open/echo"), ("GET", "/v1/status"), ("PUT", "/v1/tasks/echo"), ("PUT", "/open")]
    {
        assert_eq!(http.ask(method, path, &[nobody], b"").problem().0, 401, "{method} {path}");
    }
    let page = [nobody, ("Origin", "http://evil.example")];
    assert_eq!(http.ask("PUT", "/open/echo", &page, b"x").problem().0, 403, "pages are still kept out");
}

/// Whether the client waits, or the job goes on without it, or it is answered in parts.
#[test]
fn all_requests_of_an_address_without_a_token_are_of_one_client() {
    let route = |path: &str, more: &str| {
        format!("[[route]]\nmethod = \"POST\"\npath = \"{path}\"\ntask = \"echo\"\nauth = \"none\"\n{more}\n")
    };
    let routes = route("/waits", "")
        + &route("/async", "mode = \"async\"")
        + &route("/on", "cancel_on_disconnect = false");
    let (http, _file, _folder) = configured(&routes);
    let nobody = ("Authorization", "");
    let events = [nobody, ("Accept", "text/event-stream")];
    for (path, fields) in
        [("/waits", &events[..1]), ("/async", &events[..1]), ("/on", &events[..1]), ("/waits", &events)]
    {
        assert!(http.ask("POST", path, fields, b"x").status < 300, "{path} {fields:?}");
    }
    let listed = || http.ask("GET", "/v1/jobs", &[], b"").json()["rows"].as_array().cloned().expect("jobs");
    let jobs = until("all are there", || Some(listed()).filter(|jobs| jobs.len() == 4));
    assert!(jobs.iter().all(|job| job["client"] == "anonymous 127.0.0.1"), "{jobs:?}");
}

/// Otherwise somebody without a token would be answered there, in the place of the supervisor.
#[test]
fn a_route_that_begins_with_a_name_does_not_take_over_the_supervisors_own_paths() {
    let route = "[[route]]\npath = '/{tenant}/{thing}'\ntask = 'sha256'\nauth = 'none'\nmethod = ";
    let one = "[[route]]\npath = '/{tenant}'\ntask = 'sha256'\nmethod = 'POST'\n";
    let (http, _file, _folder) = configured(&format!("{route}'POST'\n{route}'GET'\n{one}"));
    let anonymous = |method: &str, path: &str| http.ask(method, path, &[("Authorization", "")], b"x").status;
    for path in ["/v1/status", "/v1/jobs", "/v1/nope", "/%76%31/nope", "/healthz/x", "/metrics/x", "/v1"] {
        assert_eq!(anonymous("POST", path), 401, "{path}");
        assert!(http.ask("POST", path, &[], b"x").status >= 404, "{path}");
        assert_eq!(anonymous("GET", path), 401, "{path}");
    }
    // Nobody has to show a token here, so nobody may find a route that needs one.
    for path in ["/healthz", "/readyz", "/%68ealthz"] {
        assert_eq!(anonymous("POST", path), 405, "{path}");
    }
    assert_eq!((anonymous("POST", "/v2/status"), anonymous("GET", "/v2/status")), (200, 200));
    assert_eq!((anonymous("POST", "/v2"), http.ask("POST", "/v2", &[], b"x").status), (401, 200));
}

#[test]
fn the_mode_and_the_time_limit_are_the_routes() {
    let (http, _file, _folder) = configured(ROUTES);
    let accepted = http.ask("POST", "/later", &[], b"1");
    let place = accepted.field("location").expect("where it is").to_owned();
    assert_eq!(accepted.status, 202);
    assert_eq!(http.ask("GET", &format!("{place}?wait=60"), &[], b"").json()["state"], "ok");
    let ten_hours = [("Offload-Timeout", "10h"), ("Offload-Priority", "-3"), ("Offload-Attempts", "1")];
    let late = http.ask("POST", "/brief", &ten_hours, b"3600000");
    assert_eq!(late.problem(), (504, "timeout".to_owned()), "{}", late.text());
}

#[test]
fn a_reload_exchanges_the_table_or_keeps_it_and_says_why() {
    let (http, file, _folder) = configured(ROUTES);
    let open = |path: &str| http.ask("PUT", path, &[], b"x").status;
    assert_eq!((open("/open/a"), open("/other/a")), (200, 404));
    // A token that would be exchanged, too, if the rest were right.
    let token_file = http.daemon.folder().join("http.token");
    std::fs::write(&token_file, "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::write(&file, ROUTES.replace("/open/{what}", "/other/{WHAT}")).unwrap();
    let refused = http.daemon.run(&["reload"]);
    assert!(refused.code != 0 && refused.stderr.contains("offload.toml:13: route.path"), "{refused:?}");
    assert_eq!((open("/open/a"), open("/other/a")), (200, 404), "nothing has changed");
    std::fs::write(&token_file, &http.token).unwrap();
    std::fs::write(&file, ROUTES.replace("/open/", "/other/")).unwrap();
    http.daemon.run(&["reload"]).ok();
    assert_eq!((open("/open/a"), open("/other/a")), (404, 200));
    std::fs::write(&file, "").unwrap();
    http.daemon.signal(rustix::process::Signal::HUP);
    until("the table is empty", || (open("/other/a") == 404).then_some(()));
}

#[test]
fn wrong_tables_are_refused_at_the_start_and_by_the_check_with_their_place() {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    std::fs::write(
        &file,
        format!("{ROUTES}\n[[route]]\nmethod = 'PUT'\npath = '/open/{{x}}'\ntask = 'echo'\n"),
    )
    .unwrap();
    let path = file.to_str().expect("a path of ours");
    for arguments in [&["config", "check", path][..], &["--config", path, "serve", "--http", "127.0.0.1:0"]] {
        let refused = run_offload(arguments);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains("offload.toml:32: route.path: a route before it"), "{refused:?}");
    }
    let flag = run_offload(&["serve", "--http", "127.0.0.1:0", "--http-route", "POST /v1/x echo"]);
    assert!(flag.code == 2 && flag.stderr.contains("--http-route"), "{flag:?}");
    std::fs::write(&file, ROUTES).unwrap();
    assert!(run_offload(&["config", "check", path]).ok().text().contains("sets 1 key"));
}

/// Such a limit would not be the one in effect. `run` has no routes: the file may be that of a supervisor with a larger limit.
#[test]
fn a_route_with_a_longer_body_than_any_input_is_refused_where_routes_are_served() {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    let route =
        |most: &str| format!("[[route]]\nmethod = 'POST'\npath = '/b'\ntask = 'echo'\nmax_body = '{most}'\n");
    let path = file.to_str().expect("a path of ours");
    let write = |text: String| std::fs::write(&file, text).expect("the file is written");
    write(format!("{}[supervisor]\nmax_payload = '1MiB'\n", route("2MiB")));
    let serve = ["--config", path, "serve", "--http", "127.0.0.1:0"];
    for arguments in [&["config", "check", path][..], &["--config", path, "config", "show"], &serve] {
        let refused = run_offload(arguments);
        let why = "offload.toml:1: route: max_body of route 1, POST /b: 2MiB is over max_payload, 1MiB";
        assert!(refused.code == 2 && refused.stderr.contains(why), "{refused:?}");
    }
    write(format!("{}[supervisor]\nmax_payload = '1MiB'\n", route("1MiB")));
    run_offload(&["config", "check", path]).ok();
    let small = ["--config", path, "run", "--max-payload", "1KiB", "echo", "x"];
    assert_eq!(run_offload(&small).ok().text(), "x\n");
}

/// What `serve` would not start with, with the place.
#[test]
fn the_check_finds_what_is_wrong_with_the_interface() {
    let folder = private_folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let file = path("offload.toml");
    std::fs::write(path("token"), "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(path("token"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let home = "page = true\n[[route]]\nmethod = 'GET'\npath = '/'\ntask = 'echo'";
    for (line, text, reason) in [
        (3, home.to_owned(), "while http.page is on"),
        (2, "listen = ['127.0.0.1:7000', '127.0.0.1:7000']".to_owned(), "127.0.0.1:7000 is there twice"),
        (2, format!("listen = ['unix:{}']", path(&"x".repeat(120))), "too long"),
        (2, format!("token_file = '{}'", path("token")), "chmod 600"),
        (2, format!("access_log = '{}'", path("")), "Is a directory"),
        (2, format!("access_log = '{}'", path("none/log")), "is not there"),
        (2, "cors = ['HTTPS://a.example']".to_owned(), "no origin"),
        (2, "cors = ['https://a.example:443']".to_owned(), "no origin"),
        (2, "cors = ['https://*.example']".to_owned(), "no origin"),
    ] {
        std::fs::write(&file, format!("[http]\n{text}\n")).unwrap();
        let refused = run_offload(&["config", "check", &file]);
        assert_eq!(refused.code, 2, "{text}: {refused:?}");
        let place = format!("offload.toml:{line}: ");
        assert!(refused.stderr.contains(&place) && refused.stderr.contains(reason), "{text}: {refused:?}");
    }
    for text in ["listen = ['127.0.0.1:0', '127.0.0.1:0']", "cors = ['https://a.example:8443', '*']", ""] {
        std::fs::write(&file, format!("[http]\n{text}\n")).unwrap();
        run_offload(&["config", "check", &file]).ok();
    }
}

#[test]
fn routes_are_told_by_flags_too_and_busy_clients_of_several_do_not_meet() {
    let routes = ["--http-route", "POST /a/{n} echo", "--http-route", "GET /b sha256 auth=none"];
    let http =
        HttpDaemon::of(Daemon::start(&[&["--workers", "2", "--http", "127.0.0.1:0"], &routes[..]].concat()));
    let mut connections: Vec<_> = (0..8).map(|_| http.connect()).collect();
    for round in 0..5 {
        for (number, connection) in connections.iter_mut().enumerate() {
            match number % 2 {
                0 => connection.send(
                    "POST",
                    &format!("/a/{number}"),
                    &[],
                    format!("{round}-{number}").as_bytes(),
                ),
                _ => connection.send("GET", "/b", &[("Authorization", "")], b""),
            }
        }
        for (number, connection) in connections.iter_mut().enumerate() {
            let answer = connection.answer().expect("an answer");
            match number % 2 {
                0 => assert_eq!(status_and_text(&answer), (200, format!("{round}-{number}"))),
                _ => assert!(answer.status == 200 && answer.text().starts_with("e3b0c442"), "{answer:?}"),
            }
        }
    }
}

#[test]
fn a_stream_through_a_route_is_what_its_task_says_that_it_is() {
    let (http, _file, _folder) =
        configured("[[route]]\nmethod = \"POST\"\npath = \"/numbers\"\ntask = \"count\"\n");
    let answer = http.ask("POST", "/numbers", &[("Offload-Stream", "true")], br#"{"to":3,"every_ms":1}"#);
    assert_eq!(
        (answer.text().as_str(), answer.field("content-type")),
        ("1\n2\n3\n", Some("text/plain; charset=utf-8"))
    );
}

/// Programs that append each input to a file, in the order in which they run. The first waits for somebody at its gate.
const IN_ORDER: &str = r#"
import json, os
folder = os.path.dirname(__file__)
jobs, answers = open(3), open(4, 'w', buffering=1)
answers.write('{"hello": {"tasks": [{"name": "note"}]}}\n')
for line in jobs:
    job = json.loads(line)
    if job['input'] == 'gate':
        open(folder + '/gate').readline()
    with open(folder + '/order', 'a') as order:
        order.write(job['input'] + ' ')
    answers.write(json.dumps({'job': job['job'], 'output': None}) + '\n')
"#;

#[test]
fn jobs_of_a_route_with_a_higher_priority_overtake_those_that_wait() {
    let folder = private_folder();
    let place = |name: &str| folder.path().join(name);
    let route = |name: &str, priority: &str| {
        format!("[[route]]\nmethod = 'POST'\npath = '/{name}'\ntask = 'note'\nmode = 'async'\n{priority}\n")
    };
    let routes = [("low", "priority = -3"), ("plain", ""), ("high", "priority = 7")];
    let text: String = routes.iter().map(|(name, priority)| route(name, priority)).collect();
    std::fs::write(place("offload.toml"), text).unwrap();
    std::fs::write(place("program.py"), IN_ORDER).unwrap();
    mknodat(CWD, place("gate"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("our own folder");
    // Open at both ends, so that nobody waits for the other end.
    let mut gate = File::options().read(true).write(true).open(place("gate")).expect("our own");
    let (configuration, program) =
        (place("offload.toml").display().to_string(), format!("python3 {}", place("program.py").display()));
    let http = HttpDaemon::start(&["--config", &configuration, "--workers", "1", "--worker-jsonl", &program]);
    let submit = |path: &str, note: &str| {
        let fields = [("Content-Type", "application/json"), ("Offload-Priority", "0")];
        let answer = http.ask("POST", path, &fields, format!("\"{note}\"").as_bytes());
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.field("location").expect("where it is").to_owned()
    };
    submit("/plain", "gate");
    http.daemon.worker_running("note");
    let notes = [
        ("/low", "low1"),
        ("/plain", "plain1"),
        ("/high", "high1"),
        ("/low", "low2"),
        ("/plain", "plain2"),
        ("/high", "high2"),
    ];
    let places: Vec<String> = notes.iter().map(|(path, note)| submit(path, note)).collect();
    assert_eq!(http.daemon.status()["jobs"]["queued"], notes.len());
    gate.write_all(b"\n").expect("a pipe takes a line");
    for place in places {
        let job = http.ask("GET", &format!("{place}?wait=60"), &[], b"").json();
        assert_eq!(job["state"], "ok", "{job}");
    }
    let order = std::fs::read_to_string(place("order")).expect("the program has written it");
    assert_eq!(order.trim(), "gate high1 high2 plain1 plain2 low1 low2");
}
