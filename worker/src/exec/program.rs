//! What is said of a task that is a program, and how a process of it is started.

use crate::task::{Output, Task, TaskError};
use crate::{Input, MediaType, TaskContext};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Variables of a worker that are not for the programs that it starts.
const OWN_VARIABLES: &str = "OFFLOAD_";

/// A task that is a program. It is data, so that whoever starts an adapter can pass it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecTask {
    /// The name that jobs ask for.
    pub name: String,
    /// The file that is executed. It is not searched for.
    pub program: PathBuf,
    /// The words of the command: the first one is the name by which the program is called.
    pub words: Vec<String>,
    /// Variables that are set in its environment, beside those of the adapter.
    pub environment: BTreeMap<String, String>,
    /// The folder that it is started in; the adapter's own if there is none.
    pub folder: Option<PathBuf>,
    /// The exit codes that mean success.
    pub success: Vec<i32>,
    /// Whether running it twice does no harm.
    pub idempotent: bool,
    /// The media types that it takes.
    pub accepts: Vec<MediaType>,
    /// What it prints. If nothing is said: text if it is UTF-8, and otherwise bytes.
    pub produces: Option<MediaType>,
}

impl ExecTask {
    /// A task of which nothing else is said.
    pub fn new(name: impl Into<String>, program: PathBuf, words: Vec<String>) -> ExecTask {
        ExecTask {
            name: name.into(),
            program,
            words,
            environment: BTreeMap::new(),
            folder: None,
            success: vec![0],
            idempotent: false,
            accepts: Vec::new(),
            produces: None,
        }
    }

    /// The task that a worker offers.
    pub(super) fn offered<F>(&self, run: F) -> Task
    where
        F: FnMut(Input, &mut TaskContext<'_>) -> Result<Output, TaskError> + 'static,
    {
        let mut task = Task::raw(&self.name, run).accepts(self.accepts.clone());
        if self.idempotent {
            task = task.idempotent();
        }
        match &self.produces {
            Some(media_type) => task.produces(media_type.clone()),
            None => task,
        }
    }

    /// Starts a process, in a group of its own.
    ///
    /// The standard library does so by posix_spawn, which costs a fraction of a fork: the path is complete, and nothing is run
    /// between fork and exec.
    pub(super) fn start(&self, input: &Input) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        if let Some((name, arguments)) = self.words.split_first() {
            command.arg0(name).args(arguments);
        }
        command.env_clear().envs(inherited_variables()).envs(&self.environment);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        // An adapter's own standard input is always empty.
        let stdin = if input.bytes.is_empty() { Stdio::inherit() } else { Stdio::piped() };
        command.process_group(0).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }

    /// What the program has printed, with its media type.
    pub(super) fn output(&self, printed: Vec<u8>) -> Output {
        let media_type = match &self.produces {
            Some(media_type) => media_type.clone(),
            None if std::str::from_utf8(&printed).is_ok() => MediaType::TEXT,
            None => MediaType::OCTET_STREAM,
        };
        Output { bytes: Bytes::from(printed), media_type }
    }

    /// Whether a program that has exited with this code has succeeded.
    pub(super) fn is_success(&self, code: i32) -> bool {
        self.success.contains(&code)
    }
}

/// The clean environment of a worker, without what is for workers alone.
fn inherited_variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with(OWN_VARIABLES))
}
