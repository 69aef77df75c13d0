//! Programs as tasks: `--exec 'CMD ARG...'`. Workers that are adapters ([`super::exec_worker`]) start the program once for each
//! job, with the input as its standard input.
//!
//! Whether the program can be started is checked first, so that nothing runs which could not succeed.

use super::failure::Failure;
use crate::configuration::split_words;
use clap::Args;
use offload_supervisor::Program;
use offload_supervisor::workers::executable::why_never_executed;
use offload_supervisor::workers::find_executable;
use offload_worker::exec::ExecTask;
use std::path::absolute;

/// The name of the adapters in tables and logs, and of the task of `--exec`.
pub(crate) const EXEC: &str = "exec";

/// The variable by which an adapter is told its tasks. Processes of other users cannot read it, as they could the arguments.
pub(crate) const TASKS_VARIABLE: &str = "OFFLOAD_EXEC_TASKS";

/// The flag that makes a program the task.
#[derive(Args, Debug, Default)]
pub(crate) struct ExecFlags {
    /// Run this program once for each job instead of a task: the input is its standard input, its standard output is the output.
    /// No shell is involved; for one, say sh -c '...'
    #[arg(long, value_name = "CMD ARG...", conflicts_with = "worker", value_parser = parse_command)]
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
        let task = exec_task(EXEC, words).map_err(|why| Failure::Usage(format!("--exec: {why}")))?;
        Ok(Some(task))
    }
}

/// A task that is the program of this command.
///
/// # Errors
/// A sentence for the person who wrote it: the program is not there, or cannot be executed.
pub(crate) fn exec_task(name: &str, words: &[String]) -> Result<ExecTask, String> {
    let word = words.first().ok_or("an empty command")?;
    let cannot = |why: String| format!("cannot start `{word}`: {why}");
    let found = find_executable(word).map_err(|error| cannot(error.to_string()))?;
    let program = absolute(found).map_err(|error| cannot(error.to_string()))?;
    match why_never_executed(&program) {
        Some(why) => Err(cannot(why)),
        None => Ok(ExecTask::new(name, program, words.to_vec())),
    }
}

/// The program of adapters for these tasks.
pub(crate) fn adapter(tasks: &[ExecTask]) -> Program {
    let tasks = serde_json::to_string(tasks).expect("texts and numbers are JSON");
    Program::own(EXEC, &["exec-worker"]).with_variable(TASKS_VARIABLE, &tasks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_that_cannot_be_started_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str, mode| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let why = |word: &str| exec_task("x", &[word.to_owned()]).unwrap_err();
        assert!(why("no-such-program").contains("no `no-such-program` in PATH"));
        assert!(why("/no/such/program").contains("No such file"));
        assert!(why("/").contains("ermission denied"));
        assert!(why(&file("data", "data", 0o644)).contains("ermission denied"));
        let script = file("script", "#!/no/such/python\n", 0o755);
        assert!(why(&script).contains("its interpreter `/no/such/python`"), "{}", why(&script));
    }

    #[test]
    fn a_program_is_found_before_it_is_needed() {
        let task = exec_task("x", &["sh".to_owned(), "-c".to_owned()]).unwrap();
        assert!(task.program.is_absolute() && task.program.ends_with("sh"));
        assert_eq!(task.words, ["sh", "-c"]);
        let text = serde_json::to_string(&[&task]).unwrap();
        assert_eq!(serde_json::from_str::<Vec<ExecTask>>(&text).unwrap(), [task]);
    }
}
