//! The other event loops: their programs, which are in `benches/peers/`, and why one is not here.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where their sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers");
/// Where programs are built, beside everything else that cargo builds.
const BUILT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/event_loop_peers");

/// Which program a peer's bench belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Libuv,
    Node,
    /// Node with the script for long work.
    NodeLongWork,
    /// tokio, smol, calloop and other crates.
    Crates,
}

/// The programs that are here, and for each that is not, the reason.
pub(crate) struct Peers {
    libuv: Result<PathBuf, String>,
    node: Result<(), String>,
    crates: Result<PathBuf, String>,
}

impl Peers {
    /// Builds what can be built here.
    pub(crate) fn prepare() -> Peers {
        let made = std::fs::create_dir_all(BUILT).map_err(|error| format!("{BUILT}: {error}"));
        let libuv = made.clone().and_then(|()| build_libuv());
        Peers { libuv, node: find_node(), crates: made.and_then(|()| build_crates()) }
    }

    /// The command that runs a bench of `program`, or why there is none.
    pub(crate) fn command(&self, program: Program) -> Result<Command, &str> {
        let with_script = |script: &str| {
            let mut command = Command::new("node");
            command.arg(Path::new(SOURCES).join("node").join(script));
            command
        };
        match program {
            Program::Libuv => self.libuv.as_ref().map(Command::new),
            Program::Crates => self.crates.as_ref().map(Command::new),
            Program::Node => self.node.as_ref().map(|()| with_script("bench.js")),
            Program::NodeLongWork => self.node.as_ref().map(|()| with_script("long_work.js")),
        }
        .map_err(String::as_str)
    }

    /// A line for each program that is not here.
    pub(crate) fn missing(&self) -> Vec<String> {
        let all = [
            ("libuv", self.libuv.as_ref().err()),
            ("Node", self.node.as_ref().err()),
            ("tokio and other crates", self.crates.as_ref().err()),
        ];
        let missing = all.iter().filter_map(|(name, reason)| Some((name, reason.as_ref()?)));
        missing.map(|(name, reason)| format!("{name}: not here: {reason}")).collect()
    }
}

/// With a libuv that is not where the compiler looks, `CPATH` and `LIBRARY_PATH` say where it is.
fn build_libuv() -> Result<PathBuf, String> {
    let (source, built) = (Path::new(SOURCES).join("uv/uvbench.c"), Path::new(BUILT).join("uvbench"));
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-o"]).arg(&built).arg(source).args(["-luv", "-lpthread"]);
    succeed(compile)?;
    Ok(built)
}

fn find_node() -> Result<(), String> {
    let mut version = Command::new("node");
    version.arg("--version");
    succeed(version)
}

/// Takes minutes the first time.
fn build_crates() -> Result<PathBuf, String> {
    let (manifest, built) = (Path::new(SOURCES).join("rust/Cargo.toml"), Path::new(BUILT).join("rust"));
    eprintln!("building tokio and the other crates, which takes minutes the first time");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(manifest);
    build.arg("--target-dir").arg(&built);
    succeed(build)?;
    Ok(built.join("release/event-loop-peers"))
}

fn succeed(mut command: Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let telling = said.lines().find(|line| line.contains("error")).or(said.lines().next());
    let reason = || format!("{name} said {}", telling.unwrap_or("nothing"));
    output.status.success().then_some(()).ok_or_else(reason)
}
