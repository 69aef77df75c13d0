//! Why a verb could not do its work. The exit codes are a contract with scripts.

use crate::configuration::ConfigError;
use offload_protocol::nouns::OutcomeCode;
use std::io;
use std::process::ExitCode;

/// What a verb ends with: an exit code, or what to say and to exit with.
pub(crate) type Ended = Result<ExitCode, Failure>;

/// Everything is well.
pub(crate) const OK: ExitCode = ExitCode::SUCCESS;

/// The exit code for what makes no sense.
pub(crate) const USAGE: u8 = 2;

/// The exit code for results that did not get to whom they were for.
pub(crate) const UNWRITTEN: u8 = 74;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was typed or configured makes no sense: 2.
    Usage(String),
    /// The command line cannot be read, in the words of the parser, which are said already: 2.
    CommandLine(String),
    /// Nobody answers at the socket: 3.
    NoSupervisor(String),
    /// A job or a request has ended so: the outcome's own code.
    Outcome {
        /// The word for it.
        code: OutcomeCode,
        /// The sentence for it.
        message: String,
        /// When it may be worth trying again, in milliseconds from now.
        retry_after_ms: Option<u64>,
    },
    /// Another supervisor owns the socket: 75.
    AlreadyRunning(String),
    /// Ctrl-C, a closed terminal, or another signal to end. The process ends by that very signal, which shells show as 128
    /// and its number.
    Interrupted(i32),
    /// Results could not be written where they were to go: 74.
    Unwritten(String),
    /// Whoever read standard output has gone away before it was all written: 74. Nothing is said of it, since that is
    /// how `offload jobs | head -1` ends; where the result of a job is lost by it, the verb makes it `Unwritten`.
    ReaderGone,
    /// The system refused something, or there is a mistake in this program: 70.
    Internal(String),
}

impl Failure {
    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) | Failure::CommandLine(_) => USAGE,
            Failure::NoSupervisor(_) => 3,
            Failure::Outcome { code, .. } => Failure::code_of(*code),
            Failure::Internal(_) => 70,
            Failure::Unwritten(_) | Failure::ReaderGone => UNWRITTEN,
            Failure::AlreadyRunning(_) => 75,
            Failure::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }

    /// The exit code for a job that ended so. Here an `io_error` is an input that cannot be read: what was typed makes no
    /// sense, whichever verb it was typed for.
    pub(crate) fn code_of(outcome: OutcomeCode) -> u8 {
        match outcome {
            OutcomeCode::IoError => USAGE,
            other => other.exit_code(),
        }
    }

    /// The line for people, if there is one.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Failure::ReaderGone | Failure::Interrupted(_) | Failure::CommandLine(_) => None,
            Failure::Outcome { code, message, .. } => Some(format!("{code}: {message}")),
            Failure::Usage(message)
            | Failure::NoSupervisor(message)
            | Failure::AlreadyRunning(message)
            | Failure::Unwritten(message)
            | Failure::Internal(message) => Some(message.clone()),
        }
    }

    /// What `--json` prints, if it is to print anything: an object with the one member `error`.
    pub(crate) fn document(&self) -> Option<String> {
        let code = match self {
            // There is no place for it.
            Failure::Unwritten(_) | Failure::ReaderGone => return None,
            Failure::Outcome { code, .. } => code.as_str(),
            Failure::Usage(_) | Failure::CommandLine(_) => "usage",
            Failure::NoSupervisor(_) => "no_supervisor",
            Failure::AlreadyRunning(_) => "already_running",
            Failure::Interrupted(_) => "interrupted",
            Failure::Internal(_) => "internal",
        };
        let message = match self {
            Failure::Outcome { message, .. } => message.clone(),
            Failure::CommandLine(text) => in_one_line(text),
            _ => self.message().unwrap_or_default(),
        };
        let mut error =
            serde_json::json!({ "code": code, "message": message, "exit_code": self.exit_code() });
        if let Failure::Outcome { retry_after_ms: Some(millis), .. } = self {
            error["retry_after_ms"] = (*millis).into();
        }
        Some(serde_json::json!({ "error": error }).to_string())
    }

    /// For an outcome of which nobody can say when it would be another.
    pub(crate) fn outcome(code: OutcomeCode, message: String) -> Failure {
        Failure::Outcome { code, message, retry_after_ms: None }
    }

    /// For what can only fail because the system has run out of something.
    pub(crate) fn internal(what: &str, error: impl std::fmt::Display) -> Failure {
        Failure::Internal(format!("{what}: {error}"))
    }

    /// For a failed write of results.
    pub(crate) fn writing(place: &str, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Unwritten(format!("cannot write to {place}: {error}")),
        }
    }
}

/// What the parser says is wrong, without its layout, the usage and the way to the help.
fn in_one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let is_about_it = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let lines = text.lines().map(str::trim).take_while(is_about_it).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ").replace(":; ", ": ")
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::Usage(error.to_string())
    }
}
