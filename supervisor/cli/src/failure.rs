//! Why a verb failed, with its exit code and message. The exit codes are a contract with scripts.

use crate::configuration::ConfigError;
use offload_core::exit::Exit;
use offload_protocol::nouns::{OutcomeCode, Report};
use std::io;
use std::process::ExitCode;

/// The result of a verb: an exit code, or a failure with a message and an exit code.
pub(crate) type VerbResult = Result<ExitCode, Failure>;

/// The exit code for success.
pub(crate) const OK: ExitCode = ExitCode::SUCCESS;

/// The exit code for wrong usage: 2.
pub(crate) const USAGE: u8 = 2;

/// The exit code for results that could not be written: 74.
pub(crate) const UNWRITTEN: u8 = 74;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the configuration is wrong: 2.
    Usage(String),
    /// The command line cannot be parsed: 2. Contains the parser's message, which is already printed.
    CommandLine(String),
    /// Nobody answers at the socket: 3.
    NoSupervisor(String),
    /// A job or a request has ended with this outcome: its own exit code.
    Outcome {
        /// The word for it.
        code: OutcomeCode,
        /// The sentence for it.
        message: String,
        /// After how many milliseconds a retry may succeed.
        retry_after_ms: Option<u64>,
    },
    /// An input cannot be read: 2.
    Unreadable(String),
    /// Another supervisor owns the socket: 75.
    AlreadyRunning(String),
    /// Ctrl-C, a closed terminal, or another signal that ends the process. The process ends by that same signal, which
    /// shells show as 128 plus its number.
    Interrupted(i32),
    /// The file or folder for results cannot be used, and nothing was done: 74.
    NoPlace(String),
    /// Results could not be written to their destination: 74.
    Unwritten(String),
    /// The reader of standard output left before everything was written: 74. This prints no message, because
    /// `offload jobs | head -1` ends like that. If it is the result of a job, the verb turns this into `Unwritten`.
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
            Failure::Unreadable(_) => USAGE,
            Failure::Outcome { code, .. } => code.exit_code(),
            Failure::Internal(_) => 70,
            Failure::NoPlace(_) | Failure::Unwritten(_) | Failure::ReaderGone => UNWRITTEN,
            Failure::AlreadyRunning(_) => 75,
            Failure::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }

    /// The exit code for a job that ended so. The input of one that was never started could not be read, which is wrong usage for
    /// every verb.
    pub(crate) fn code_of(report: &Report) -> u8 {
        match report.outcome {
            OutcomeCode::IoError if report.job.is_empty() => USAGE,
            other => other.exit_code(),
        }
    }

    /// The failure of a job that ended so.
    pub(crate) fn of(report: &Report, message: String) -> Failure {
        match report.outcome {
            OutcomeCode::IoError if report.job.is_empty() => Failure::Unreadable(message),
            code => Failure::outcome(code, message),
        }
    }

    /// The line for people, if there is one.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Failure::ReaderGone | Failure::Interrupted(_) | Failure::CommandLine(_) => None,
            Failure::Outcome { code, message, .. } => Some(format!("{code}: {message}")),
            Failure::Unreadable(message) => Some(format!("{}: {message}", OutcomeCode::IoError)),
            Failure::Usage(message)
            | Failure::NoSupervisor(message)
            | Failure::AlreadyRunning(message)
            | Failure::NoPlace(message)
            | Failure::Unwritten(message)
            | Failure::Internal(message) => Some(message.clone()),
        }
    }

    /// The document that `--json` prints, if any: an object with the one member `error`.
    pub(crate) fn document(&self) -> Option<String> {
        let code = match self {
            // Standard output may be what failed, in the middle of a document.
            Failure::Unwritten(_) | Failure::ReaderGone => return None,
            Failure::NoPlace(_) => "unwritten",
            Failure::Outcome { code, .. } => code.as_str(),
            Failure::Unreadable(_) => OutcomeCode::IoError.as_str(),
            Failure::Usage(_) | Failure::CommandLine(_) => "usage",
            Failure::NoSupervisor(_) => "no_supervisor",
            Failure::AlreadyRunning(_) => "already_running",
            Failure::Interrupted(_) => "interrupted",
            Failure::Internal(_) => "internal",
        };
        let message = match self {
            Failure::Outcome { message, .. } | Failure::Unreadable(message) => message.clone(),
            Failure::CommandLine(text) => in_one_line(text),
            Failure::Interrupted(signal) => format!("interrupted by {}", Exit::Signal(*signal)),
            _ => self.message().unwrap_or_default(),
        };
        let mut error =
            serde_json::json!({ "code": code, "message": message, "exit_code": self.exit_code() });
        if let Failure::Outcome { retry_after_ms: Some(millis), .. } = self {
            error["retry_after_ms"] = (*millis).into();
        }
        Some(serde_json::json!({ "error": error }).to_string())
    }

    /// The same document for one of several jobs: it has the member `job`, too.
    pub(crate) fn document_of(&self, job: &str) -> Option<String> {
        let mut document: serde_json::Value = serde_json::from_str(&self.document()?).ok()?;
        document["job"] = job.into();
        Some(document.to_string())
    }

    /// A failure with this outcome, for which no time of a retry is known.
    pub(crate) fn outcome(code: OutcomeCode, message: String) -> Failure {
        Failure::Outcome { code, message, retry_after_ms: None }
    }

    /// For a call that can fail only if the system has run out of some resource.
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

/// The parser's message in one line, without the usage and the reference to the help.
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
