//! Mistakes that people make at a shell. Each is answered with one sentence, which says what is wrong and what to do, and with
//! the exit code for it; nothing is printed where results go.

use rustix::process::geteuid;
use std::fs::{Permissions, create_dir, set_permissions, write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use tempfile::TempDir;
use tests::harness::{
    Daemon, PATIENCE, Ran, command, copy_for_anybody, private_folder, run, write_executable,
};

/// What is typed, the exit code, and what the answer has to say. `FOLDER` is the folder of [`files`].
type Mistake = (&'static str, i32, &'static [&'static str]);

/// Mistakes of the command line and of files: nothing runs.
const BEFORE_ANYTHING_RUNS: &[Mistake] = &[
    ("submitt echo x", 2, &["'submitt'", "'submit'"]),
    ("run", 2, &["<TASK>"]),
    ("run --timeot 1s echo x", 2, &["'--timeot'", "'--timeout'"]),
    ("run --exec cat --worker cat x", 2, &["'--exec <CMD ARG...>' cannot be used with '--worker"]),
    ("run --timeout 10 echo x", 2, &["\"10\" is not a duration", "as in 250ms"]),
    ("run --timeout 0s echo x", 2, &["leaves no time at all"]),
    ("run --max-bytes 5x echo x", 2, &["\"5x\" is not a size", "as in 64MiB"]),
    ("run --workers 999 echo x", 2, &["it must be from 1 to 256, not 999"]),
    ("run --priority 99 echo x", 2, &["99 is not in -10..=10"]),
    ("run --content-type png echo x", 2, &["\"png\" is no media type", "'image/png'"]),
    ("submit --label a,b --meta x echo x", 2, &["metadata is KEY=VALUE"]),
    ("completions tcsh", 2, &["'tcsh'", "possible values: bash"]),
    ("man nonsense", 2, &["no verb \"nonsense\"", "offload --help"]),
    // Programs.
    ("run --exec missing-program x", 2, &["--exec: cannot start", "no `missing-program` in PATH"]),
    ("run --exec FOLDER/no-x x", 2, &["it may not be executed", "chmod +x"]),
    ("run --exec FOLDER x", 2, &["permission denied: it is a directory"]),
    ("run --exec FOLDER/no-interpreter x", 2, &["its interpreter `/no/such/python`", "does not exist"]),
    ("run --exec FOLDER/text x", 2, &["neither a program nor a script", "`#!`"]),
    ("run --exec FOLDER/empty x", 2, &["it is no program: it is empty"]),
    ("run --worker FOLDER/text echo x", 2, &["--worker: cannot start", "neither a program nor a script"]),
    ("run --worker /no/such/worker echo x", 2, &["--worker: cannot start `/no/such/worker`: No such file"]),
    ("run --worker-jsonl FOLDER/no-x echo", 2, &["--worker-jsonl: cannot start", "chmod +x"]),
    ("tasks --worker FOLDER/no-interpreter", 2, &["--worker: cannot start", "/no/such/python"]),
    // Configurations.
    ("run --config FOLDER/no.toml echo x", 2, &["cannot read", "No such file", "offload config init"]),
    ("run --config FOLDER echo x", 2, &["cannot read", "it is no regular file"]),
    ("run --config FOLDER/latin.toml echo x", 2, &["latin.toml: it is no text in UTF-8"]),
    ("run --worker-jsonl dir=FOLDER/text|--|cat echo x", 2, &["text is no folder"]),
    ("run --worker-jsonl bogus=1|--|cat echo x", 2, &["\"bogus=1\" is none of env=, dir=, open_files="]),
    (
        "config check FOLDER/key.toml",
        2,
        &["key.toml:2: unknown key \"wrokers\"", "did you mean \"workers\"?"],
    ),
    (
        "config check FOLDER/elsewhere.toml",
        2,
        &["elsewhere.toml:2: unknown key \"worker\" in [supervisor]; did you mean \"workers\" in [[pool]]?"],
    ),
    (
        "config check FOLDER/program.toml",
        2,
        &["program.toml:3: pool.command: cannot start `missing-program`"],
    ),
    ("serve --config FOLDER/range.toml", 2, &["range.toml:2: pool.workers: it must be from 1 to 256"]),
    // Sockets.
    ("--socket LONG status", 2, &["the path of the socket has 120 bytes, at most 107 are possible"]),
    ("--socket FOLDER/none.sock status", 3, &["no supervisor at", "start one with: offload serve --socket"]),
    ("--socket FOLDER/stale.sock status", 3, &["no supervisor at", "start one with: offload serve --socket"]),
    ("--socket FOLDER status", 3, &["is a directory, not the socket of a supervisor", "--socket PATH"]),
    ("--socket FOLDER/text submit echo x", 3, &["is a file, not the socket of a supervisor"]),
    ("serve --socket FOLDER/public/o.sock", 2, &["it must be 0700", "--socket ~/"]),
    ("serve --socket /proc/none/o.sock", 2, &["cannot create the directory /proc/none", "--socket ~/"]),
    // What `OFFLOAD_CONFIG` names is no part of the usage.
    ("submit", 2, &["Usage: offload submit <TASK> [INPUT]"]),
    // HTTP.
    ("serve --http 127.0.0.1:99999", 2, &["is no address to listen at", "127.0.0.1:8080"]),
    ("serve --http 192.0.2.1:8080", 2, &["can be reached from other machines", "--http-public"]),
    ("serve --http 192.0.2.1:8080 --http-public", 2, &["this machine has no such address"]),
    ("serve --http 127.0.0.1:PORT", 2, &["another program listens there: choose another port"]),
];

/// Mistakes that only a supervisor, a worker or the task itself can see.
const WHILE_IT_RUNS: &[Mistake] = &[
    ("run prime 10", 4, &["unknown_task: no worker offers 'prime'; there are: primes,"]),
    ("submit prime 10", 4, &["unknown_task: no worker offers 'prime'; there are: primes,"]),
    ("run primes abc", 1, &["app_error: the input is not what this task takes"]),
    ("submit json {\"a\":", 1, &["app_error: the input is not JSON", "line 1 column 5"]),
    ("run echo @FOLDER/none", 2, &["cannot read", "No such file"]),
    ("map echo FOLDER/no-such-list", 2, &["cannot read", "no-such-list: No such file"]),
    ("submit echo @FOLDER/none", 2, &["cannot read", "No such file"]),
    ("submit echo @FOLDER", 2, &["cannot read", "directory", "offload map TASK --files"]),
    (
        "run --worker FOLDER/script echo x",
        4,
        &["ended at start-up with exit code 0", "--exec", "--worker-jsonl"],
    ),
    ("tasks nonsense", 4, &["no worker offers a task \"nonsense\"", "`offload tasks` lists them"]),
    ("wait nonsense", 5, &["no job 'nonsense'"]),
    ("explain zzzz", 5, &["no known one begins or ends so", "`offload jobs` shows"]),
    ("submit primes", 1, &["app_error: no input was given, and JSON is expected"]),
    ("serve --http 127.0.0.1:PORT", 75, &["another supervisor", "owns", "offload drain"]),
    ("cancel --label nothing", 5, &["no job with the label nothing"]),
    ("dead show nonsense", 5, &["`offload dead list` shows those that there are"]),
    ("serve", 75, &["another supervisor", "owns", "offload status", "offload drain", "--socket PATH"]),
];

/// The files that the mistakes are made with.
fn files() -> TempDir {
    let folder = private_folder();
    let path = |name: &str| folder.path().join(name);
    write_executable(&path("no-interpreter"), b"#!/no/such/python\n");
    write_executable(&path("text"), b"echo hello\n");
    write_executable(&path("empty"), b"");
    write_executable(&path("script"), b"#!/bin/sh\necho hello\n");
    write(path("no-x"), "#!/bin/sh\n").unwrap();
    write(path("latin.toml"), b"# caf\xe9\n").unwrap();
    write(path("key.toml"), "[[pool]]\nwrokers = 2\n").unwrap();
    write(path("elsewhere.toml"), "[supervisor]\nworker = 2\n").unwrap();
    write(path("range.toml"), "[[pool]]\nworkers = 999\n").unwrap();
    write(path("program.toml"), "\n[[pool]]\ncommand = \"missing-program\"\n").unwrap();
    drop(UnixListener::bind(path("stale.sock")).unwrap());
    create_dir(path("public")).unwrap();
    set_permissions(path("public"), Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The words of a mistake, of which one has blanks where `|` stands, with what the placeholders stand for.
fn words(typed: &str, folder: &Path, port: u16) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let long = format!("/tmp/{}", "x".repeat(115));
    let word = |word: &str| {
        word.replace("FOLDER", folder)
            .replace("LONG", &long)
            .replace("PORT", &port.to_string())
            .replace('|', " ")
    };
    typed.split(' ').map(word).collect()
}

/// One sentence: nothing but the parser's help may follow it.
fn check_answer(typed: &str, ran: &Ran, parts: &[&str]) {
    for part in parts {
        assert!(ran.stderr.contains(part), "{typed}: no {part:?} in {}", ran.stderr);
    }
    assert_eq!(ran.text(), "", "{typed}");
}

#[test]
fn a_mistake_is_answered_with_one_sentence_before_anything_runs() {
    let folder = files();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (typed, code, parts) in BEFORE_ANYTHING_RUNS {
        let words = words(typed, folder.path(), port);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let socket = folder.path().join("run.sock");
        let run = |words: &[&str]| run(command(words).env("OFFLOAD_SOCKET", &socket), b"x\n");
        let ran = run(&words).code(*code);
        check_answer(typed, &ran, parts);
        let sentences =
            ran.stderr.lines().filter(|line| line.starts_with("offload: ") || line.starts_with("error: "));
        assert_eq!(sentences.count(), 1, "{typed}: {}", ran.stderr);
        assert!(!ran.stderr.contains(" failed, in "), "{typed}: {}", ran.stderr);
        // A script learns the same.
        let document = run(&[&["--json"], &words[..]].concat()).code(*code).json();
        assert_eq!(document["error"]["exit_code"], *code, "{typed}: {document}");
        let message = document["error"]["message"].as_str().unwrap();
        assert!(!message.is_empty() && !message.contains('\n'), "{typed}: {message}");
    }
}

#[test]
fn a_mistake_that_only_shows_later_is_answered_too() {
    let (folder, daemon) = (files(), Daemon::start(&["--workers", "1"]));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (typed, code, parts) in WHILE_IT_RUNS {
        let words = words(typed, folder.path(), port);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        check_answer(typed, &daemon.run(&words).code(*code), parts);
    }
}

#[test]
fn who_says_nothing_is_told_how_to_begin() {
    let ran = tests::harness::run_offload(&[]).code(2);
    assert!(ran.stderr.contains("offload run primes") && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains("worker-exec"), "{}", ran.stderr);
}

/// Such a program is refused before it is started where the kernel cannot have been taught its format, and else by the kernel.
#[test]
fn a_program_for_another_processor_is_named_as_one() {
    let folder = files();
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0".to_vec();
    head.extend(if cfg!(target_arch = "aarch64") { [62, 0] } else { [183, 0] });
    let program = folder.path().join("foreign");
    write_executable(&program, &head);
    let program = program.to_str().unwrap();
    let application = format!("{program} {{port}}");
    for (flag, what, codes) in [
        ("--exec", program, [1, 2]),
        ("--worker", program, [2, 4]),
        ("--worker-jsonl", program, [2, 4]),
        ("--worker-http", &application, [2, 4]),
    ] {
        let mut words = vec!["run", flag, what, "echo", "x"];
        if flag == "--worker-http" {
            words.extend(["--tasks", "echo"]);
        }
        let ran = run(&mut command(&words), b"");
        assert!(codes.contains(&ran.code), "{ran:#?}");
        let expected = "64 bits); this system runs programs for";
        assert!(ran.stderr.contains(expected), "{flag}: {}", ran.stderr);
    }
}

/// Root may do all of this.
#[test]
fn what_another_user_owns_is_said_to_be_his() {
    const NOBODY: u32 = 65534;
    if !geteuid().is_root() {
        return eprintln!("not tested: only root can start processes of another user");
    }
    let (folder, daemon) = (private_folder(), Daemon::start(&["--workers", "1"]));
    set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
    let program = copy_for_anybody(folder.path(), "offload");
    let secret = folder.path().join("secret.toml");
    write(&secret, "").unwrap();
    set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let as_nobody = |words: &[&str]| {
        let mut command = std::process::Command::new(&program);
        run(command.args(words).env("OFFLOAD_CONFIG", "/dev/null").uid(NOBODY).gid(NOBODY), b"")
    };
    let ran = as_nobody(&["--socket", daemon.socket.to_str().unwrap(), "status"]).code(3);
    assert!(
        ran.stderr.contains("Permission denied") && ran.stderr.contains("offload serve"),
        "{}",
        ran.stderr
    );
    // If its permissions let him in, he is turned away all the same, and the log says so.
    set_permissions(daemon.socket.parent().unwrap(), Permissions::from_mode(0o711)).unwrap();
    set_permissions(&daemon.socket, Permissions::from_mode(0o666)).unwrap();
    let ran = as_nobody(&["--socket", daemon.socket.to_str().unwrap(), "status"]);
    assert_ne!(ran.code, 0, "{ran:#?}");
    let is_told = |line: &str| line.contains("a client of another user was turned away at the local socket");
    daemon.stderr.find(is_told, PATIENCE).expect("a line in the log");
    let ran = as_nobody(&["--config", secret.to_str().unwrap(), "run", "echo", "x"]).code(2);
    assert!(ran.stderr.contains("secret.toml: Permission denied"), "{}", ran.stderr);
    let socket = folder.path().join("o.sock");
    let ran = as_nobody(&["serve", "--socket", socket.to_str().unwrap()]).code(2);
    assert!(ran.stderr.contains("--socket ~/"), "{}", ran.stderr);
}

/// The log and the views say so before the time for a hello is over, and a program that is only slow lives on.
#[test]
fn a_program_that_is_no_worker_is_told_what_it_looks_like_and_is_not_ended() {
    let (folder, worker) = (private_folder(), tests::harness::workspace().join("examples/worker.py"));
    let go_on = folder.path().join("go-on");
    for (prints, expected) in [
        ("echo hello", "it printed to standard output and never said hello: is it a program for --exec?"),
        ("echo '{}'", "it printed JSON to standard output and never said hello: with --worker-jsonl"),
        (":", "it has printed nothing: it takes long to start, or it waits for an input"),
    ] {
        let script = folder.path().join("script");
        let (go_on, worker) = (go_on.display(), worker.display());
        let text =
            format!("#!/bin/sh\n{prints}\nuntil [ -e {go_on} ]; do sleep 0.1; done\nexec python3 {worker}\n");
        write_executable(&script, text.as_bytes());
        let script = script.to_str().unwrap();
        let daemon = Daemon::launch(&["--workers", "1", "--worker", script, "--hello-timeout", "10m"]);
        let line =
            daemon.stderr.find(|line| line.contains("no hello from program"), tests::harness::PATIENCE);
        assert!(line.as_ref().is_some_and(|line| line.contains(expected)), "{line:?}");
        let status = daemon.status();
        assert_eq!(
            (&status["programs"][0]["hint"], &status["state"]),
            (&said(expected, &status), &"starting".into())
        );
        assert!(daemon.run(&["status"]).ok().text().contains(expected));
        assert!(daemon.run(&["workers"]).ok().text().contains(expected));
        write(folder.path().join("go-on"), "").unwrap();
        assert_eq!(daemon.run(&["submit", "reverse", "abc"]).ok().text(), "cba");
        assert!(daemon.status()["programs"][0].get("hint").is_none());
        assert_eq!(daemon.workers()[0]["incarnation"], 1, "it is the same process");
        std::fs::remove_file(folder.path().join("go-on")).unwrap();
    }
    let mut cat = command(&["run", "--worker", "cat", "echo", "x"]);
    let ran = run(cat.env("OFFLOAD_HELLO_TIMEOUT", "4s"), b"").code(4);
    assert!(ran.stderr.contains("no hello from program `cat` yet: it has printed nothing"), "{}", ran.stderr);
}

/// The hint of a status, if that says this.
fn said(expected: &str, status: &serde_json::Value) -> serde_json::Value {
    let hint = status["programs"][0]["hint"].clone();
    assert!(hint.as_str().is_some_and(|hint| hint.contains(expected)), "{status}");
    hint
}
