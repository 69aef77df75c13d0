//! What is said of a task that is a program, and how a process of it is started.

use super::template;
use crate::task::{Output, Task, TaskError};
use crate::{Input, MediaType, TaskContext};
use bytes::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Variables of a worker that are not for the programs that it starts.
const OWN_VARIABLES: &str = "OFFLOAD_";

/// A task that is a program. It is data, so that whoever starts an adapter can pass it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecTask {
    /// The name that jobs ask for.
    pub name: String,
    /// The file that is executed. It is not searched for.
    pub program: PathBuf,
    /// The words of the command: the first one is the name by which the program is called. The others may have places for the
    /// input, as `{}`.
    pub words: Vec<String>,
    /// Whether inputs come from others: none may make a word that begins with `-` then, because the program could take it for an
    /// option.
    pub guards: bool,
    /// Variables that are set in its environment, beside those of the adapter.
    pub environment: BTreeMap<String, String>,
    /// The folder that it is started in; the adapter's own if there is none.
    pub folder: Option<PathBuf>,
    /// How long it may run before it is ended. The time limit of the job holds, too.
    pub timeout: Option<Duration>,
    /// The most memory that it and all that it has started may use, in bytes. Shared memory counts, and files that are mapped do
    /// not. A page counts once, but for a child that has the memory of its parent until it becomes another program.
    pub memory: Option<u64>,
    /// The longest file that it may write, in bytes; one more byte is SIGXFSZ.
    pub file_size: Option<u64>,
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
            guards: false,
            environment: BTreeMap::new(),
            folder: None,
            timeout: None,
            memory: None,
            file_size: None,
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

    /// Whether the input is in the command. Otherwise it is standard input.
    pub(super) fn has_place_for_input(&self) -> bool {
        template::has_place_for_input(&self.words)
    }

    /// The arguments for this input.
    ///
    /// # Errors
    /// A sentence that says why it cannot be a part of a command.
    pub(super) fn arguments(&self, input: &Input, number: u64) -> Result<Vec<OsString>, String> {
        template::arguments(&self.words, &input.bytes, number, self.guards)
    }

    /// Starts a process, in a group of its own.
    ///
    /// The standard library does so by posix_spawn, which costs a fraction of a fork: the path is complete, and nothing is run
    /// between fork and exec.
    pub(super) fn start(&self, arguments: &[OsString], has_stdin: bool) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        if let Some(name) = self.words.first() {
            command.arg0(name);
        }
        command.args(arguments).env_clear().envs(inherited_variables()).envs(&self.environment);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        // An adapter's own standard input is always empty.
        let stdin = if has_stdin { Stdio::piped() } else { Stdio::inherit() };
        command.process_group(0).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        with_file_size(self.file_size, || command.spawn())
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

/// A process inherits the limits of whoever starts it. This one writes no files.
fn with_file_size<T>(limit: Option<u64>, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(limit) = limit else { return start() };
    let before = getrlimit(Resource::Fsize);
    let lowered = before.maximum.map_or(limit, |most| most.min(limit));
    setrlimit(Resource::Fsize, Rlimit { current: Some(lowered), ..before })?;
    let started = start();
    setrlimit(Resource::Fsize, before)?;
    started
}

/// The clean environment of a worker, without what is for workers alone.
fn inherited_variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with(OWN_VARIABLES))
}
