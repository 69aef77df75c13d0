//! All that one process can do to another of the same user if that does not hide.

use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs::OpenOptions;
use std::io::{IoSliceMut, Read};

/// Tries everything on the parent, which is the supervisor.
///
/// # Errors
/// What was possible, in one line.
pub(crate) fn at_the_parent() -> Result<(), String> {
    let parent = Pid::parent();
    let attempts: [(&str, bool); 8] = [
        ("read its environment", reads(parent, "environ")),
        ("read its memory", opens(OpenOptions::new().read(true), parent, "mem")),
        ("write its memory", opens(OpenOptions::new().write(true), parent, "mem")),
        ("list its mappings", reads(parent, "maps")),
        ("list its descriptors", std::fs::read_dir(format!("/proc/{parent}/fd")).is_ok()),
        ("copy its memory", copies_memory(parent)),
        ("take a descriptor", takes_a_descriptor(parent)),
        ("trace it", traces(parent)),
    ];
    let possible: Vec<&str> =
        attempts.into_iter().filter(|(_, succeeded)| *succeeded).map(|(what, _)| what).collect();
    if possible.is_empty() { Ok(()) } else { Err(format!("could {}", possible.join(", "))) }
}

fn opens(options: &OpenOptions, parent: Pid, file: &str) -> bool {
    options.open(format!("/proc/{parent}/{file}")).is_ok()
}

fn reads(parent: Pid, file: &str) -> bool {
    let file = std::fs::File::open(format!("/proc/{parent}/{file}"));
    file.and_then(|mut file| file.read(&mut [0; 16])).is_ok_and(|length| length > 0)
}

/// Nothing may be mapped there: only a refusal counts as one.
fn copies_memory(parent: Pid) -> bool {
    let mut copy = [0; 8];
    let there = RemoteIoVec { base: 0x1000, len: copy.len() };
    process_vm_readv(parent, &mut [IoSliceMut::new(&mut copy)], &[there]) != Err(nix::errno::Errno::EPERM)
}

fn takes_a_descriptor(parent: Pid) -> bool {
    let parent = rustix::process::Pid::from_raw(parent.as_raw()).expect("a parent");
    let pidfd = pidfd_open(parent, PidfdFlags::empty()).expect("that is nobody's secret");
    pidfd_getfd(pidfd, 0, PidfdGetfdFlags::empty()).is_ok()
}

/// A parent that is traced stands still: it is let go at once.
fn traces(parent: Pid) -> bool {
    let is_traced = ptrace::seize(parent, ptrace::Options::empty()).is_ok();
    if is_traced {
        let _ = ptrace::detach(parent, None);
    }
    is_traced
}
