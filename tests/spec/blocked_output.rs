//! Somebody stops reading what the supervisor writes (Ctrl-S, a full pipe). This delays the lines and nothing else.

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use tests::harness::{
    PATIENCE, Ran, children_of, command, private_folder, program, run, signal, until, wait_for_end,
};

/// A pipe that takes no more; nobody reads it as long as its other end is there.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
    while rustix::io::write(&writer, b"x").is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

/// Ends with the test, whatever becomes of that.
struct Serve(Child);

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

fn ask(socket: &Path, arguments: &[&str]) -> Ran {
    run(command(arguments).env("OFFLOAD_SOCKET", socket), b"")
}

fn serves_although_nobody_reads(arguments: &[&str], stops_stdout: bool, stops_stderr: bool) {
    let folder = private_folder();
    let socket = folder.path().join("o.sock");
    let (_reader, writer) = full_pipe();
    let stream = |is_stopped: bool| match is_stopped {
        true => Stdio::from(writer.try_clone().unwrap()),
        false => Stdio::null(),
    };
    let mut serve = command(&["serve", "--workers", "1", "--socket"]);
    serve.arg(&socket).args(arguments).stdin(Stdio::null());
    let mut serve = Serve(serve.stdout(stream(stops_stdout)).stderr(stream(stops_stderr)).spawn().unwrap());
    until("the socket", || socket.exists().then_some(()));
    for number in 0..20 {
        assert_eq!(ask(&socket, &["submit", "--timeout", "30s", "act", "print"]).code, 0, "job {number}");
    }
    // A signal comes after the ready line, which is on its way when jobs are done.
    signal(serve.0.id(), Signal::TERM);
    assert!(wait_for_end(serve.0.id(), PATIENCE), "it hangs");
    assert_eq!(serve.0.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_supervisor_whose_output_nobody_reads_does_its_jobs_and_ends_when_it_is_told_to() {
    // The worker says a line at its start and one for each job, so there is something to say all the time.
    let worker = format!("{} boot:nothing", program("faultworker").display());
    for (stops_stdout, stops_stderr) in [(true, false), (false, true), (true, true)] {
        serves_although_nobody_reads(&["-v", "--worker", &worker], stops_stdout, stops_stderr);
        serves_although_nobody_reads(&["--json", "--worker", &worker], stops_stdout, stops_stderr);
    }
}

#[test]
fn a_run_whose_talk_nobody_reads_still_ends_by_the_signal() {
    let (_reader, writer) = full_pipe();
    let mut run = command(&["run", "sleep", "3600000"]);
    let run = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    let mut run = Serve(run);
    let workers = until("a worker", || Some(children_of(run.0.id())).filter(|workers| !workers.is_empty()));
    signal(run.0.id(), Signal::INT);
    assert!(wait_for_end(run.0.id(), PATIENCE), "it hangs");
    assert_eq!(run.0.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
    for worker in workers {
        assert!(wait_for_end(worker, PATIENCE), "worker process {worker} lives on");
    }
}
