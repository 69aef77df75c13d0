//! `cargo bench -p offload -- [FLAG ...]` is `offload bench pool` with these flags, in a release build. There is nothing
//! else in here, because the workers and the children of the benchmark are the program itself.
//!
//! Link-time optimization makes the build take minutes; see README.md for a quicker one.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` does not say `--bench`, asks for lists, and hands over filters that are meant for others.
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    if !is_bench && !arguments.is_empty() {
        return ExitCode::SUCCESS;
    }
    let flags = arguments.into_iter().filter(|argument| argument != "--bench");
    let mut command = Command::new(env!("CARGO_BIN_EXE_offload"));
    command.args(["bench", "pool"]).args(flags).args((!is_bench).then_some("--quick"));
    let error = command.exec();
    eprintln!("cannot start {}: {error}", command.get_program().display());
    ExitCode::FAILURE
}
