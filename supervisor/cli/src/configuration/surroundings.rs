//! In what a worker program runs: `env`, `dir` and `open_files` of a `[[pool]]`, or `env=A=b dir=/srv -- CMD ARG...` as a flag.
//!
//! A pool's are put in front of its command, so that file, variable and flag say the same, and a command stays one list of words.

use super::table::BUILTIN;
use offload_protocol::limits::OPEN_FILES_HIGHEST;
use offload_supervisor::Program;
use offload_worker::confine::OPEN_FILES_VARIABLE;
use offload_worker::limits::OPEN_FILES_LOWEST;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A variable of its environment, as NAME=TEXT; may be said several times.
pub(super) const ENVIRONMENT: &str = "env";
/// The folder that it is started in.
pub(super) const FOLDER: &str = "dir";
/// How many files it may have open.
pub(super) const OPEN_FILES: &str = "open_files";

/// What may be said of a worker program.
pub(super) const FIELDS: [&str; 3] = [ENVIRONMENT, FOLDER, OPEN_FILES];

/// Between what is said of a program and its command.
const COMMAND_FOLLOWS: &str = "--";

/// The command of a worker program, with what is said of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerCommand {
    /// The command, as its words.
    pub(crate) words: Vec<String>,
    environment: BTreeMap<String, String>,
    /// The folder that it is started in, if it is not the supervisor's.
    pub(crate) folder: Option<PathBuf>,
    open_files: Option<u64>,
}

impl WorkerCommand {
    /// Reads the words of a command.
    ///
    /// # Errors
    /// A sentence for the person who wrote them.
    pub(crate) fn parse(words: &[String]) -> Result<WorkerCommand, String> {
        let end = words.iter().position(|word| word == COMMAND_FOLLOWS);
        let is_field =
            |word: &String| field_of(word).is_some() || (end.is_some() && may_be_meant_as_field(word));
        if !words.first().is_some_and(is_field) {
            return Ok(WorkerCommand { words: words.to_vec(), ..WorkerCommand::default() });
        }
        let end = end.ok_or("write `--` in front of the command, as in `dir=/srv -- python3 worker.py`")?;
        let mut command = WorkerCommand { words: words[end + 1..].to_vec(), ..WorkerCommand::default() };
        for word in &words[..end] {
            let (field, text) =
                field_of(word).ok_or_else(|| format!("{word:?} is none of {}", FIELDS.join("=, ") + "="))?;
            command.set(field, text)?;
        }
        if command.words == [BUILTIN] {
            return Err(format!("the built-in worker takes none of {}", FIELDS.join(", ")));
        }
        Ok(command)
    }

    fn set(&mut self, field: &str, text: &str) -> Result<(), String> {
        match field {
            FOLDER if text.is_empty() => return Err(format!("{FOLDER}: the path is empty")),
            FOLDER => self.folder = Some(PathBuf::from(text)),
            OPEN_FILES => self.open_files = Some(number_of_files(text)?),
            _ => {
                let wrong = || format!("{text:?} is no variable: write it as in LANG=C.UTF-8");
                let (name, value) = text.split_once('=').ok_or_else(wrong)?;
                if name.is_empty() || text.contains('\0') {
                    return Err(wrong());
                }
                self.environment.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(())
    }

    /// The program of this command, with these words in front of it.
    pub(crate) fn program(self, front: Vec<String>) -> Program {
        let mut program = Program::command(self.words).with_shim(front);
        for (name, value) in &self.environment {
            program = program.with_variable(name, value);
        }
        if let Some(count) = self.open_files {
            program = program.with_variable(OPEN_FILES_VARIABLE, &count.to_string());
        }
        match self.folder {
            Some(folder) => program.in_folder(folder),
            None => program,
        }
    }
}

/// A number that the operating system takes.
fn number_of_files(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (OPEN_FILES_LOWEST..=OPEN_FILES_HIGHEST).contains(number));
    number.ok_or_else(|| {
        format!("{OPEN_FILES}: {text:?} is no number of files: from {OPEN_FILES_LOWEST} to {OPEN_FILES_HIGHEST} are possible")
    })
}

/// The field and its text, if this is one.
fn field_of(word: &str) -> Option<(&str, &str)> {
    word.split_once('=').filter(|(field, _)| FIELDS.contains(field))
}

/// Whether this is written like a field. A program whose path has a `=` in it is named with a `/` in front of that.
fn may_be_meant_as_field(word: &str) -> bool {
    word.split_once('=').is_some_and(|(field, _)| !field.contains('/'))
}

/// What a pool says of its program, in front of the words of its command.
pub(super) fn with_fields(fields: &[(&str, String)], words: Vec<String>) -> Vec<String> {
    if fields.is_empty() {
        return words;
    }
    let said = fields.iter().map(|(field, text)| format!("{field}={text}"));
    said.chain([COMMAND_FOLLOWS.to_owned()]).chain(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::split_words;

    fn parse(text: &str) -> Result<WorkerCommand, String> {
        WorkerCommand::parse(&split_words(text).unwrap())
    }

    #[test]
    fn what_is_said_of_a_program_stands_in_front_of_its_command() {
        let command = parse("env=A=b 'env=C=d e' dir=/srv open_files=500 -- sh -c -- env=x").unwrap();
        assert_eq!(command.words, ["sh", "-c", "--", "env=x"]);
        assert_eq!(
            command.environment.into_iter().collect::<Vec<_>>(),
            [("A", "b"), ("C", "d e")].map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!((command.folder, command.open_files), (Some("/srv".into()), Some(500)));
    }

    #[test]
    fn any_other_command_is_only_a_command() {
        for text in ["python3 worker.py", "env A=b ./worker", "sh -- dir=/srv", "bogus=1 y", "./a=b -- y"] {
            let command = parse(text).unwrap();
            assert_eq!(
                command,
                WorkerCommand { words: split_words(text).unwrap(), ..WorkerCommand::default() }
            );
        }
    }

    #[test]
    fn what_cannot_be_said_is_refused_with_what_is_wrong() {
        for (text, expected) in [
            ("dir=/srv python3 worker.py", "write `--`"),
            ("dir=/srv x -- y", "\"x\" is none of env=, dir=, open_files="),
            ("bogus=1 -- python3 x", "\"bogus=1\" is none of env=, dir=, open_files="),
            ("environment=x dir=/srv -- y", "\"environment=x\" is none of env=, dir=, open_files="),
            ("dir= -- y", "the path is empty"),
            ("env=X -- y", "no variable"),
            ("open_files=8 -- y", "from 16 to 4096"),
            ("dir=/srv -- builtin", "the built-in worker takes none of env, dir, open_files"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
