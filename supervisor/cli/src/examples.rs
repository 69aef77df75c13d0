//! The command line with everything that is added to its definition: an example in the help of each verb.

use super::CommandLine;
use clap::{Command, CommandFactory};

/// Examples of verbs that have no longer text of their own.
const EXAMPLES: [(&str, &str); 13] = [
    (
        "status",
        "  offload status                             state, queue, outcomes, event loop
  offload status --json | jq .queue.jobs     one figure of it",
    ),
    (
        "workers",
        "  offload workers                            which slot runs which job, and for how long
  offload workers --json | jq '.[] | select(.state == \"busy\") | .pid'",
    ),
    (
        "jobs",
        "  offload jobs                               the last jobs, with the id of each
  offload jobs --label batch=7 --json        those with this label, as a document",
    ),
    (
        "tasks",
        "  offload tasks                              what can be submitted
  offload tasks pbkdf2                       what one task takes and returns
  offload tasks --worker 'python3 w.py'      what a program of yours offers, without a supervisor",
    ),
    (
        "wait",
        "  offload wait 01JQ4W3M8Z5X9T2C7VB6NHKDEF    its output, once it has ended
  offload wait --label batch=7 --json        all results with this label, the oldest job first",
    ),
    (
        "result",
        "  offload result 01JQ4W3M8Z5X9T2C7VB6NHKDEF  its output, if it has ended
  offload result 01JQ4W3M8Z5X9T2C7VB6NHKDEF --output picture.png",
    ),
    (
        "cancel",
        "  offload cancel 01JQ4W3M8Z5X9T2C7VB6NHKDEF  queued or running
  offload cancel --label batch=7             all jobs with this label that have not ended",
    ),
    (
        "reload",
        "  offload reload                             read the configuration again, replace the workers one by one
  offload reload --json                      the same, with what could not be changed as a document",
    ),
    (
        "drain",
        "  offload drain                              finish all accepted jobs, however long they take, then end
  offload drain --timeout 10m                cancel what is not done by then; the exit code is 1 if that was anything",
    ),
    ("stop", "  offload stop                               cancel all jobs and end now"),
    (
        "completions",
        "  offload completions bash > ~/.local/share/bash-completion/completions/offload
  offload completions zsh > ~/.zfunc/_offload          with ~/.zfunc in fpath
  offload completions fish > ~/.config/fish/completions/offload.fish",
    ),
    (
        "man",
        "  offload man | man -l -                     read the page of offload
  offload man dead retry | man -l -          the page of a verb
  offload man --all /usr/local/share/man/man1",
    ),
    (
        "worker",
        "  offload worker check 'python3 worker.py'   what a worker does wrong, in plain words
  offload worker check --jsonl './worker.sh' --json",
    ),
];

/// The heading of examples.
const HEADING: &str = "Examples:";

/// The whole command line.
pub(crate) fn command_line() -> Command {
    EXAMPLES.into_iter().fold(CommandLine::command(), |offload, (verb, examples)| {
        offload.mut_subcommand(verb, |verb| add(verb, examples))
    })
}

fn add(verb: Command, examples: &str) -> Command {
    let said = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
    if said.contains(HEADING) {
        return verb;
    }
    let notes = if said.is_empty() { said } else { format!("\n\n{said}") };
    verb.after_help(format!("{HEADING}\n{examples}{notes}"))
}

/// The command line without what is hidden from people: what only other processes of ours type.
pub(crate) fn visible_command_line() -> Command {
    let all = command_line();
    let visible = all.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect::<Vec<_>>();
    let bare = Command::new("offload").args(all.get_arguments()).disable_help_subcommand(true);
    let about = all.get_about().cloned().unwrap_or_default();
    let notes = all.get_after_help().cloned().unwrap_or_default();
    bare.about(about).after_help(notes).version(env!("CARGO_PKG_VERSION")).subcommands(visible)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every verb that people see, with those in it, and the help of each; and those that only have verbs in them.
    fn helps(command: &mut Command, name: &str, all: &mut Vec<(String, String)>, groups: &mut Vec<String>) {
        for verb in command.get_subcommands_mut().filter(|verb| !verb.is_hide_set()) {
            let name = format!("{name} {}", verb.get_name());
            all.push((name.clone(), verb.render_long_help().to_string()));
            let is_a_group = verb.has_subcommands();
            groups.extend(is_a_group.then(|| name.clone()));
            helps(verb, &name, all, groups);
        }
    }

    #[test]
    fn each_verb_has_an_example_that_begins_with_it() {
        let mut offload = command_line();
        offload.build();
        let (mut all, mut groups) = (Vec::new(), Vec::new());
        helps(&mut offload, "offload", &mut all, &mut groups);
        assert!(all.len() > 25, "{}", all.len());
        for (name, help) in all.iter().filter(|(name, _)| !groups.contains(name)) {
            // Examples of what is within a verb may stand in the help of that.
            let outer = name.rsplit_once(' ').map_or(name.as_str(), |(outer, _)| outer);
            let of_outer = all.iter().find(|(name, _)| name == outer).map_or("", |(_, help)| help);
            let has_one = [help.as_str(), of_outer].iter().any(|help| {
                help.split_once(HEADING).is_some_and(|(_, examples)| examples.contains(name.as_str()))
            });
            assert!(has_one, "{name} has no example: {help}");
            assert!(help.matches(HEADING).count() <= 1, "{name}");
        }
    }

    #[test]
    fn what_is_hidden_is_gone_and_everything_else_is_there() {
        let names = |command: &Command| {
            command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect::<Vec<_>>()
        };
        let (all, visible) = (names(&command_line()), names(&visible_command_line()));
        assert!(
            all.iter().any(|name| name == "exec-worker") && !visible.iter().any(|name| name == "exec-worker")
        );
        let hidden = all.iter().filter(|name| !visible.contains(name)).count();
        assert_eq!(all.len(), visible.len() + hidden);
        assert!(visible.iter().any(|name| name == "doctor"));
    }
}
