//! What somebody wants to go wrong, as one word: `PHASE:ACT`, with a number `=N`, a single attempt `@K`, or ` once`.

use std::fs::File;
use std::path::Path;

/// When a worker misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before it has said anything.
    Boot,
    /// In place of its hello, or within it.
    Hello,
    /// A job has come and is not started yet.
    Recv,
    /// The job is started.
    Run,
    /// In place of the answer, or within it.
    Reply,
    /// The answer is sent and there is nothing to do.
    After,
    /// The supervisor wants it to end by itself.
    Stop,
    /// The supervisor has sent SIGTERM while the job runs.
    Term,
    /// A job lies in the tray, or has just been taken out of it; from the beginning.
    Tray,
}

const PHASES: [(&str, Phase); 9] = [
    ("tray", Phase::Tray),
    ("boot", Phase::Boot),
    ("hello", Phase::Hello),
    ("recv", Phase::Recv),
    ("run", Phase::Run),
    ("reply", Phase::Reply),
    ("after", Phase::After),
    ("stop", Phase::Stop),
    ("term", Phase::Term),
];

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) phase: Phase,
    pub(crate) act: String,
    /// What the act makes of it is the act's business: bytes, mostly.
    pub(crate) number: Option<usize>,
    on_attempt: Option<u32>,
    only_once: bool,
}

impl Fault {
    /// A word without a phase means the run.
    pub(crate) fn parse(text: &str) -> Option<Fault> {
        let (text, only_once) = match text.strip_suffix(" once") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let (text, on_attempt) = split_number(text, '@');
        let (text, number) = split_number(text, '=');
        let (phase, act) = text.split_once(':').unwrap_or(("run", text));
        let (_, phase) = PHASES.iter().find(|(word, _)| *word == phase)?;
        let on_attempt = on_attempt.and_then(|attempt| attempt.try_into().ok());
        Some(Fault { phase: *phase, act: act.to_owned(), number, on_attempt, only_once })
    }

    /// The same with another act.
    pub(crate) fn with_act(&self, act: &str) -> Fault {
        Fault { act: act.to_owned(), ..self.clone() }
    }

    /// Whether it is to be committed in this attempt. `mark` is where one process tells the next that it was.
    pub(crate) fn is_due(&self, attempt: u32, mark: Option<&Path>) -> bool {
        let is_its_turn = self.on_attempt.is_none_or(|wanted| wanted == attempt);
        is_its_turn && (!self.only_once || mark.is_some_and(is_first_at))
    }
}

/// The kernel lets only one of several that ask at the same time be the first.
pub(crate) fn is_first_at(mark: &Path) -> bool {
    File::options().write(true).create_new(true).open(mark).is_ok()
}

fn split_number(text: &str, sign: char) -> (&str, Option<usize>) {
    match text.split_once(sign) {
        Some((start, number)) => (start, number.parse().ok()),
        None => (text, None),
    }
}
