//! Checks before the fork whether the kernel can run a file.
//!
//! A child that sets something of its own before its program begins is made with `execvp`, and that gives a file which the
//! kernel refuses to `/bin/sh`, whatever is in it. So such files are found out before: they are an error at once, as
//! they are with `posix_spawn`.

use std::env::consts::ARCH;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;

const ELF_MACHINE: usize = 18;

/// Looks into a program that is named by its path. One that the search path finds is a program or a script of the system,
/// and whatever else is wrong with a file is told by the kernel.
///
/// # Errors
/// `ENOEXEC` for what is neither a program for this machine nor a script that says by `#!` who reads it.
pub(super) fn check(command: &Command) -> io::Result<()> {
    let program = Path::new(command.get_program());
    if program.components().count() < 2 {
        return Ok(());
    }
    let folder = command.get_current_dir().unwrap_or(Path::new("."));
    match beginning_of(&folder.join(program)) {
        Some(beginning) if !is_executable(&beginning) => Err(Errno::NOEXEC.into()),
        _ => Ok(()),
    }
}

fn beginning_of(path: &Path) -> Option<Vec<u8>> {
    let mut beginning = Vec::new();
    // A FIFO would be waited for.
    let is_file = path.metadata().ok()?.is_file();
    let file = is_file.then(|| File::open(path).ok())??;
    file.take(ELF_MACHINE as u64 + 2).read_to_end(&mut beginning).ok()?;
    Some(beginning)
}

fn is_executable(beginning: &[u8]) -> bool {
    beginning.starts_with(b"#!")
        || beginning.starts_with(b"\x7fELF") && beginning.get(ELF_MACHINE..).is_some_and(is_for_this_machine)
}

/// Kernels of 64 bits run programs of 32 bits, too.
fn is_for_this_machine(machine: &[u8]) -> bool {
    let is_one_of = |known: [u16; 2]| known.iter().any(|known| known.to_ne_bytes() == machine);
    match ARCH {
        "x86_64" => is_one_of([62, 3]),
        "aarch64" => is_one_of([183, 40]),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_this_machine_and_scripts_are_executable_and_nothing_else_is() {
        let own = beginning_of(&std::env::current_exe().unwrap()).unwrap();
        assert!(is_executable(&own) && is_executable(b"#!/bin/sh\n"));
        let mut foreign = own.clone();
        foreign[ELF_MACHINE..].copy_from_slice(&243_u16.to_ne_bytes());
        for beginning in [&foreign[..], &own[..10], b"text", b"MZ", b""] {
            assert!(!is_executable(beginning), "{beginning:?}");
        }
    }
}
