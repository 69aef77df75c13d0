//! A worker whose every misbehaviour is chosen: at start-up by its arguments, in a job by the job's input.
//!
//! `faultworker [boot:ACT]` with ACT one of `exit1`, `exit64`, `silent`, `badversion`, `garbage`; `counted:FILE` appends
//! a line to FILE at every start. Its tasks: `act` (idempotent) and `charge` (not), whose input is one of the words in
//! [`act`], or `ACT@K`, which acts only in attempt K and otherwise returns the attempt's number.

use offload_worker::{Input, Output, Task, TaskContext, TaskError, Worker};
use rustix::process::{Signal, getpid, kill_process};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

fn main() -> ExitCode {
    for argument in std::env::args().skip(1) {
        if let Some(file) = argument.strip_prefix("counted:") {
            count_start(file);
        }
        if let Some(code) = argument.strip_prefix("boot:").and_then(boot) {
            return code;
        }
    }
    Worker::new()
        .with(Task::raw("act", |input, cx| run(&input, cx)).idempotent())
        .with(Task::raw("charge", |input, cx| run(&input, cx)))
        .with(Task::raw("pid", |_, _| Output::json(&std::process::id())).idempotent())
        .serve()
}

fn count_start(file: &str) {
    let line = format!("{}\n", std::process::id());
    let opened = std::fs::File::options().create(true).append(true).open(file);
    opened
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("the test gives a path that can be written");
}

/// The exit code, if it is to end at once.
fn boot(act: &str) -> Option<ExitCode> {
    eprintln!("faultworker: boot:{act}");
    match act {
        "exit1" => Some(ExitCode::from(1)),
        "exit64" => Some(ExitCode::from(64)),
        "silent" => sleep_for_ever(),
        "badversion" => say(b"\x18\0\0\0\0\0\0\0\0\0\0\0OFFLOADW\x09\0\0\0\0\0\0\0\0\0\0\0"),
        "garbage" => say(b"GET / HTTP/1.1\r\n\r\n"),
        _ => None,
    }
}

fn say(bytes: &[u8]) -> ! {
    let socket = rustix::stdio::stdin();
    let _ = rustix::io::write(socket, bytes); // the test sees whether it arrived
    sleep_for_ever()
}

fn sleep_for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn run(input: &Input, cx: &mut TaskContext<'_>) -> Result<Output, TaskError> {
    let words = input.text()?.to_owned();
    let (word, only_on) = match words.split_once('@') {
        Some((word, attempt)) => (word, attempt.parse().ok()),
        None => (words.as_str(), None),
    };
    if only_on.is_none_or(|attempt: u32| attempt == cx.attempt()) {
        act(word, cx)?;
    }
    Output::json(&cx.attempt())
}

fn act(word: &str, cx: &mut TaskContext<'_>) -> Result<(), TaskError> {
    match word {
        "nothing" => {}
        "error" => return Err(TaskError::new("as\nordered \u{1b}[31m")),
        "panic" => panic!("as ordered"),
        "exit0" => std::process::exit(0),
        "exit7" => std::process::exit(7),
        "abort" => std::process::abort(),
        "kill" => kill_process(getpid(), Signal::KILL).map_err(TaskError::new)?,
        "hang" => sleep_for_ever(),
        "stop" => kill_process(getpid(), Signal::STOP).map_err(TaskError::new)?,
        "ignore_term" => {
            // Caught, and nothing done about it.
            signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::default())
                .map_err(TaskError::new)?;
            sleep_for_ever();
        }
        "grandchild" => leave_a_grandchild(),
        "garbage" => cx.send_garbage(b"\xff\xff\xff\xff no frame of yours").map_err(TaskError::new)?,
        "hugelength" => cx.send_garbage(b"\x04\0\0\0\xff\xff\xff\xff").map_err(TaskError::new)?,
        "partial" => {
            cx.send_garbage(b"\x18\0\0").map_err(TaskError::new)?;
            sleep_for_ever();
        }
        "double" => send_finished(cx, cx.job())?,
        "wrongjob" => send_finished(cx, cx.job().wrapping_add(1_000_000))?,
        "close" => {
            cx.close_link().map_err(TaskError::new)?;
            sleep_for_ever();
        }
        "print" => println!("plain \u{1b}[31mred\u{1b}[0m\r\u{7} line"),
        "flood" => (0..100_000).for_each(|number| println!("line {number}")),
        other => return Err(TaskError::new(format!("no such act: {other}"))),
    }
    Ok(())
}

/// A complete Finished message for a job that may not be ours, and then the ordinary one.
fn send_finished(cx: &mut TaskContext<'_>, job: u64) -> Result<(), TaskError> {
    let mut frame = b"\x34\0\0\0\0\0\0\0\x02\0\0\0".to_vec();
    frame.extend_from_slice(&job.to_le_bytes());
    frame.extend_from_slice(&cx.attempt().to_le_bytes());
    frame.extend_from_slice(&1000u64.to_le_bytes());
    frame.extend_from_slice(&0u32.to_le_bytes());
    frame.extend_from_slice(&[0; 24]);
    cx.send_garbage(&frame).map_err(TaskError::new)
}

/// A child of ours, which keeps whatever it inherited.
#[expect(clippy::zombie_processes, reason = "that is what is tested")]
fn leave_a_grandchild() {
    let child = std::process::Command::new("sleep").arg("3600").spawn().expect("sleep is everywhere");
    println!("grandchild {}", child.id());
    let _ = kill_process(getpid(), Signal::KILL); // nothing follows
}
