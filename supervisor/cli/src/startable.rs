//! Whether the programs of a configuration can be started, as far as that can be known before they are.

use super::exec::configured_adapter;
use super::failure::Failure;
use super::http_worker::configured_applications;
use crate::configuration::table::{BUILTIN, COMMAND, HTTP, JSONL};
use crate::configuration::{Settings, WorkerCommand};
use offload_supervisor::workers::executable::why_never_executed;
use offload_supervisor::workers::find_executable_from;
use std::io::ErrorKind;
use std::path::Path;

/// Checks all programs that these settings name.
///
/// # Errors
/// [`Failure::Usage`], with the place of the first one that cannot be started.
pub(crate) fn check_programs(settings: &Settings) -> Result<(), Failure> {
    let values = &settings.values;
    let commands =
        [(COMMAND, &values.commands), (JSONL, &values.jsonl_commands), (HTTP, &values.http_commands)];
    let has_builtin = commands.iter().all(|(_, commands)| commands.is_empty());
    for (key, commands) in commands {
        for words in commands.iter().filter(|words| *words != &[BUILTIN]) {
            check_command(words).map_err(|why| Failure::Usage(format!("{}: {why}", settings.place(key))))?;
        }
    }
    configured_applications(settings)?;
    let has_builtin = has_builtin || values.commands.iter().any(|words| words == &[BUILTIN]);
    configured_adapter(settings, has_builtin).map(drop)
}

/// Why this is no folder, if it is none.
pub(crate) fn why_no_folder(path: &Path) -> Option<String> {
    let shown = path.display();
    match path.metadata() {
        Ok(about) if about.is_dir() => None,
        Ok(_) => Some(format!("{shown} is no folder")),
        Err(error) if error.kind() == ErrorKind::NotFound => Some(format!("the folder {shown} is not there")),
        Err(error) => Some(format!("the folder {shown} is of no use: {error}")),
    }
}

/// Checks the program of a command.
///
/// # Errors
/// A sentence for the person who wrote it.
pub(crate) fn check_command(words: &[String]) -> Result<(), String> {
    let WorkerCommand { words, folder, .. } = WorkerCommand::parse(words)?;
    let word = words.first().filter(|word| !word.is_empty()).ok_or("an empty command")?;
    let cannot = |why: String| format!("cannot start `{word}`: {why}");
    if let Some(why) = folder.as_deref().and_then(why_no_folder) {
        return Err(cannot(why));
    }
    let file = find_executable_from(word, folder.as_deref()).map_err(|error| cannot(error.to_string()))?;
    why_never_executed(&file).map_or(Ok(()), |why| Err(cannot(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_checked_by_its_first_word() {
        let check =
            |words: &[&str]| check_command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(check(&["sh", "/no/such/script"]), Ok(()));
        for (words, expected) in [
            (&[][..], "an empty command"),
            (&[""], "an empty command"),
            (&["no-such-program"], "cannot start `no-such-program`: no `no-such-program` in PATH"),
            (&["/no/such/program"], "cannot start `/no/such/program`: No such file"),
            (&["dir=/etc/passwd", "--", "sh"], "cannot start `sh`: /etc/passwd is no folder"),
            (&["dir=/no/such", "--", "sh"], "cannot start `sh`: the folder /no/such is not there"),
        ] {
            let why = check(words).unwrap_err();
            assert!(why.starts_with(expected), "{words:?}: {why}");
        }
    }
}
