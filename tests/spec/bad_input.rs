//! Errors in commands, inputs and configurations: the message says what is wrong, why, and what to type next.

use offload_supervisor::protocol::limits::PAYLOAD_MAX_DEFAULT;
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use tests::harness::{Daemon, PATIENCE, command, private_folder, program, run, run_offload};

#[test]
fn an_unknown_task_is_refused_with_the_known_ones_the_nearest_first() {
    let daemon = Daemon::start(&["--workers", "1"]);
    for ran in [daemon.run(&["submit", "prime", "10"]), run_offload(&["run", "prime", "10"])] {
        assert_eq!(ran.code, 4, "{ran:?}");
        let list = ran.stderr.split("there are: ").nth(1).expect(&ran.stderr);
        assert!(list.starts_with("primes,"), "{}", ran.stderr);
    }
}

#[test]
fn malformed_json_is_the_jobs_error_and_says_where() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let ran = daemon.run(&["submit", "json", "{\"a\": \n 1,, }"]).code(1);
    assert!(ran.stderr.contains("app_error") && ran.stderr.contains("line 2"), "{}", ran.stderr);
}

#[test]
fn a_payload_over_the_limit_is_refused_and_the_limit_is_said() {
    let daemon = Daemon::start(&["--workers", "1"]);
    for length in [PAYLOAD_MAX_DEFAULT + 1, 2 * PAYLOAD_MAX_DEFAULT] {
        let file = daemon.folder().join("big");
        std::fs::File::create(&file).unwrap().set_len(length as u64).unwrap();
        let ran = daemon.run(&["submit", "echo", &format!("@{}", file.display())]).code(4);
        assert!(ran.stderr.contains("too_large") && ran.stderr.contains("67108864"), "{}", ran.stderr);
    }
    let small = Daemon::start(&["--workers", "1", "--max-payload", "1KiB"]);
    let ran = run(&mut small.command(&["submit", "echo", "-"]), &[b'x'; 1025]).code(4);
    assert!(ran.stderr.contains("too_large") && ran.stderr.contains("1024"), "{}", ran.stderr);
    assert_eq!(run(&mut small.command(&["submit", "echo", "-"]), &[b'x'; 1024]).ok().stdout.len(), 1025);
}

#[test]
fn a_list_of_files_with_a_pipe_in_it_has_one_failure_and_goes_on() {
    let folder = private_folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("file"), "x").unwrap();
    run(std::process::Command::new("mkfifo").arg(path("pipe")), b"").ok();
    let list = format!("{0}\n{1}\n{0}\n", path("file"), path("pipe"));
    let ran = run(&mut command(&["map", "echo", "--files"]), list.as_bytes()).code(1);
    let outcomes: Vec<_> = ran.json_lines().iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["ok", "io_error", "ok"]);
    let failure = ran.json_lines()[1]["error"]["message"].as_str().unwrap().to_owned();
    assert!(failure.ends_with("pipe: it is no regular file"), "{failure}");
}

/// No input is not an empty one.
#[test]
fn a_closed_standard_input_cannot_be_read() {
    let daemon = Daemon::start(&["--workers", "1"]);
    for words in ["run echo -", "map echo", "submit echo -"] {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" {words} <&-")]).arg(tests::harness::offload());
        match words.starts_with("submit") {
            true => shell.env("OFFLOAD_SOCKET", &daemon.socket),
            false => shell.env_remove("OFFLOAD_SOCKET"),
        };
        let ran = run(&mut shell, b"").code(2);
        assert!(ran.stderr.contains("cannot read standard input: it is closed"), "{words}: {}", ran.stderr);
    }
}

#[test]
fn a_name_that_no_supervisor_takes_is_a_usage_error() {
    let daemon = Daemon::start(&["--workers", "1"]);
    for words in [["submit", "--client", "a\nb", "echo"], ["map", "--client", "a\nb", "echo"]] {
        let ran = daemon.run(&words).code(2);
        assert!(ran.stderr.contains("a name has no control characters"), "{}", ran.stderr);
    }
}

#[test]
fn with_json_a_command_line_that_makes_no_sense_is_answered_by_a_document_too() {
    for words in [
        &["--json", "run"][..],
        &["run", "--json", "echo", "--no-such-flag"],
        &["submit", "--json", "--priority", "99", "echo"],
        &["frobnicate", "--json"],
    ] {
        let ran = run_offload(words).code(2);
        let error = ran.json()["error"].clone();
        assert_eq!((&error["code"], &error["exit_code"]), (&"usage".into(), &2.into()), "{words:?}");
        assert!(!error["message"].as_str().unwrap().contains('\n') && ran.stderr.starts_with("error: "));
    }
    assert_eq!(run_offload(&["run"]).code(2).text(), "");
}

#[test]
fn an_empty_name_of_a_configuration_says_what_to_do_about_it() {
    let ran = run(command(&["config", "show"]).env("OFFLOAD_CONFIG", ""), b"").code(2);
    assert!(ran.stderr.contains("unset OFFLOAD_CONFIG"), "{}", ran.stderr);
}

#[test]
fn the_help_names_the_default_place_of_the_socket() {
    let help = run_offload(&["--help"]).ok().text();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let places = [
        "$XDG_RUNTIME_DIR/offload/offload.sock",
        "/run/user/UID/offload/offload.sock",
        "$HOME/.offload/offload.sock",
    ];
    let found: Vec<_> = places.iter().map(|place| help.find(place)).collect();
    assert!(found.iter().all(Option::is_some) && found.is_sorted(), "{found:?} {help}");
}

#[test]
fn a_full_queue_refuses_at_once() {
    let daemon = Daemon::start(&["--workers", "1", "--max-jobs", "2"]);
    daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok();
    daemon.worker_running("sleep");
    for _ in 0..2 {
        daemon.run(&["submit", "--detach", "echo", "x"]).ok();
    }
    let ran = daemon.run(&["submit", "echo", "x"]).code(4);
    assert!(ran.stderr.contains("overloaded: the queue is full"), "{}", ran.stderr);
    assert_eq!(daemon.status()["jobs"]["rejected"], 1);
}

/// The name of a socket without a file would be one that every user of the machine can take.
#[test]
fn an_empty_path_of_the_socket_is_a_usage_error_wherever_it_comes_from() {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    for path in ["", "\\u0000abstract"] {
        std::fs::write(&file, format!("[supervisor]\nsocket = \"{path}\"\n")).unwrap();
        for verb in [&["serve"][..], &["status"], &["submit", "echo", "x"], &["stop"]] {
            let words = [&["--config", file.to_str().unwrap()], verb].concat();
            let ran = run_offload(&words).code(2);
            assert!(ran.stderr.contains("the path of the socket"), "{}", ran.stderr);
        }
    }
    for verb in [&["serve"][..], &["status"], &["submit", "echo", "x"], &["map", "echo"], &["stop"]] {
        run_offload(&[&["--socket", ""], verb].concat()).code(2);
        let ran = run(command(verb).env("OFFLOAD_SOCKET", ""), b"").code(2);
        assert!(ran.stderr.contains("OFFLOAD_SOCKET: the path of the socket is empty"), "{}", ran.stderr);
    }
}

#[test]
fn without_a_supervisor_the_message_says_how_to_start_one() {
    let folder = private_folder();
    let socket = folder.path().join("none.sock");
    let socket = socket.to_str().unwrap();
    for verb in [&["status"][..], &["submit", "echo", "x"], &["jobs"], &["drain"], &["stop"]] {
        let mut words = vec!["--socket", socket];
        words.extend(verb);
        let ran = run_offload(&words).code(3);
        assert!(ran.stderr.contains(socket) && ran.stderr.contains("offload serve"), "{}", ran.stderr);
        words.push("--json");
        let error = run_offload(&words).code(3).json()["error"].clone();
        assert_eq!((error["code"].as_str(), error["exit_code"].as_u64()), (Some("no_supervisor"), Some(3)));
    }
}

#[test]
fn a_second_supervisor_is_told_who_owns_the_socket_and_the_first_does_not_notice() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let ran = daemon.run(&["serve", "--workers", "1"]).code(75);
    assert!(ran.stderr.contains(&daemon.pid().to_string()), "{}", ran.stderr);
    daemon.run(&["submit", "echo", "x"]).ok();
}

#[test]
fn an_unknown_flag_a_bad_value_or_an_unknown_key_comes_with_the_nearest_good_one() {
    let ran = run_offload(&["serve", "--worker-count", "2"]).code(2);
    assert!(ran.stderr.contains("--worker"), "{}", ran.stderr);
    let ran = run_offload(&["submit", "--timeout", "5 parsecs", "echo"]).code(2);
    assert!(ran.stderr.contains("250ms"), "an example of a duration: {}", ran.stderr);
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    std::fs::write(&file, "[supervisor]\nmax_job = 3\n").unwrap();
    let ran = run_offload(&["config", "check", file.to_str().unwrap()]).code(2);
    assert!(ran.stderr.contains("max_jobs") && ran.stderr.contains('2'), "{}", ran.stderr);
}

#[test]
fn an_input_that_cannot_be_read_has_one_exit_code_whichever_verb_was_to_read_it() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let missing = "/nonexistent/input";
    let at_missing = format!("@{missing}");
    for words in
        [&["run", "echo", &at_missing][..], &["submit", "echo", &at_missing], &["map", "echo", missing]]
    {
        for json in [false, true] {
            let mut words = words.to_vec();
            words.extend(json.then_some("--json"));
            let ran = daemon.run(&words).code(2);
            let said = if json { ran.text() } else { ran.stderr };
            assert!(
                said.contains("io_error") && said.contains("cannot read /nonexistent/input"),
                "{words:?}: {said}"
            );
        }
    }
    daemon.run(&["map", "echo", "/"]).code(2);
    daemon.run(&["config", "check", missing]).code(2);
}

#[test]
fn a_mistake_in_the_configuration_is_told_with_its_place_and_its_key_whoever_makes_it() {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    let path = file.to_str().unwrap();
    for (text, line, reason) in [
        ("[[pool]]\n\nworkers = 0\n", 3, "pool.workers: it must be from 1 to 256, not 0"),
        ("[supervisor]\nsocket = \"\"\n", 2, "supervisor.socket: the path of the socket is empty"),
        (
            "[[pool]]\nname = \"a\"\n[[pool]]\nname = \"a\"\n",
            4,
            "pool.name: \"a\" is the name of a pool before it",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        for verb in [
            &["config", "check", path][..],
            &["config", "show", "--config", path],
            &["run", "--config", path, "echo"],
        ] {
            let ran = run_offload(verb).code(2);
            assert!(ran.stderr.contains(&format!("{path}:{line}: {reason}")), "{verb:?}: {}", ran.stderr);
        }
    }
    for verb in [&["serve"][..], &["run", "echo"], &["config", "show"]] {
        let ran = run(command(verb).env("OFFLOAD_WORKERS", "0"), b"").code(2);
        assert!(ran.stderr.contains("OFFLOAD_WORKERS: it must be from 1 to 256, not 0"), "{}", ran.stderr);
        let ran = run_offload(&[verb, &["--workers=0"]].concat()).code(2);
        let expected = "invalid value '0' for '--workers <N>': it must be from 1 to 256, not 0";
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
}

/// These verbs need the socket only.
#[test]
fn a_mistake_in_another_setting_keeps_nobody_from_the_supervisor_that_runs() {
    let mut daemon = Daemon::start(&["--workers", "1"]);
    let file = daemon.folder().join("bad.toml");
    let socket = daemon.socket.display();
    std::fs::write(&file, format!("[supervisor]\nsocket = \"{socket}\"\nmax_jobs = 0\n[pool]\n")).unwrap();
    let job = daemon.run(&["submit", "--detach", "echo", "x"]).ok().text().trim().to_owned();
    for verb in [
        &["status"][..],
        &["workers"],
        &["jobs"],
        &["tasks"],
        &["explain", &job],
        &["cancel", &job],
        &["wait", &job],
        &["submit", "echo", "x"],
        &["dead", "list"],
    ] {
        for (name, value) in [
            ("OFFLOAD_WORKERS", "many"),
            ("OFFLOAD_MAX_JOBS", ""),
            ("OFFLOAD_CONFIG", "/none"),
            ("OFFLOAD_CONFIG", ""),
        ] {
            run(daemon.command(verb).env(name, value), b"").ok();
        }
        // Where nothing else names the socket, the file does.
        let mut named_by_file = command(verb);
        run(named_by_file.env("OFFLOAD_CONFIG", &file), b"").ok();
        let ran = run(command(verb).env("OFFLOAD_CONFIG", "/none"), b"").code(2);
        assert!(ran.stderr.contains("cannot read /none"), "{}", ran.stderr);
    }
    for verb in [&["run", "echo", "x"][..], &["map", "echo"], &["config", "show"], &["serve"]] {
        run(daemon.command(verb).env("OFFLOAD_SPARES", "many"), b"").code(2);
        run(daemon.command(verb).env("OFFLOAD_CONFIG", "/none"), b"").code(2);
    }
    run(daemon.command(&["drain"]).env("OFFLOAD_WORKERS", "many").env("OFFLOAD_CONFIG", "/none"), b"").ok();
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_client_is_not_given_two_weights_and_an_input_that_is_too_large_says_what_to_raise() {
    let ran = run_offload(&["serve", "--weight", "a=1", "--weight", "a=2"]).code(2);
    assert!(ran.stderr.contains("--weight: \"a\" is given two shares"), "{}", ran.stderr);
    for (flags, setting) in
        [(&["--max-bytes", "1"][..], "(--max-bytes)"), (&["--max-payload", "1"], "(--max-payload)")]
    {
        let ran = run_offload(&[&["run", "echo", "xx"], flags].concat()).code(4);
        assert!(ran.stderr.contains(setting), "{}", ran.stderr);
    }
    let daemon = Daemon::start(&["--workers", "1", "--max-bytes", "1"]);
    let ran = daemon.run(&["submit", "echo", "xx"]).code(4);
    assert!(ran.stderr.contains("max_payload") && ran.stderr.contains("max_bytes"), "{}", ran.stderr);
}

#[test]
fn a_table_with_the_wrong_number_of_brackets_is_told_how_it_is_written() {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    std::fs::write(&file, "[pool]\nworkers = 2\n").unwrap();
    let ran = run_offload(&["--config", file.to_str().unwrap(), "serve"]).code(2);
    assert!(ran.stderr.contains("offload.toml:1: [pool] is written [[pool]]"), "{}", ran.stderr);
}

/// Every path after `--socket` in any help, with a home of its own.
#[test]
fn serve_takes_the_paths_that_the_help_shows_and_says_what_to_do_about_others() {
    let help = |words: &[&str]| run_offload(words).ok().text();
    let main = help(&["--help"]);
    let commands = main.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    let verbs = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let mut shown = vec![main.clone()];
    shown.extend(verbs.filter(|verb| !verb.is_empty()).map(|verb| help(&[verb, "--help"])));
    let text = shown.join("\n");
    let after = text.split("--socket ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    let paths: BTreeSet<&str> = after.filter(|path| path.contains('/')).collect();
    assert!(!paths.is_empty(), "no help shows a path");

    for path in paths {
        let home = private_folder();
        let path = path.replace('~', home.path().to_str().unwrap());
        let mut serve = command(&["serve", "--workers", "1", "--socket", &path]);
        let serve = serve.env("HOME", home.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut serve = serve.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(serve.stdout.take().unwrap()).read_line(&mut line).unwrap();
        serve.kill().unwrap();
        serve.wait().unwrap();
        assert!(line.starts_with("ready"), "{path}: {line}");
    }
    let folder = private_folder();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let ran = run_offload(&["serve", "--socket", folder.path().join("o.sock").to_str().unwrap()]).code(2);
    assert!(ran.stderr.contains("must be 0700") && ran.stderr.contains("--socket ~/"), "{}", ran.stderr);
}

#[test]
fn no_message_names_a_job_by_a_number() {
    let worker = format!("{} boot:nothing", program("faultworker").display());
    let daemon = Daemon::start(&["--workers", "1", "--worker", &worker]);
    let key = |input| daemon.run(&["submit", "--idempotency-key", "bill-17", "charge", input]);
    key("nothing").ok();
    let mut said = key("print").code(4).stderr;
    for act in ["wrongid", "wrongattempt", "started", "skipped"] {
        said += &daemon.run(&["submit", "charge", &format!("reply:{act}")]).stderr;
    }
    said += &daemon.stderr.all().join("\n");
    assert!(said.contains("conflict") && said.contains("out of turn"), "{said}");
    let is_number =
        |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit()) && !rest.starts_with("01");
    assert!(!said.split("job ").skip(1).any(is_number), "{said}");
}

/// Whatever is sent to the socket, the sender is disconnected and nobody else notices.
#[test]
fn a_client_that_sends_garbage_is_disconnected_and_nobody_else_notices() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let hello = b"\x22\0\0\0\0\0\0\0\0\0\0\0OFFLOADC\x03\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0me";
    let mut after_hello = hello.to_vec();
    after_hello.extend([0xff; 64]);
    let cases: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0xff; 100],
        &[0; 100],
        b"\x04\0\0\0\0\0\0\0\x63\0\0\0",
        &after_hello,
    ];
    for case in cases {
        let mut socket = UnixStream::connect(&daemon.socket).unwrap();
        socket.write_all(case).unwrap();
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest); // ends: that is what is tested; a reset is an end too
        daemon.run(&["submit", "echo", "x"]).ok();
    }
    assert_eq!(daemon.status()["ledger"]["balanced"], true);
    let is_told = |line: &str| line.contains("is disconnected: the peer speaks HTTP");
    daemon.stderr.find(is_told, PATIENCE).expect("the log says what the first one was");
}

#[test]
fn help_and_manual_and_completions_are_there_for_every_verb() {
    let verbs = [
        "run",
        "map",
        "serve",
        "submit",
        "status",
        "workers",
        "jobs",
        "tasks",
        "wait",
        "result",
        "cancel",
        "drain",
        "stop",
        "bench",
        "completions",
        "man",
    ];
    let help = run_offload(&["--help"]).ok().text();
    for verb in verbs {
        assert!(help.contains(verb), "{verb} is missing in {help}");
        assert!(run_offload(&[verb, "--help"]).ok().text().contains("Usage"));
    }
    assert!(run_offload(&["man"]).ok().text().starts_with(".ie"), "troff");
    assert!(run_offload(&["completions", "bash"]).ok().text().contains("offload"));
    assert!(run(&mut command(&["--version"]), b"").ok().text().contains(env!("CARGO_PKG_VERSION")));
}
