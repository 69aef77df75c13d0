//! Folders and programs that tests make.

use super::program;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A folder that only we can enter, gone when dropped.
pub fn private_folder() -> TempDir {
    let private = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix("offload-").permissions(private).tempdir().expect("a temporary folder")
}

/// A copy of a program where any user can start it: ours may lie in a folder that is for us alone.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_for_anybody(folder: &Path, name: &str) -> PathBuf {
    let copy = folder.join(name);
    write_executable(&copy, &std::fs::read(program(name)).expect("it is built"));
    copy
}

/// Makes a file that can be executed at once. Another process writes it: what a test beside this one starts at this moment
/// would inherit our descriptor, and a file that somebody may still write to is not executed.
///
/// # Panics
/// If it cannot be made.
pub fn write_executable(file: &Path, content: &[u8]) {
    let mut writer = Command::new("sh");
    let mut writer = writer
        .args(["-c", "cat > \"$0\""])
        .arg(file)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh can be started");
    writer.stdin.take().expect("piped").write_all(content).expect("it reads");
    assert!(writer.wait().expect("our own child").success(), "{} is written", file.display());
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).expect("our own file");
}
