//! Where the programs under test are, and that they are built.

use super::workspace;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The binary under test, of the profile that the tests were built with.
pub fn offload() -> PathBuf {
    program("offload")
}

/// A program of this workspace, such as `faultworker` or `own_task`.
pub fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(find_programs).join(name)
}

/// Names the folder of programs that are built already, as `tests/all` builds them: together with the tests, so that nothing is
/// compiled twice.
const BUILT_PROGRAMS: &str = "OFFLOAD_TEST_PROGRAMS";

/// They are where [`BUILT_PROGRAMS`] says, else beside us, or one folder up from a test. Cargo builds those of other packages
/// only when asked to; who was not started by cargo has to have asked.
fn find_programs() -> PathBuf {
    let folder = std::env::var_os(BUILT_PROGRAMS).map_or_else(build_beside_us, PathBuf::from);
    assert!(folder.join("offload").exists(), "no program `offload` in {}", folder.display());
    folder
}

fn build_beside_us() -> PathBuf {
    let ourselves = std::env::current_exe().expect("a test has a path");
    let mut folder = ourselves.parent().expect("target/PROFILE/...").to_owned();
    let is_test = folder.ends_with("deps");
    if is_test {
        folder.pop();
    }
    if is_test || std::env::var_os("CARGO").is_some() {
        build_programs(&folder);
    }
    folder
}

fn build_programs(folder: &Path) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--bins", "-p", "offload", "-p", "tests", "-p", "examples"]);
    cargo.arg("--target-dir").arg(folder.parent().expect("target"));
    if !folder.ends_with("debug") {
        cargo.arg("--profile").arg(folder.file_name().expect("the folder of a profile"));
    }
    let status = cargo.current_dir(workspace()).status().expect("cargo can be run");
    assert!(status.success(), "the programs under test do not build");
}
