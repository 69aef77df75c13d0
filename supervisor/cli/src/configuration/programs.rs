//! Tasks that are programs: `[task.NAME] exec = [...]` in the file, `NAME [FIELD=TEXT]... -- CMD ARG...` on the command line.

use super::words::{join_words, split_words};
use offload_protocol::nouns::{MediaType, TASK_NAMES, is_task_name};
use offload_supervisor::units::{parse_duration, parse_size, show_duration, show_size};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::time::Duration;

/// The field that makes a task a program.
pub(super) const EXEC: &str = "exec";

/// What may be said of a task that is a program.
pub(super) const FIELDS: [&str; 10] =
    [EXEC, "timeout", "memory", "file_size", "env", "dir", "success", "idempotent", "accepts", "produces"];

/// Between what is said of a task and its command.
const COMMAND_FOLLOWS: &str = "--";

/// Between two tasks.
const SEPARATOR: &str = ";";

/// What is said of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskProgram {
    /// The command, as its words.
    pub(crate) words: Vec<String>,
    /// How long it may run.
    pub(crate) timeout: Option<Duration>,
    /// How much memory it may use, in bytes.
    pub(crate) memory: Option<u64>,
    /// How long a file may be that it writes, in bytes.
    pub(crate) file_size: Option<u64>,
    /// Variables of its environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// The folder that it is started in.
    pub(crate) folder: Option<PathBuf>,
    /// The exit codes that mean success; 0 if none is named.
    pub(crate) success: Vec<i32>,
    /// Whether running it twice does no harm.
    pub(crate) idempotent: bool,
    /// The media types that it takes.
    pub(crate) accepts: Vec<MediaType>,
    /// What it prints.
    pub(crate) produces: Option<MediaType>,
}

impl TaskProgram {
    /// Sets a field, as it is typed.
    ///
    /// # Errors
    /// A sentence for the person who wrote it.
    pub(super) fn set(&mut self, field: &str, text: &str) -> Result<(), String> {
        let media_type = |text: &str| text.trim().parse().map_err(|_| format!("{text:?} is no media type"));
        match field {
            EXEC => self.words = split_words(text)?,
            "timeout" => self.timeout = Some(more_than_nothing(parse_duration(text)?, text)?),
            "memory" => self.memory = Some(more_than_nothing(parse_size(text)?, text)?),
            "file_size" => self.file_size = Some(parse_size(text)?),
            "env" => self.set_variable(text)?,
            "dir" => self.folder = Some(folder(text)?),
            "success" => self.success.push(exit_code(text)?),
            "idempotent" => self.idempotent = switch(text)?,
            "accepts" => {
                let more: Result<Vec<MediaType>, _> = text.split(',').map(media_type).collect();
                self.accepts.extend(more?);
            }
            "produces" => self.produces = Some(media_type(text)?),
            other => {
                return Err(format!("{other:?} is none of {}", FIELDS.join(", ")));
            }
        }
        Ok(())
    }

    fn set_variable(&mut self, text: &str) -> Result<(), String> {
        let wrong = || format!("{text:?} is no variable: write it as in LANG=C.UTF-8");
        let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
        if text.contains('\0') {
            return Err(wrong());
        }
        self.environment.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// The same words again, so that they can be read.
    fn show(&self, name: &str) -> String {
        let mut words = vec![name.to_owned()];
        let mut say =
            |field: &str, text: Option<String>| words.extend(text.map(|text| format!("{field}={text}")));
        say("timeout", self.timeout.map(show_duration));
        say("memory", self.memory.map(show_size));
        say("file_size", self.file_size.map(show_size));
        self.environment.iter().for_each(|(name, value)| say("env", Some(format!("{name}={value}"))));
        say("dir", self.folder.as_ref().map(|folder| folder.to_string_lossy().into_owned()));
        self.success.iter().for_each(|code| say("success", Some(code.to_string())));
        say("idempotent", self.idempotent.then(|| "true".to_owned()));
        self.accepts.iter().for_each(|media_type| say("accepts", Some(media_type.to_string())));
        say("produces", self.produces.as_ref().map(MediaType::to_string));
        words.push(COMMAND_FOLLOWS.to_owned());
        words.extend(self.words.iter().cloned());
        join_words(&words)
    }
}

fn more_than_nothing<T: Default + PartialEq>(value: T, text: &str) -> Result<T, String> {
    if value == T::default() { Err(format!("{text:?} leaves nothing to run with")) } else { Ok(value) }
}

fn folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("the path is empty".to_owned()) } else { Ok(PathBuf::from(text)) }
}

fn exit_code(text: &str) -> Result<i32, String> {
    text.parse::<u8>().map(i32::from).map_err(|_| format!("{text:?} is no exit code: these are 0 to 255"))
}

fn switch(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("{text:?} is neither true nor false"))
}

/// Reads tasks with `;` between them: `NAME [FIELD=TEXT]... -- CMD ARG...`.
///
/// # Errors
/// A sentence for the person who wrote it.
pub(super) fn parse_programs(text: &str) -> Result<BTreeMap<String, TaskProgram>, String> {
    let mut all = BTreeMap::new();
    for words in split_words(text)?.split(|word| word == SEPARATOR) {
        let (name, program) = parse_program(words)?;
        add(&mut all, name, program)?;
    }
    Ok(all)
}

fn parse_program(words: &[String]) -> Result<(String, TaskProgram), String> {
    let wrong = || "write it as in `thumb timeout=10s -- convert - -thumbnail 200 png:-`".to_owned();
    let (name, rest) = words.split_first().ok_or_else(wrong)?;
    let end = rest.iter().position(|word| word == COMMAND_FOLLOWS).ok_or_else(wrong)?;
    let mut program = TaskProgram { words: rest[end + 1..].to_vec(), ..TaskProgram::default() };
    for word in &rest[..end] {
        let (field, text) =
            word.split_once('=').ok_or_else(|| format!("{word:?} is not FIELD=TEXT, as in timeout=10s"))?;
        if field == EXEC {
            return Err(format!("the command comes behind {COMMAND_FOLLOWS:?}"));
        }
        program.set(field, text)?;
    }
    Ok((name.clone(), program))
}

/// Adds one more task.
///
/// # Errors
/// A sentence for the person who wrote it: there is one of this name.
pub(super) fn add(
    all: &mut BTreeMap<String, TaskProgram>,
    name: String,
    program: TaskProgram,
) -> Result<(), String> {
    match all.entry(name) {
        Entry::Occupied(known) => Err(format!("there are two programs for the task {:?}", known.key())),
        Entry::Vacant(new) => {
            new.insert(program);
            Ok(())
        }
    }
}

pub(super) fn show_programs(all: &BTreeMap<String, TaskProgram>) -> String {
    let parts: Vec<String> = all.iter().map(|(name, program)| program.show(name)).collect();
    parts.join(&format!(" {SEPARATOR} "))
}

/// Checks names and commands.
///
/// # Errors
/// A sentence for the person who wrote them.
pub(super) fn check(all: &BTreeMap<String, TaskProgram>) -> Result<(), String> {
    for (name, program) in all {
        if !is_task_name(name) {
            return Err(format!("{name:?} cannot be the name of a task: {TASK_NAMES}"));
        }
        if program.words.is_empty() {
            return Err(format!(
                "task {name}: {EXEC} is missing: the command that is started for each job; of a task of a worker only \
                 `batch` can be set here"
            ));
        }
        if program.words.iter().any(|word| word.contains('\0')) {
            return Err(format!("task {name}: a word of the command has a zero byte"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read_again() {
        let text = "a timeout=10s memory=1GiB file_size=1MiB env=A=b 'env=C=d e' dir=/srv success=0 success=1 \
                    idempotent=true accepts=image/png produces=image/png -- convert - 'a b' -- png:- ; b -- true";
        let read = parse_programs(text).unwrap();
        assert_eq!(read["a"].words, ["convert", "-", "a b", "--", "png:-"]);
        assert_eq!((read["a"].environment["C"].as_str(), read["a"].success.as_slice()), ("d e", &[0, 1][..]));
        assert_eq!(parse_programs(&show_programs(&read)).unwrap(), read);
        assert_eq!(check(&read), Ok(()));
    }

    #[test]
    fn what_is_no_task_is_refused_with_what_is_wrong() {
        for (text, expected) in [
            ("", "an empty command"),
            ("a", "write it as in"),
            ("a convert", "write it as in"),
            ("a fast -- x", "is not FIELD=TEXT"),
            ("a exec=y -- x", "behind \"--\""),
            ("a tiemout=1s -- x", "is none of"),
            ("a timeout=10 -- x", "10"),
            ("a timeout=0s -- x", "leaves nothing"),
            ("a memory=much -- x", "much"),
            ("a env=X -- x", "no variable"),
            ("a dir= -- x", "empty"),
            ("a success=256 -- x", "0 to 255"),
            ("a idempotent=yes -- x", "neither true nor false"),
            ("a accepts=png -- x", "media type"),
            ("a -- x ; a -- y", "two programs"),
        ] {
            let message = parse_programs(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
        for (text, expected) in [("2a -- x", "cannot be the name"), ("a --", "exec is missing")] {
            let message = check(&parse_programs(text).unwrap()).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
