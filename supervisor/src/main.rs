//! The one binary, `offload`: supervisor, client and built-in worker. Everything it does is in [`cli`].

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
