//! What a worker does with system calls that nobody expects of one: it is traced by a process that it has started, or makes
//! children of its own parent. Perl makes these calls.

use super::acts;
use nix::libc::{SYS_clone, SYS_ptrace};
use nix::unistd::gettid;
use rustix::process::{PTracer, Signal, set_ptracer};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

/// Traces a thread of its parent's parent, as a process that has left both and their session; its one line says whether it does. First
/// its parent has to be gone and waited for, because every signal stops who is traced, SIGCHLD too: the kernel gives a process
/// another parent before it sends that signal.
const TRACER: &str = "use POSIX; $| = 1; my ($ptrace, $thread, $options) = map { 0 + $_ } @ARGV;
    my $parent = $$; exit if fork; POSIX::setsid(); my $seize = 0x4206;
    select(undef, undef, undef, 0.001) while kill 0 => $parent;
    my $refused = syscall($ptrace, $seize, $thread, 0, $options) != 0;
    print $refused ? qq($!\\n) : qq(traces $$\\n); sleep 600 if !$refused;";

/// Makes three children of the parent of this process that end at once, and one that does not.
const SIBLINGS: &str = "use POSIX; $| = 1; my $clone = 0 + $ARGV[0]; my $parent_and_sigchld = 0x8000 | 17;
    for my $ends (1, 1, 1, 0) {
        my $pid = syscall($clone, $parent_and_sigchld, 0, 0, 0, 0);
        if ($pid == 0) { POSIX::setsid(); sleep 600 if !$ends; POSIX::_exit(0) }
        print qq(grandchild $pid\\n) if !$ends;
    }
    kill KILL => $$; sleep 60;";

/// `PTRACE_O_TRACEEXIT`: it stops when it is about to end, until the tracer lets it go on.
const STOPS_AT_ITS_END: u32 = 0x40;

/// Commits this act, if it is one of these.
pub(crate) fn commit(act: &str) -> Option<Result<(), String>> {
    match act {
        "traced" => Some(die_traced(gettid().as_raw(), 0)),
        "traced-end" => Some(die_traced(gettid().as_raw(), STOPS_AT_ITS_END)),
        "traced-thread" => Some(die_traced(other_thread(), 0)),
        "siblings" => {
            let error = Command::new("perl").args(["-e", SIBLINGS, &SYS_clone.to_string()]).exec();
            Some(Err(error.to_string()))
        }
        _ => None,
    }
}

/// An error if nobody may trace it here.
fn die_traced(thread: i32, options: u32) -> Result<(), String> {
    // Where only parents may trace by themselves, it allows it to everybody. Elsewhere this is an error.
    let _ = set_ptracer(PTracer::Any);
    let numbers = [SYS_ptrace.to_string(), thread.to_string(), options.to_string()];
    let mut command = Command::new("perl");
    let mut parent = command
        .args(["-e", TRACER])
        .args(numbers)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let stdout = parent.stdout.take().ok_or("no pipe")?;
    let _ = parent.wait();
    let mut said = String::new();
    BufReader::new(stdout).read_line(&mut said).map_err(|error| error.to_string())?;
    let Some(tracer) = said.strip_prefix("traces ") else {
        println!("untraced: {said}");
        return Err(said);
    };
    println!("grandchild {tracer}");
    acts::die_of(Signal::KILL);
}

/// The id of a thread that lives as long as this process.
fn other_thread() -> i32 {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let _ = sender.send(gettid().as_raw());
        acts::sleep_for_ever();
    });
    receiver.recv().expect("a thread that has just begun")
}
