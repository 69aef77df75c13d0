//! Files of a file system that never answers, as that of a server that is gone: each read keeps a thread of the I/O pool for ever,
//! and nothing else.

use rustix::process::Signal;
use serde_json::json;
use std::path::Path;
use std::process::Command;
use tests::harness::{Daemon, PATIENCE, offload, run, until};
use tests::http::HttpDaemon;

/// Becomes the program that its arguments name, for which a file system that never answers is mounted at the first argument. No
/// other process sees it but one, which keeps it there until the program has ended. What this machine does not allow is said, with
/// exit code 77.
const MOUNTED: &str = r#"
import ctypes, os, select, sys
folder, program = sys.argv[1], sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
def must(what, result):
    if result != 0:
        print(what + ": " + os.strerror(ctypes.get_errno()))
        sys.exit(77)
def mount(source, target, kind, flags, data):
    return libc.mount(source, target, kind, ctypes.c_ulong(flags), data)
NEWNS, NEWUSER, PRIVATE_TREE, NOSUID_NODEV = 0x00020000, 0x10000000, 0x4000 | 0x40000, 2 | 4
user, group = os.geteuid(), os.getegid()
if user != 0 or libc.unshare(NEWNS) != 0:
    must("unshare", libc.unshare(NEWUSER | NEWNS))
    for name, text in ("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1"):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)
    user = group = 0
must("private mounts", mount(None, b"/", None, PRIVATE_TREE, None))
try:
    fuse = os.open("/dev/fuse", os.O_RDWR)
except OSError as error:
    print("/dev/fuse: " + error.strerror)
    sys.exit(77)
options = f"fd={fuse},rootmode=40000,user_id={user},group_id={group}"
must("mount", mount(b"hung", folder.encode(), b"fuse", NOSUID_NODEV, options.encode()))
ours = os.getpid()
child = os.fork()
if child == 0:
    if os.fork() == 0:
        ended = os.pidfd_open(ours)
        os.dup2(os.open("/dev/null", os.O_RDWR), 0)
        for descriptor in 1, 2:
            os.dup2(0, descriptor)
        select.select([ended], [], [])
    os._exit(0)
os.waitpid(child, 0)
os.execv(program[0], program)
"#;

fn mounted(folder: &Path) -> Command {
    let mut mounted = Command::new("python3");
    mounted.args(["-c", MOUNTED]).arg(folder);
    mounted
}

fn path(path: &str) -> String {
    json!({ "path": path }).to_string()
}

#[test]
fn a_file_system_that_never_answers_costs_threads_of_the_pool_and_nothing_else() {
    let tree = tempfile::tempdir().unwrap();
    let (root, hung) = (tree.path().join("root"), tree.path().join("root/hung"));
    std::fs::create_dir_all(&hung).unwrap();
    std::fs::write(root.join("file"), "hello").unwrap();
    let probe = run(mounted(&hung).arg(offload()).arg("version"), b"");
    if probe.code == 77 {
        return println!("skipped: a file system cannot be mounted here: {}", probe.text().trim());
    }
    let root = root.to_str().unwrap();
    let arguments = [
        "--workers",
        "1",
        "--http",
        "127.0.0.1:0",
        "--io-root",
        root,
        "--drain-timeout",
        "1s",
        "--allow-faults",
    ];
    let daemon = Daemon::launch_changed(&arguments, &mut |command| {
        let mut mounted = mounted(&hung);
        mounted.arg(command.get_program()).args(command.get_args()).env_remove("OFFLOAD_SOCKET");
        mounted
    });
    let mut http = HttpDaemon::of(daemon);
    let threads = || http.daemon.status()["io_pool"].clone();
    let before = threads();

    // More of them than the pool has threads.
    let hang = |task: &str| http.call(task, &[("Offload-Timeout", "300ms")], path("hung/file")).problem();
    std::thread::scope(|scope| {
        for number in 0..6 {
            let task = if number % 2 == 0 { "fs.read" } else { "fs.stat" };
            scope.spawn(move || assert_eq!(hang(task), (504, "timeout".to_owned()), "{task}"));
        }
    });
    let stuck = until("each has taken a thread", || Some(threads()).filter(|it| it["stuck"] == 6));
    assert_eq!(stuck["threads"], before["threads"], "each was replaced");

    for _ in 0..20 {
        assert_eq!(http.call("fs.read", &[], path("file")).text(), "hello");
        assert_eq!(http.call("fs.stat", &[], path("file")).json()["bytes"], 5);
        assert_eq!(http.call("echo", &[], "hello").text(), "hello");
    }
    let status = http.daemon.status();
    assert_eq!((&status["jobs"]["timeout"], &status["ledger"]["balanced"]), (&json!(6), &json!(true)));
    assert_eq!((&status["jobs"]["running"], &status["queue"]["bytes"]), (&json!(0), &json!(0)), "{status}");

    // Its client is gone, and its thread is not.
    let mut gone = http.connect();
    gone.send("POST", "/v1/tasks/fs.read", &[], path("hung/file").as_bytes());
    until("it runs", || (http.daemon.status()["jobs"]["running"] == 1).then_some(()));
    drop(gone);
    until("it is cancelled", || (http.daemon.status()["jobs"]["cancelled"] == 1).then_some(()));
    http.daemon.run(&["submit", "--detach", "fs.read", &path("hung/file")]).ok();
    until("one more runs", || (http.daemon.status()["jobs"]["running"] == 1).then_some(()));
    http.daemon.signal(Signal::TERM);
    assert_eq!(http.daemon.wait(), 1, "it ends in order, and says that a job was not done in time");
    assert!(http.daemon.stderr.find(|line| line.contains("not done in time: 1"), PATIENCE).is_some());
}
