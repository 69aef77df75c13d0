//! Explains why the kernel refuses to execute a file. The kernel has one error number for several causes: "no such
//! file" also means that a script exists and its interpreter does not.
//!
//! Only the kernel knows what it can execute, because `binfmt_misc` adds to that. So a file is examined after the kernel has
//! refused it; before that only where nothing was added.

use super::escape::escape_line;
use crate::limits::EXECUTABLE_HEAD_MAX;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Whether trying again is pointless until somebody changes something: the program does not exist, or it may not be
/// executed. Other failures (out of processes, memory or descriptors; the file is being written) may pass.
pub fn is_pointless(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    let by_kind = matches!(
        error.kind(),
        NotFound
            | PermissionDenied
            | NotADirectory
            | IsADirectory
            | InvalidInput
            | InvalidFilename
            | ArgumentListTooLong
    );
    by_kind || matches!(Errno::from_io_error(error), Some(Errno::NOEXEC | Errno::LOOP))
}

/// Why `file` was not executed: the error, or its cause where that says more.
pub fn why_not_executed(file: &Path, error: &io::Error) -> String {
    let head = read_head(file).unwrap_or_default();
    let reason = match Errno::from_io_error(error) {
        Some(Errno::NOEXEC) => Some(why_wrong_format(&head)),
        Some(Errno::NOENT) if file.exists() => why_file_missing(&head),
        Some(Errno::ACCESS) => why_access_denied(&head),
        _ => None,
    };
    reason.unwrap_or_else(|| error.to_string())
}

/// Why a file cannot be executed, if that can be known before it is tried: it is a script, and its interpreter is not there; or
/// it has no format that the kernel knows, and nobody has taught it others.
pub fn why_never_executed(file: &Path) -> Option<String> {
    let head = read_head(file)?;
    if let Some(interpreter) = parse_interpreter(&head) {
        return if interpreter.exists() { None } else { why_file_missing(&head) };
    }
    has_no_format(&head).then(|| why_wrong_format(&head))
}

/// Whether it is certain that the kernel cannot execute a file that begins so. A 64-bit processor may run programs of its 32-bit
/// relative.
fn has_no_format(head: &[u8]) -> bool {
    let Some(machine) = parse_machine(head) else { return is_text(head) || knows_no_other_formats() };
    let ours = read_head(Path::new("/proc/self/exe")).and_then(|head| parse_machine(&head));
    let is_relative = machine.ends_with("(32 bits)");
    ours.is_some_and(|ours| ours != machine && !is_relative) && knows_no_other_formats()
}

/// Whether this is the beginning of a text, or nothing: other formats begin with bytes that no text has.
fn is_text(head: &[u8]) -> bool {
    head.iter().take(8).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

/// Whether it can be seen that nobody has told the kernel how to execute files of other formats, such as those of another
/// processor.
fn knows_no_other_formats() -> bool {
    const OWN_FILES: [&str; 2] = ["register", "status"];
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_else(|_| "binfmt_misc".to_owned());
    if !known.contains("binfmt_misc") {
        return true;
    }
    let Ok(folder) = std::fs::read_dir("/proc/sys/fs/binfmt_misc") else { return false };
    let names: Vec<_> = folder.flatten().map(|entry| entry.file_name()).collect();
    !names.is_empty() && names.iter().all(|name| OWN_FILES.iter().any(|own| name == own))
}

/// The first bytes of a file. None if it cannot be read; a program need not be readable.
fn read_head(file: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    File::open(file).ok()?.take(EXECUTABLE_HEAD_MAX).read_to_end(&mut head).ok()?;
    Some(head)
}

fn why_wrong_format(head: &[u8]) -> String {
    if head.is_empty() {
        return "it is no program: it is empty, or cannot be read".to_owned();
    }
    if let Some(machine) = parse_machine(head) {
        let ours = parse_machine(&read_head(Path::new("/proc/self/exe")).unwrap_or_default());
        return match ours {
            Some(ours) if ours != machine => {
                format!("it is a program for {machine}; this system runs programs for {ours}")
            }
            _ => "it is a program that this system cannot run, or a damaged one".to_owned(),
        };
    }
    match head.starts_with(b"#!") {
        true => "it is a script whose first line, after `#!`, names no interpreter".to_owned(),
        false => "it is neither a program nor a script, whose first line would be `#!` and an interpreter"
            .to_owned(),
    }
}

fn why_file_missing(head: &[u8]) -> Option<String> {
    if parse_machine(head).is_some() {
        return Some(
            "the file is there, but the loader of shared libraries that it asks for is not".to_owned(),
        );
    }
    let interpreter = parse_interpreter(head)?;
    let mut reason =
        format!("its interpreter `{}`, which its first line names, does not exist", shown(&interpreter));
    if interpreter.as_os_str().as_bytes().ends_with(b"\r") {
        reason.push_str(" (the line ends as in Windows, with a carriage return)");
    }
    Some(reason)
}

fn why_access_denied(head: &[u8]) -> Option<String> {
    let interpreter = parse_interpreter(head)?;
    let error = rustix::fs::access(&interpreter, rustix::fs::Access::EXEC_OK).err()?;
    Some(format!(
        "its interpreter `{}`, which its first line names: {}",
        shown(&interpreter),
        io::Error::from(error)
    ))
}

/// The interpreter in a line such as "#! /usr/bin/env -S python3". The kernel skips blanks, and the name ends at the
/// next one.
fn parse_interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t'));
    let word = words.find(|word| !word.is_empty())?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(word)))
}

fn shown(path: &Path) -> String {
    escape_line(path.as_os_str().as_bytes())
}

/// The processor that a program is for. None if the file is not an ELF file. See elf(5): class, byte order, then the
/// machine.
fn parse_machine(head: &[u8]) -> Option<String> {
    let head = head.strip_prefix(b"\x7fELF")?;
    let (class, order) = (*head.first()?, *head.get(1)?);
    let machine = [*head.get(14)?, *head.get(15)?];
    let machine = if order == 2 { u16::from_be_bytes(machine) } else { u16::from_le_bytes(machine) };
    let name = match machine {
        3 => "x86",
        8 => "MIPS",
        20 => "PowerPC",
        21 => "64-bit PowerPC",
        22 => "S/390",
        40 => "ARM",
        62 => "x86-64",
        183 => "AArch64",
        243 => "RISC-V",
        258 => "LoongArch",
        other => return Some(format!("another processor (ELF machine {other})")),
    };
    let bits = if class == 1 { "32" } else { "64" };
    Some(format!("{name} ({bits} bits)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Bytes of an ELF header, as far as the kernel asks for them first.
    fn elf(class: u8, machine: u16) -> Vec<u8> {
        let mut head = b"\x7fELF".to_vec();
        head.extend([class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        head.extend(machine.to_le_bytes());
        head.resize(128, 0);
        head
    }

    /// What is told of a file with this content that was executed. The kernel really is asked.
    fn refusal(content: &[u8]) -> (String, bool) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("worker");
        std::fs::write(&file, content).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(&file);
        let error = command.process_group(0).spawn().expect_err("it is not executable");
        (why_not_executed(&file, &error), is_pointless(&error))
    }

    #[test]
    fn a_script_without_its_interpreter_names_the_interpreter_and_not_itself() {
        let (why, is_pointless) = refusal(b"#! /no/such/python -u\nprint(1)\n");
        assert_eq!(why, "its interpreter `/no/such/python`, which its first line names, does not exist");
        assert!(is_pointless);
        let (why, _) = refusal(b"#!/bin/sh\r\necho\r\n");
        assert!(why.contains(r"`/bin/sh\r`") && why.contains("Windows"), "{why}");
    }

    #[test]
    fn an_interpreter_that_may_not_be_executed_is_named() {
        let (why, is_pointless) = refusal(b"#!/etc/passwd\n");
        assert!(
            why.starts_with("its interpreter `/etc/passwd`") && why.contains("ermission denied"),
            "{why}"
        );
        assert!(is_pointless);
    }

    #[test]
    fn a_program_for_another_processor_is_said_to_be_one() {
        let other = if cfg!(target_arch = "aarch64") { (62, "x86-64") } else { (183, "AArch64") };
        let (why, is_pointless) = refusal(&elf(2, other.0));
        assert!(why.starts_with(&format!("it is a program for {} (64 bits); this system", other.1)), "{why}");
        assert!(is_pointless);
    }

    #[test]
    fn what_has_no_format_at_all_is_no_program() {
        assert!(refusal(b"echo 1\n").0.starts_with("it is neither a program nor a script"));
        assert!(refusal(b"").0.starts_with("it is no program: it is empty"));
        assert!(refusal(b"#!\n").0.contains("names no interpreter"));
    }

    #[test]
    fn what_the_kernel_would_refuse_is_known_before_it_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let why = |content: &[u8]| {
            let file = folder.path().join("program");
            std::fs::write(&file, content).unwrap();
            why_never_executed(&file)
        };
        assert_eq!(why_never_executed(Path::new("/bin/sh")), None);
        assert_eq!(why(b"#!/bin/sh\n"), None);
        assert_eq!(why(&elf(1, 3)), None, "the kernel may have been built for it");
        assert!(why(b"#!/no/such/python\n").unwrap().contains("/no/such/python"));
        assert!(why(b"echo 1\n").unwrap().starts_with("it is neither a program nor a script"));
        assert!(why(b"").unwrap().starts_with("it is no program: it is empty"));
        if knows_no_other_formats() {
            assert!(why(b"\x89PNG\r\n\x1a\n").is_some());
            let other = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
            assert!(why(&elf(2, other)).unwrap().starts_with("it is a program for"));
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        for length in 0..64 {
            for head in [
                elf(1, 0xffff),
                vec![0xff; 64],
                b"#!                                                  ".to_vec(),
            ] {
                let head = &head[..length.min(head.len())];
                let _ = (
                    parse_machine(head),
                    parse_interpreter(head),
                    why_wrong_format(head),
                    why_file_missing(head),
                );
            }
        }
        assert_eq!(parse_machine(&elf(1, 40)).unwrap(), "ARM (32 bits)");
        assert!(parse_machine(&elf(2, 4711)).unwrap().contains("4711"));
    }

    #[test]
    fn other_errors_are_told_as_they_are() {
        let error = io::Error::from(Errno::TXTBSY);
        assert_eq!(why_not_executed(Path::new("/bin/sh"), &error), error.to_string());
        assert!(!is_pointless(&error));
        let missing = io::Error::from(Errno::NOENT);
        assert_eq!(why_not_executed(Path::new("/no/such/file"), &missing), missing.to_string());
    }
}
