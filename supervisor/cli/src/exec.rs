//! Programs as tasks: `--exec 'CMD ARG...'`. Workers that are adapters ([`super::exec_worker`]) start the program once for each
//! job, with the input as its standard input.
//!
//! Whether the program can be started is checked first, so that nothing runs which could not succeed.

use super::failure::Failure;
use super::startable::why_no_folder;
use crate::configuration::{Settings, TaskProgram, split_words};
use crate::limits::EXEC_TASKS_BYTES_MAX;
use clap::Args;
use offload_supervisor::Program;
use offload_supervisor::workers::executable::why_never_executed;
use offload_supervisor::workers::find_executable;
use offload_worker::builtin;
use offload_worker::exec::{ExecTask, has_place_for_input};
use std::io;
use std::path::{Path, PathBuf, absolute};

/// The name of the adapters in tables and logs, and of the task of `--exec`.
pub(crate) const EXEC: &str = "exec";

/// The variable by which an adapter is told its tasks. Processes of other users cannot read it, as they could the arguments.
pub(crate) const TASKS_VARIABLE: &str = "OFFLOAD_ADAPTER_TASKS";

/// The flag that makes a program the task.
#[derive(Args, Debug, Default)]
pub(crate) struct ExecFlags {
    /// Run this program once for each job instead of a task: its standard output is the output. The input is its standard input,
    /// or where {} stands ({.} without extension, {/} file name, {#} job number). No shell is involved; for one, say sh -c '...'
    #[arg(long, value_name = "CMD ARG...", conflicts_with_all = ["worker", "worker-jsonl", "worker-http"], value_parser = parse_command)]
    exec: Option<Words>,
}

/// A command, cut into words. It has a type of its own because clap takes a list for a flag that may be repeated.
#[derive(Clone, Debug)]
struct Words(Vec<String>);

/// For clap.
fn parse_command(text: &str) -> Result<Words, String> {
    split_words(text).map(Words)
}

impl ExecFlags {
    /// The flag as it is typed, if it was given.
    pub(crate) fn given(&self) -> Option<String> {
        self.exec.as_ref().map(|_| "--exec".to_owned())
    }

    /// The task, if the flag is given.
    ///
    /// # Errors
    /// [`Failure::Usage`] if its program cannot be started.
    pub(crate) fn task(&self) -> Result<Option<ExecTask>, Failure> {
        let Some(Words(words)) = &self.exec else { return Ok(None) };
        let program = TaskProgram { words: words.clone(), ..TaskProgram::default() };
        let task = exec_task(EXEC, &program).map_err(|why| Failure::Usage(format!("--exec: {why}")))?;
        Ok(Some(task))
    }
}

/// A task that is the program of this command.
///
/// # Errors
/// A sentence for the person who wrote it: the program is not there, or cannot be executed.
pub(crate) fn exec_task(name: &str, said: &TaskProgram) -> Result<ExecTask, String> {
    let word = said.words.first().ok_or("an empty command")?;
    let cannot = |why: String| format!("cannot start `{word}`: {why}");
    if has_place_for_input(&[String::new(), word.clone()]) {
        return Err(format!("`{word}`: the program itself cannot be the input"));
    }
    let file = find(word, said).map_err(|error| cannot(error.to_string()))?;
    if let Some(why) = why_never_executed(&file) {
        return Err(cannot(why));
    }
    let TaskProgram { words, timeout, memory, file_size, environment, folder, .. } = said.clone();
    let TaskProgram { success, idempotent, accepts, produces, .. } = said.clone();
    let success = if success.is_empty() { vec![0] } else { success };
    Ok(ExecTask {
        timeout,
        memory,
        file_size,
        environment,
        folder,
        success,
        idempotent,
        accepts,
        produces,
        ..ExecTask::new(name, file, words)
    })
}

/// A task whose inputs come from others.
fn guarded_task(name: &str, said: &TaskProgram) -> Result<ExecTask, String> {
    exec_task(name, said).map(|task| ExecTask { guards: true, ..task })
}

/// The file that is executed. A path is that from the folder in which the program is started.
fn find(word: &str, said: &TaskProgram) -> io::Result<PathBuf> {
    let folder = said.folder.as_deref().unwrap_or(Path::new(""));
    if let Some(why) = said.folder.as_deref().and_then(why_no_folder) {
        return Err(io::Error::other(why));
    }
    match word.contains('/') {
        true => absolute(find_executable(&folder.join(word).to_string_lossy())?),
        false => absolute(find_executable(word)?),
    }
}

/// The adapters of the tasks in the configuration, if there are any.
///
/// # Errors
/// [`Failure::Usage`] if a program cannot be started, or if there is a built-in task of its name.
pub(crate) fn configured_adapter(settings: &Settings, has_builtin: bool) -> Result<Option<Program>, Failure> {
    let programs = &settings.values.programs;
    let usage = |name: &str, why: String| Failure::Usage(format!("{}: {why}", settings.place_of_task(name)));
    if let Some(task) =
        builtin::tasks(false).iter().find(|task| has_builtin && programs.contains_key(task.name()))
    {
        return Err(usage(task.name(), "there is a built-in task of this name".to_owned()));
    }
    let tasks: Result<Vec<_>, _> = programs
        .iter()
        .map(|(name, said)| guarded_task(name, said).map_err(|why| usage(name, why)))
        .collect();
    let tasks = tasks?;
    match as_text(&tasks).len() {
        _ if tasks.is_empty() => Ok(None),
        0..=EXEC_TASKS_BYTES_MAX => Ok(Some(adapter(&tasks))),
        length => Err(Failure::Usage(format!(
            "the tasks that are programs have {length} bytes, at most {EXEC_TASKS_BYTES_MAX} can be passed to workers"
        ))),
    }
}

/// The program of adapters for these tasks.
pub(crate) fn adapter(tasks: &[ExecTask]) -> Program {
    Program::own(EXEC, &["exec-worker"]).with_variable(TASKS_VARIABLE, &as_text(tasks))
}

fn as_text(tasks: &[ExecTask]) -> String {
    serde_json::to_string(tasks).expect("texts and numbers are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn said(words: &[&str]) -> TaskProgram {
        TaskProgram { words: words.iter().map(|word| (*word).to_owned()).collect(), ..TaskProgram::default() }
    }

    #[test]
    fn a_program_that_cannot_be_started_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str, mode| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let why = |word: &str| exec_task("x", &said(&[word])).unwrap_err();
        assert!(why("no-such-program").contains("no `no-such-program` in PATH"));
        assert!(why("/no/such/program").contains("No such file"));
        assert!(why("/").contains("ermission denied"));
        assert!(why(&file("data", "data", 0o644)).contains("ermission denied"));
        let script = file("script", "#!/no/such/python\n", 0o755);
        assert!(why(&script).contains("its interpreter `/no/such/python`"), "{}", why(&script));
    }

    #[test]
    fn a_program_is_found_before_it_is_needed() {
        let task = exec_task("x", &said(&["sh", "-c"])).unwrap();
        assert!(task.program.is_absolute() && task.program.ends_with("sh"));
        assert_eq!(task.words, ["sh", "-c"]);
        let text = serde_json::to_string(&[&task]).unwrap();
        assert_eq!(serde_json::from_str::<Vec<ExecTask>>(&text).unwrap(), [task]);
    }
}
