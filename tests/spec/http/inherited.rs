//! Sockets that somebody else has opened for the supervisor.

use serde_json::Value;
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tests::harness::{Ran, command, private_folder, run, run_offload};

/// Opens listening sockets as the descriptors from 3 on, at the addresses or paths in its first argument (separated by commas), sets
/// the variables that follow (`OWN` stands for its own process ID), and becomes the program behind `--`.
const SERVICE_MANAGER: &str = r#"
import fcntl, os, socket, sys
addresses, rest = sys.argv[1].split(","), sys.argv[2:]
variables, program = rest[:rest.index("--")], rest[rest.index("--") + 1:]
listeners = []
for address in addresses:
    if address.startswith("/"):
        is_of_messages = address.endswith("/messages")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET if is_of_messages else socket.SOCK_STREAM)
        listener.bind(address)
        os.chmod(address, 0o666)
        listener.listen()
    else:
        listener = socket.create_server((address, 0))
    # Out of the way of the numbers that they are to have.
    listeners.append(fcntl.fcntl(listener, fcntl.F_DUPFD, 100))
for number, listener in enumerate(listeners, 3):
    os.dup2(listener, number)
os.closerange(3 + len(listeners), 200)
for variable in variables:
    name, value = variable.split("=")
    os.environ[name] = value.replace("OWN", str(os.getpid()))
os.execv(program[0], program)
"#;

fn service(address: &str, variables: &[&str], arguments: &[&str]) -> Command {
    let serve = command(&["serve", "--json", "--workers", "1"]);
    let mut manager = Command::new("python3");
    manager.args(["-c", SERVICE_MANAGER, address]).args(variables).arg("--");
    manager.arg(serve.get_program()).args(serve.get_args()).args(arguments).env_remove("OFFLOAD_SOCKET");
    manager
}

/// A supervisor that ends with the test, also with one that fails.
struct Running(Child);

impl Running {
    /// It, and what it says when it is ready. Its own socket is in this folder.
    fn start(mut service: Command, folder: &Path) -> (Running, Value) {
        service.arg("--socket").arg(folder.join("o.sock")).stdout(Stdio::piped());
        let mut running = Running(service.spawn().expect("python3"));
        let mut lines = BufReader::new(running.0.stdout.take().expect("piped")).lines();
        let ready = lines.next().expect("it is ready").expect("a line");
        (running, serde_json::from_str(&ready).expect("a document"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn refused(address: &str, variables: &[&str], arguments: &[&str]) -> Ran {
    let folder = private_folder();
    let socket = folder.path().join("o.sock");
    let mut service = service(address, variables, arguments);
    run(service.arg("--socket").arg(socket), b"").code(2)
}

const NOBODY: u32 = 65534;

const PASSED: &[&str] = &["LISTEN_PID=OWN", "LISTEN_FDS=1"];

#[test]
fn a_socket_that_other_machines_can_reach_needs_a_word_whoever_has_opened_it() {
    for (variables, arguments) in [(PASSED, &[][..]), (&[], &["--http", "fd:3"])] {
        let refused = refused("0.0.0.0", variables, arguments);
        let said = String::from_utf8_lossy(&refused.stdout).into_owned() + &refused.stderr;
        assert!(
            said.contains("can be reached from other machines") && said.contains("--http-public"),
            "{said}"
        );
    }
}

#[test]
fn a_socket_that_was_passed_is_answered_at() {
    for (address, variables, arguments) in [
        ("127.0.0.1", PASSED, &[][..]),
        ("127.0.0.1", &[], &["--http", "fd:3"]),
        ("0.0.0.0", PASSED, &["--http-public"]),
    ] {
        let folder = private_folder();
        let (_running, ready) = Running::start(service(address, variables, arguments), folder.path());
        let port = ready["http"].as_str().and_then(|it| it.rsplit(':').next()).expect("an address");
        assert_eq!(curl(&[&format!("http://127.0.0.1:{port}/healthz")]), "ok\n");
    }
}

#[test]
fn a_socket_that_is_named_twice_or_is_of_no_use_is_refused_for_what_it_is() {
    for (variables, arguments, reason) in [
        (PASSED, &["--http", "fd:3"][..], "descriptor 3 is there twice: LISTEN_FDS passes it already"),
        (PASSED, &["--http", "fd:0003"], "descriptor 3 is there twice: LISTEN_FDS passes it already"),
        (&[], &["--http", "fd:3", "--http", "fd:3"], "fd:3 is there twice"),
        (&[], &["--http", "fd:99"], "descriptor 99 is no socket: Bad file descriptor"),
    ] {
        let refused = refused("127.0.0.1", variables, arguments);
        let said = String::from_utf8_lossy(&refused.stdout).into_owned() + &refused.stderr;
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn a_socket_of_messages_is_refused() {
    let folder = private_folder();
    let place = folder.path().join("messages");
    for (variables, arguments) in [(PASSED, &[][..]), (&[], &["--http", "fd:3"])] {
        let refused = refused(place.to_str().expect("text"), variables, arguments);
        let said = String::from_utf8_lossy(&refused.stdout).into_owned() + &refused.stderr;
        assert!(said.contains("descriptor 3 takes messages, and no stream of bytes"), "{said}");
        std::fs::remove_file(&place).expect("the socket");
    }
}

/// What the supervisor itself opens has numbers, too.
#[test]
fn a_number_that_nothing_was_passed_as_stands_for_no_socket_of_the_supervisor() {
    for number in 3..20 {
        let descriptor = format!("fd:{number}");
        let refused = run_offload(&["serve", "--http", "127.0.0.1:0", "--http", &descriptor]).code(2);
        assert!(refused.stderr.contains(&format!("descriptor {number} is ")), "{refused:?}");
    }
}

/// What is answered.
fn curl(arguments: &[&str]) -> String {
    run(Command::new("curl").args(["-sS", "--max-time", "60"]).args(arguments), b"").ok().text()
}

#[test]
fn of_several_sockets_that_were_passed_each_is_answered_at() {
    let both = &["LISTEN_PID=OWN", "LISTEN_FDS=2"][..];
    for (variables, arguments, is_tcp_first) in [
        (both, &[][..], true),
        (both, &[], false),
        (&[], &["--http", "fd:3", "--http", "fd:4"], true),
        (&[], &["--http", "fd:4", "--http", "fd:3"], false),
    ] {
        let folder = private_folder();
        let path = folder.path().join("http.sock").display().to_string();
        // In the order in which the supervisor is to take them.
        let mut addresses = if is_tcp_first { ["127.0.0.1", &path] } else { [&path, "127.0.0.1"] };
        let is_tcp = |address: &str| address.starts_with("127.0.0.1");
        if arguments.contains(&"fd:4") && !is_tcp_first {
            addresses.reverse();
        }
        let (_running, ready) =
            Running::start(service(&addresses.join(","), variables, arguments), folder.path());
        let told: Vec<&str> =
            ready["http_addresses"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert_eq!((told.len(), is_tcp(told[0])), (2, is_tcp_first), "{ready}");
        let (tcp, unix) = if is_tcp_first { (told[0], told[1]) } else { (told[1], told[0]) };
        assert_eq!(unix, format!("unix:{path}"));
        let token = std::fs::read_to_string(ready["http_token_file"].as_str().expect("it has one")).unwrap();
        let token = format!("Authorization: Bearer {}", token.trim());
        let count = |arguments: &[&str]| curl(&[arguments, &["-d", "10"]].concat());
        let primes = r#"{"count":4,"largest":7}"#;
        assert_eq!(count(&["-H", &token, &format!("http://{tcp}/v1/tasks/primes")]), primes);
        assert_eq!(count(&["--unix-socket", &path, "http://here/v1/tasks/primes"]), primes);
    }
}

#[test]
fn another_user_shows_the_token_also_over_a_unix_socket_that_lets_everybody_in() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    let (folder, open) = (private_folder(), tempfile::tempdir().expect("a folder"));
    std::fs::set_permissions(open.path(), Permissions::from_mode(0o755)).expect("our own");
    let path = open.path().join("http.sock");
    let service = service(path.to_str().expect("ours"), PASSED, &[]);
    let (_running, ready) = Running::start(service, folder.path());
    let token_file = ready["http_token_file"].as_str().expect("there is a token");
    let token = std::fs::read_to_string(token_file).expect("our own file");
    let status = |user: u32, arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket"]);
        curl.arg(&path).args(arguments).uid(user).gid(user).current_dir("/");
        run(&mut curl, b"").ok().text()
    };
    let task = ["-d", "1000", "http://here/v1/tasks/primes"];
    let shown = format!("Authorization: Bearer {}", token.trim());
    assert_eq!(status(NOBODY, &task), "401");
    assert_eq!(status(NOBODY, &["http://here/v1/status"]), "401");
    assert_eq!(status(NOBODY, &["http://here/healthz"]), "200");
    assert_eq!(status(NOBODY, &[&["-H", &shown], &task[..]].concat()), "200");
    assert_eq!(status(0, &task), "200");

    // By what it has shown it is one of those that have shown a token, and their keys are the same.
    let job = |user: u32, shown: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "-o", "/dev/null", "-w", "%header{offload-job}", "-H", shown]);
        curl.args(["-H", "Idempotency-Key: k"]).arg("--unix-socket").arg(&path).args(task);
        run(curl.uid(user).gid(user).current_dir("/"), b"").ok().text()
    };
    let first = job(NOBODY, &shown);
    assert!(!first.is_empty() && [1234, 0].map(|user| job(user, &shown)) == [first.clone(), first.clone()]);
    assert_ne!(job(0, "Accept: */*"), first, "whoever has shown none has keys of its own");
}

#[test]
fn variables_that_are_not_sound_are_refused_and_those_for_others_are_not_looked_at() {
    for variables in [["LISTEN_PID=OWN", "LISTEN_FDS=many"], ["LISTEN_PID=me", "LISTEN_FDS=1"]] {
        let refused = refused("127.0.0.1", &variables, &["--http", "127.0.0.1:0"]);
        let said = String::from_utf8_lossy(&refused.stdout).into_owned() + &refused.stderr;
        assert!(said.contains("LISTEN_") && said.contains("unset it"), "{said}");
    }
}
