//! What a process can do to itself and to its children.

use crate::{peek, tracing};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};
use std::fs::File;
use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::process::{Command, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The most memory that `alloc` may come to have, in bytes (256 MiB).
const MEMORY_MAX: u64 = 256 << 20;
/// The most descriptors that `fdleak` may come to have.
const DESCRIPTORS_MAX: u64 = 128;
/// A process that nobody ends ends by itself, so that a test that fails leaves nothing behind for long.
const GRANDCHILD_LIVES: Duration = Duration::from_secs(60);

/// Commits this act. None if it is not one of a process; otherwise, if it lets the process live, whether the job is to
/// be answered with an error.
pub(crate) fn commit(act: &str) -> Option<Result<(), String>> {
    if let Some(signal) = signal_of(act) {
        die_of(signal);
    }
    if let Some(code) = act.strip_prefix("exit").and_then(|code| code.parse().ok()) {
        exit(code);
    }
    match act {
        "nothing" => {}
        "error" => return Some(Err("as\nordered \u{1b}[31m".to_owned())),
        "panic" => panic!("as ordered"),
        "abort" => std::process::abort(),
        "stop" => suspend(),
        "spin" => spin(),
        "sleep" | "hang" | "silent" => sleep_for_ever(),
        "stack" => _ = use_up_the_stack(0),
        "alloc" => use_up_memory(),
        "fdleak" => return Some(leak_descriptors()),
        "fork" | "grandchild" => leave_children(1, "grandchild"),
        "daemonize" => leave_children(1, "escape"),
        "escape3" => leave_children(3, "escape"),
        "escape3-bare" => leave_children(3, "escape-bare"),
        "helper" => {
            start_child("escape-bare");
            sleep_for_ever();
        }
        "peek" => return Some(peek::at_the_parent()),
        "closefds" => close_everything(),
        "close" => _ = rustix::net::shutdown(stdin(), rustix::net::Shutdown::Both),
        "closewrite" => _ = rustix::net::shutdown(stdin(), rustix::net::Shutdown::Write),
        "ignore-term" | "ignore_term" => {
            terminated();
            sleep_for_ever();
        }
        "ansi" | "print" => println!("plain \u{1b}[31mred\u{1b}[0m\r\u{7} line"),
        "json" => println!("{{\"level\":\"error\",\"message\":\"forged\"}}"),
        "longline" => println!("{}", "x".repeat(100_000)),
        "flood" => (0..100_000).for_each(|number| println!("line {number}")),
        other => return tracing::commit(other),
    }
    Some(Ok(()))
}

fn signal_of(act: &str) -> Option<Signal> {
    Some(match act {
        "kill" => Signal::KILL,
        "segv" => Signal::SEGV,
        "bus" => Signal::BUS,
        "ill" => Signal::ILL,
        "fpe" => Signal::FPE,
        "trap" => Signal::TRAP,
        "term" => Signal::TERM,
        "xcpu" => Signal::XCPU,
        _ => return None,
    })
}

/// Once is not enough for SIGSEGV and SIGBUS: the runtime's handler, which looks for stack overflows, takes the first,
/// finds that it is none, and puts the default action back for the next.
pub(crate) fn die_of(signal: Signal) -> ! {
    loop {
        let _ = kill_process(getpid(), signal);
    }
}

/// Somebody else has to say SIGCONT.
fn suspend() {
    let _ = kill_process(getpid(), Signal::STOP);
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns).wrapping_add(1);
    }
}

/// For ever, as a test sees it.
pub(crate) fn sleep_for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

#[expect(unconditional_recursion, reason = "that is the fault")]
fn use_up_the_stack(depth: u64) -> u64 {
    // Something to do after the call and something on the stack, or the compiler makes a loop of it.
    let frame = black_box([depth; 64]);
    use_up_the_stack(depth + 1) + black_box(frame)[0]
}

/// The limit comes first: the machine's memory is not ours.
fn use_up_memory() -> ! {
    setrlimit(Resource::As, Rlimit { current: Some(MEMORY_MAX), maximum: Some(MEMORY_MAX) })
        .expect("a limit may be lowered");
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(vec![1_u8; 16 << 20]));
    }
}

fn leak_descriptors() -> Result<(), String> {
    let before = getrlimit(Resource::Nofile);
    let limit = Rlimit { current: Some(DESCRIPTORS_MAX), ..before };
    setrlimit(Resource::Nofile, limit).map_err(|error| error.to_string())?;
    let mut leaked = Vec::new();
    let error = loop {
        match File::open("/dev/null") {
            Ok(file) => leaked.push(file),
            Err(error) => break error,
        }
    };
    std::mem::forget(leaked);
    Err(format!("out of descriptors: {error}"))
}

/// Children that keep whatever they inherited, this worker's socket first of all; then the worker dies.
fn leave_children(count: usize, how: &str) -> ! {
    (0..count).for_each(|_| start_child(how));
    die_of(Signal::KILL);
}

/// One that `escape`s is in a session of its own, and its parent is gone before this returns; with `-bare` it has no
/// environment either.
fn start_child(how: &str) {
    let (name, is_bare) = how.strip_suffix("-bare").map_or((how, false), |name| (name, true));
    let mut command = ourselves(name);
    if is_bare {
        command.env_clear();
    }
    let mut child = command.spawn().expect("we can be started again");
    match name {
        "escape" => _ = child.wait(),
        _ => println!("grandchild {}", child.id()),
    }
}

/// This program as something else, with what it was told itself: whoever looks for its processes finds this one too.
fn ourselves(how: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("we are a file"));
    let told = std::env::args().skip(1).filter(|argument| argument.starts_with("marks:"));
    command.arg(how).args(told);
    command
}

/// The life of such a child.
#[expect(clippy::zombie_processes, reason = "that is what is tested")]
pub(crate) fn be_a_grandchild(how: &str) {
    if how == "escape" {
        let _ = setsid();
        let child = ourselves("grandchild").spawn().expect("we can be started again");
        println!("grandchild {}", child.id());
    } else {
        std::thread::sleep(GRANDCHILD_LIVES);
    }
}

fn close_everything() {
    let open = |flags| rustix::fs::open("/dev/null", flags | OFlags::CLOEXEC, Mode::empty());
    let nothing: OwnedFd = open(OFlags::RDWR).expect("/dev/null is everywhere");
    let _ = dup2_stdin(&nothing);
    let _ = dup2_stdout(&nothing);
    let _ = dup2_stderr(&nothing);
}

/// From now on SIGTERM does nothing but to make this true.
pub(crate) fn terminated() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&flag))
        .expect("SIGTERM can be caught");
    flag
}

/// Waits for SIGTERM.
pub(crate) fn wait_for_term(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
