//! The other event loops: where their programs come from, and why one is not here.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where programs are built, beside everything else that cargo builds.
const BUILT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/event_loop_peers");

/// Which program a peer's bench belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Libuv,
    Node,
    /// Node with our script for what the peers' folder has no bench for.
    NodeLongWork,
    /// tokio, smol, calloop and other crates.
    Crates,
}

/// The programs that are here, and for each that is not, the reason.
pub(crate) struct Peers {
    libuv: Result<PathBuf, String>,
    node: Result<PathBuf, String>,
    crates: Result<PathBuf, String>,
}

impl Peers {
    /// Builds what can be built from `folder`.
    pub(crate) fn prepare(folder: &Path) -> Peers {
        let made = std::fs::create_dir_all(BUILT).map_err(|error| format!("{BUILT}: {error}"));
        let libuv = made.clone().and_then(|()| build_libuv(folder));
        Peers { libuv, node: find_node(folder), crates: made.and_then(|()| build_crates(folder)) }
    }

    /// The command that runs a bench of `program`, or why there is none.
    pub(crate) fn command(&self, program: Program) -> Result<Command, &str> {
        let with_script = |script: &Path| {
            let mut command = Command::new("node");
            command.arg(script);
            command
        };
        match program {
            Program::Libuv => self.libuv.as_ref().map(Command::new),
            Program::Crates => self.crates.as_ref().map(Command::new),
            Program::Node => self.node.as_ref().map(|script| with_script(script)),
            Program::NodeLongWork => self.node.as_ref().map(|_| with_script(&long_work())),
        }
        .map_err(String::as_str)
    }

    /// A line for each program that is not here.
    pub(crate) fn missing(&self) -> Vec<String> {
        let all = [("libuv", &self.libuv), ("Node", &self.node), ("tokio and other crates", &self.crates)];
        let missing = all.iter().filter_map(|(name, found)| Some((name, found.as_ref().err()?)));
        missing.map(|(name, reason)| format!("{name}: not here: {reason}")).collect()
    }
}

fn long_work() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/event_loop/node_long_work.js")
}

fn build_libuv(folder: &Path) -> Result<PathBuf, String> {
    let (source, built) = (existing(folder.join("uv/uvbench.c"))?, Path::new(BUILT).join("uvbench"));
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-o"]).arg(&built).arg(source).args(["-luv", "-lpthread"]);
    succeed(compile)?;
    Ok(built)
}

fn find_node(folder: &Path) -> Result<PathBuf, String> {
    let mut version = Command::new("node");
    version.arg("--version");
    succeed(version)?;
    existing(folder.join("node/bench.js"))
}

/// Takes minutes the first time.
fn build_crates(folder: &Path) -> Result<PathBuf, String> {
    let (manifest, built) = (existing(folder.join("rust/Cargo.toml"))?, Path::new(BUILT).join("rust"));
    eprintln!("building tokio and the other crates, which takes minutes the first time");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(manifest);
    build.arg("--target-dir").arg(&built);
    succeed(build)?;
    Ok(built.join("release/evbench"))
}

fn existing(path: PathBuf) -> Result<PathBuf, String> {
    if path.exists() { Ok(path) } else { Err(format!("no file {}", path.display())) }
}

fn succeed(mut command: Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let telling = said.lines().find(|line| line.contains("error")).or(said.lines().next());
    let reason = || format!("{name} said {}", telling.unwrap_or("nothing"));
    output.status.success().then_some(()).ok_or_else(reason)
}
