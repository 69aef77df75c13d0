//! What can be typed in a place of the command line and changes: tasks, jobs and sockets.

use super::failure::Failure;
use super::flags::{Globals, NAMELESS};
use super::show::{fetch_list, is_open};
use super::tasks::builtin;
use crate::limits::{COMPLETED_MAX, COMPLETION_TIMEOUT};
use clap::{Arg, Command, Parser, ValueHint};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use offload_protocol::messages::View;
use offload_supervisor::views::{DeadView, JobView, TaskView};
use std::ffi::{OsStr, OsString};
use std::sync::mpsc::channel;
use std::thread;

/// What an argument stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A task of the supervisor; without one, of the built-in worker.
    Task,
    Job,
    /// A job that waits or runs.
    OpenJob,
    DeadLetter,
    Socket,
    Path,
}

/// The command line with the candidates for each of its arguments.
pub(crate) fn with_candidates(command: Command) -> Command {
    let verb = command.get_name().to_owned();
    let is_dead = verb == "dead";
    let command = command.mut_args(|argument| complete(&verb, argument));
    let inner = |verb: Command| match is_dead {
        true => verb.mut_args(|argument| complete("dead", argument)),
        false => with_candidates(verb),
    };
    command.mut_subcommands(inner)
}

fn complete(verb: &str, argument: Arg) -> Arg {
    match kind(verb, &argument) {
        None => argument,
        Some(Kind::Path) => argument.value_hint(ValueHint::AnyPath),
        Some(Kind::Socket) => argument.add(ArgValueCompleter::new(sockets)),
        Some(kind) => argument.add(ArgValueCompleter::new(Listed(kind))),
    }
}

fn kind(verb: &str, argument: &Arg) -> Option<Kind> {
    let names = argument.get_value_names().unwrap_or_default();
    match (verb, argument.get_id().as_str()) {
        _ if !argument.get_action().takes_values() => None,
        ("tasks", "name") | (_, "task") => Some(Kind::Task),
        ("dead", "job") | ("dead" | "retry", "jobs") => Some(Kind::DeadLetter),
        ("cancel", "jobs") => Some(Kind::OpenJob),
        ("wait" | "result" | "explain", "jobs") => Some(Kind::Job),
        (_, "socket") => Some(Kind::Socket),
        _ if names.iter().any(|name| matches!(name.as_str(), "N" | "SIZE" | "DURATION")) => None,
        _ => Some(Kind::Path),
    }
}

/// Those that a supervisor lists.
struct Listed(Kind);

impl ValueCompleter for Listed {
    fn complete(&self, begun: &OsStr) -> Vec<CompletionCandidate> {
        let kind = self.0;
        let (tell, told) = channel();
        // It may be stopped, and who types does not wait: what comes too late is not shown.
        let asker = thread::Builder::new().spawn(move || tell.send(listed(kind)));
        let rows = asker.ok().and_then(|_| told.recv_timeout(COMPLETION_TIMEOUT).ok()).and_then(Result::ok);
        let rows = match (rows, kind) {
            (None, Kind::Task) => named(&builtin()),
            (rows, _) => rows.unwrap_or_default(),
        };
        let begun = begun.to_string_lossy();
        let fitting = rows.into_iter().filter(|(name, _)| name.starts_with(&*begun));
        fitting.map(|(name, help)| CompletionCandidate::new(name).help(Some(help.into()))).collect()
    }
}

/// Names with a few words about each.
type Rows = Vec<(String, String)>;

fn listed(kind: Kind) -> Result<Rows, Failure> {
    let client = &mut globals(std::env::args_os()).connect(NAMELESS)?;
    let id = |job: &JobView| job.job.clone();
    Ok(match kind {
        Kind::Task => {
            let name = |task: &TaskView| task.task.clone();
            named(&fetch_list(client, (View::Tasks, ""), COMPLETED_MAX, name)?.rows)
        }
        Kind::Job | Kind::OpenJob => {
            let jobs = fetch_list(client, (View::Jobs, ""), COMPLETED_MAX, id)?.rows;
            let fitting = jobs.into_iter().filter(|job| kind == Kind::Job || is_open(job));
            fitting.map(|job| (job.job, harmless(&format!("{}, {}", job.task, job.state)))).collect()
        }
        Kind::DeadLetter => {
            let id = |letter: &DeadView| letter.job.clone();
            let letters = fetch_list(client, (View::Dead, ""), COMPLETED_MAX, id)?.rows;
            letters.into_iter().map(|letter| (letter.job, harmless(&letter.task))).collect()
        }
        Kind::Socket | Kind::Path => Vec::new(),
    })
}

/// What a shell neither obeys nor evaluates when it is part of the line: what workers and clients chose may be anything.
fn is_harmless(name: &str) -> bool {
    name.chars().all(|letter| letter.is_alphanumeric() || "._-:/+@".contains(letter))
}

fn harmless(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn named(tasks: &[TaskView]) -> Rows {
    let usable = tasks.iter().filter(|task| is_harmless(&task.task));
    usable.map(|task| (task.task.clone(), harmless(&task.description))).collect()
}

/// The socket that is used if none is named, if it is there, and paths.
fn sockets(begun: &OsStr) -> Vec<CompletionCandidate> {
    let usual = globals(std::iter::empty::<OsString>()).socket().ok().filter(|socket| socket.exists());
    let usual = usual.filter(|socket| socket.to_string_lossy().starts_with(&*begun.to_string_lossy()));
    let mut candidates: Vec<_> = usual.into_iter().map(CompletionCandidate::new).collect();
    candidates.extend(PathCompleter::any().complete(begun));
    candidates
}

/// A command line with the flags of every verb only.
#[derive(Debug, Parser)]
struct OnlyGlobals {
    #[command(flatten)]
    globals: Globals,
}

/// The flags among these words that say where the supervisor is. The line is still being typed: all else is of no interest here.
fn globals(words: impl IntoIterator<Item = OsString>) -> Globals {
    let mut kept = vec![OsString::from("offload")];
    let mut words = words.into_iter().skip_while(|word| word != "--").skip(1).peekable();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--") => break,
            Some("--socket" | "--config") => kept.extend([Some(word), words.next()].into_iter().flatten()),
            Some(text) if text.starts_with("--socket=") || text.starts_with("--config=") => kept.push(word),
            _ => {}
        }
    }
    let parsed = OnlyGlobals::try_parse_from(kept).or_else(|_| OnlyGlobals::try_parse_from(["offload"]));
    parsed.expect("no flag is required").globals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::visible_command_line;

    fn kind_of(verbs: &[&str], id: &str) -> Option<Kind> {
        let offload = visible_command_line();
        let inner = verbs.iter().try_fold(&offload, |command, verb| command.find_subcommand(verb)).unwrap();
        let argument = inner.get_arguments().find(|argument| argument.get_id() == id).unwrap();
        kind(verbs.first().unwrap_or(&"offload"), argument)
    }

    #[test]
    fn each_argument_is_completed_with_what_it_stands_for() {
        for verb in ["run", "map", "submit", "jobs"] {
            assert_eq!(kind_of(&[verb], "task"), Some(Kind::Task), "{verb}");
        }
        assert_eq!(kind_of(&["tasks"], "name"), Some(Kind::Task));
        for verb in ["wait", "result", "explain"] {
            assert_eq!(kind_of(&[verb], "jobs"), Some(Kind::Job), "{verb}");
        }
        assert_eq!(kind_of(&["cancel"], "jobs"), Some(Kind::OpenJob));
        for (verbs, id) in [
            (&["dead", "show"][..], "job"),
            (&["dead", "drop"], "job"),
            (&["dead", "retry"], "jobs"),
            (&["retry"], "jobs"),
        ] {
            assert_eq!(kind_of(verbs, id), Some(Kind::DeadLetter), "{verbs:?}");
        }
        assert_eq!(kind_of(&[], "socket"), Some(Kind::Socket));
        assert_eq!(kind_of(&[], "config"), Some(Kind::Path));
        assert_eq!((kind_of(&[], "json"), kind_of(&["jobs"], "limit")), (None, None));
    }

    #[test]
    fn the_socket_of_the_line_that_is_typed_is_asked() {
        let typed = |words: &str| globals(words.split(' ').map(OsString::from)).socket().unwrap();
        for words in ["x -- offload submit --socket /run/x pri", "x -- offload --socket=/run/x wait"] {
            assert_eq!(typed(words).to_str(), Some("/run/x"), "{words}");
        }
        for words in
            ["x -- offload wait --socket", "x -- offload run -- --socket /run/x", "x --socket /run/x"]
        {
            assert_ne!(typed(words).to_str(), Some("/run/x"), "{words}");
        }
    }

    #[test]
    fn a_name_that_a_shell_would_obey_is_no_candidate() {
        assert!(is_harmless("thumb.v2-a_b:c/d+e@f") && is_harmless("größe"));
        for name in ["$(reboot)", "a b", "a;b", "`b`", "a\nb", "a\u{1b}[2J", "'", "a>b", "*"] {
            assert!(!is_harmless(name), "{name:?}");
        }
        assert_eq!(harmless("a\u{1b}[2J\n"), "a?[2J?");
    }
}
