//! `offload submit`: sends one job to the supervisor and prints its result.
//!
//! ```text
//!   connected --- Submit ---> sent --- Accepted ---> running --- Finished ---> delivered
//!                              |                       |
//!                              | Rejected              | connection lost: `indeterminate`, exit code 125
//!                              v                       | Ctrl-C: Cancel is sent, the process ends by the signal
//!                            delivered                 v
//! ```
//!
//! With `--retry`, `Finished` with an error of the task leads to a pause, and from there to another `Submit`: a new job with the same
//! input. The result that is delivered is that of the last attempt.

use super::client::{ReceiveError, RequestClient};
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, JobFlags, NAMELESS, parse_client_name};
use super::input::{Content, Input, LIMIT_OF_SUPERVISOR, Payload};
use super::output::{Destination, OutputFlags, ResultSource, print_line, say};
use super::render::{refused, rejected};
use super::retry_flags::RetryFlags;
use super::stream_output::StreamOutput;
use crate::limits::ANSWER_TIMEOUT;
use bytes::Bytes;
use clap::Args;
use offload_protocol::limits::NAME_MAX;
use offload_protocol::messages::{IdempotencyKey, SubmitOptions, ToClient, ToSupervisor};
use offload_protocol::nouns::{Lane, OutcomeCode, Report};
use offload_supervisor::{Finished, input_digest};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  offload submit primes 1000000                       wait for the result and print it
  offload submit wordcount @book.txt --json           the input is a file, the result a JSON document
  tar c . | offload submit gzip - --output all.tgz    the input is standard input
  offload wait $(offload submit spin 2000 --detach)   submit now, wait later
  offload submit count 1000000000 --stream | head     print the output as it comes
  offload submit charge 17 --idempotency-key bill-17  typed twice, it runs once
  offload submit upload @a.jpg --retry 3              again if the task returns an error, after 1, 2 and 4 s

Ctrl-C cancels the job. If the supervisor dies before it has answered, the outcome is `indeterminate`
(exit code 125): the job may or may not have run.";

const TICKET: u64 = 1;
const CANCEL_TICKET: u64 = 2;

/// Submit a job to the supervisor, wait for it and print its output
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Submit {
    /// The task to run; `offload tasks` lists them
    task: String,

    /// The input: a text, @FILE for the content of a file, - for standard input. Without it, what is piped in is the
    /// input; if nothing is, the input is empty
    #[arg(value_parser = Input::parser(), allow_negative_numbers = true)]
    input: Option<Input>,

    #[command(flatten)]
    job: JobFlags,

    #[command(flatten)]
    retry: RetryFlags,

    /// Reject the job unless its worker offers the task in this lane: cpu or io (`offload tasks` shows the lane of each)
    #[arg(long, value_name = "LANE", value_parser = parse_lane, help_heading = "Each job")]
    lane: Option<Lane>,

    /// Client name for fair scheduling and quotas: processes with the same name count as one client [default: none, so
    /// each process is a client of its own]
    #[arg(long, value_name = "NAME", value_parser = parse_client_name, help_heading = "Each job")]
    client: Option<String>,

    /// Submit only once: the same key again returns the same job, until one hour after its end (`keep_keys`). The same
    /// key with another task or input is rejected (conflict). Keys belong to the client name (--client); all clients
    /// without a name share one set of keys
    #[arg(long, value_name = "KEY", value_parser = parse_key, conflicts_with = "retry", help_heading = "Each job")]
    idempotency_key: Option<String>,

    /// Do not wait: print the job's id for `offload wait`, `result` and `cancel`. The result is kept for one hour after
    /// the job's end (`keep_results`), or until it is first collected. If no more can be kept, the job is
    /// rejected. A long file that fs.read has read, and for which there is no room, ends as io_error
    #[arg(long, conflicts_with_all = ["output", "receipt", "retry"])]
    detach: bool,

    /// Print the output as it comes, instead of all of it at the end. A reader that stops reading stops the task. Nothing of
    /// the output is kept, and once a part was printed the job is not run again
    #[arg(long, conflicts_with_all = ["output", "detach", "idempotency_key", "retry"])]
    stream: bool,

    #[command(flatten)]
    output: OutputFlags,
}

impl Submit {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let source = match self.detach {
            true => ResultSource::Detached,
            false => ResultSource::Own { task: &self.task },
        };
        let destination = match self.stream {
            true => Printed::Stream(StreamOutput::open(&self.task, self.output.receipt(), globals)?),
            false => Printed::Whole(self.output.open(source, globals)?),
        };
        let mut client = globals.connect(self.client_name())?;
        let input = self.input.clone().unwrap_or_else(Input::unnamed);
        let max = client.payload_max();
        // The digest of a key is made from all bytes, so they might as well be sent.
        let by_file = client.takes_files() && self.idempotency_key.is_none();
        let payload = match if by_file { input.open(max) } else { input.load(max) } {
            Ok(payload) => payload.of_type(self.job.content_type()),
            Err(error) => {
                let error = error.with_setting(LIMIT_OF_SUPERVISOR);
                return destination.deliver(&[], refused(&self.task, error.code, error.message));
            }
        };
        client.catch_signals()?;
        self.try_until_it_counts(&mut client, payload, destination, globals)
    }

    /// Submits the job, and again after each attempt that is not the last one.
    fn try_until_it_counts(
        &self,
        client: &mut RequestClient,
        mut payload: Payload,
        mut destination: Printed,
        globals: &Globals,
    ) -> VerbResult {
        let mut earlier = Vec::new();
        loop {
            let mut job = None;
            let finished = match self.attempt(client, &mut payload, &mut job, &mut destination)? {
                Ok(Followed::Finished(finished)) => *finished,
                Err(ReceiveError::Lost(reason)) => lost(&self.task, job.as_deref(), &reason),
                other => return self.end_without_result(client, job, other, globals),
            };
            let Some(pause) = self.pause_after(&finished, earlier.len()) else {
                return destination.deliver(&earlier, finished);
            };
            match client.rest(pause, self.client_name()) {
                Ok(()) => earlier.push(finished.report),
                Err(Failure::Interrupted(signal)) => {
                    say("interrupted, the job is not tried again");
                    return Err(Failure::Interrupted(signal));
                }
                Err(failure) => {
                    say(&format!("the job is not tried again: {}", failure.message().unwrap_or_default()));
                    return destination.deliver(&earlier, finished);
                }
            }
        }
    }

    fn client_name(&self) -> &str {
        self.client.as_deref().unwrap_or(NAMELESS)
    }

    /// Submits the job and follows it.
    fn attempt(
        &self,
        client: &mut RequestClient,
        payload: &mut Payload,
        job: &mut Option<String>,
        destination: &mut Printed,
    ) -> Result<Result<Followed, ReceiveError>, Failure> {
        self.send(client, payload)?;
        let followed = self.follow(client, job, destination);
        let (Ok(Followed::SendInput), Content::File(file)) = (&followed, &payload.content) else {
            return Ok(followed);
        };
        match file.load(client.payload_max()) {
            Ok(loaded) => *payload = Payload { media_type: payload.media_type.clone(), ..loaded },
            Err(error) => {
                let refused = refused(&self.task, error.code, error.message);
                return Ok(Ok(Followed::Finished(Box::new(refused))));
            }
        }
        self.send(client, payload)?;
        Ok(self.follow(client, job, destination))
    }

    /// How long to wait before the job is tried again, if it is.
    fn pause_after(&self, finished: &Finished, earlier: usize) -> Option<Duration> {
        let pause = self.retry.retries().pause_after(u32::try_from(earlier).unwrap_or(u32::MAX));
        pause.filter(|_| finished.report.outcome == OutcomeCode::AppError)
    }

    /// The job has no result, or nobody waits for it.
    fn end_without_result(
        &self,
        client: &mut RequestClient,
        job: Option<String>,
        followed: Result<Followed, ReceiveError>,
        globals: &Globals,
    ) -> VerbResult {
        match followed {
            Ok(Followed::Detached(id)) => self.print_id(&id, globals),
            Ok(Followed::Unwritten(failure)) => {
                cancel(client, job);
                Err(failure)
            }
            Ok(Followed::SendInput | Followed::Finished(_)) => {
                Err(Failure::Internal("the supervisor wants bytes that it has got".to_owned()))
            }
            Err(ReceiveError::Interrupted(signal)) => {
                self.give_up(client, job);
                Err(Failure::Interrupted(signal))
            }
            Err(ReceiveError::Late | ReceiveError::Lost(_)) => {
                Err(Failure::Internal("a wait without a limit has ended".to_owned()))
            }
        }
    }

    /// A job with an idempotency key may be that of others, too, so it goes on, as when this process is killed.
    fn give_up(&self, client: &mut RequestClient, job: Option<String>) {
        match (&self.idempotency_key, job) {
            (Some(_), Some(job)) => say(&format!(
                "interrupted; the job has an idempotency key and goes on, `offload cancel {job}` would end it"
            )),
            (Some(_), None) => say("interrupted"),
            (None, job) => {
                say(if cancel(client, job) { "interrupted, the job is cancelled" } else { "interrupted" });
            }
        }
    }

    fn send(&self, client: &mut RequestClient, payload: &Payload) -> Result<(), Failure> {
        let submit = ToSupervisor::Submit {
            ticket: TICKET,
            task: &self.task,
            media_type: payload.media_type.clone(),
            detach: self.detach,
            options: SubmitOptions {
                lane: self.lane,
                idempotency: self.idempotency(payload),
                stream: self.stream,
                ..self.job.options()?
            },
        };
        match &payload.content {
            Content::Bytes(bytes) => client.send(&submit, bytes),
            Content::File(file) => client.send_with_file(&submit, (&file.file, file.bytes)),
        }
    }

    fn idempotency(&self, payload: &Payload) -> Option<IdempotencyKey> {
        let key = self.idempotency_key.clone()?;
        let Content::Bytes(bytes) = &payload.content else { return None };
        Some(IdempotencyKey { key, digest: input_digest(&payload.media_type, bytes) })
    }

    /// Waits until the job has ended. Sets `job` as soon as the job has an id. There is no time limit here: the job has
    /// its own.
    fn follow(
        &self,
        client: &mut RequestClient,
        job: &mut Option<String>,
        destination: &mut Printed,
    ) -> Result<Followed, ReceiveError> {
        loop {
            let (message, output) = client.receive(None)?;
            match message {
                ToClient::Accepted { job: id, .. } if self.detach => {
                    return Ok(Followed::Detached(id.into_owned()));
                }
                ToClient::Accepted { job: id, .. } => *job = Some(id.into_owned()),
                ToClient::Part { .. } => {
                    if let Printed::Stream(stream) = destination
                        && let Err(failure) = stream.write(&output)
                    {
                        return Ok(Followed::Unwritten(failure));
                    }
                }
                ToClient::SendInput { .. } => return Ok(Followed::SendInput),
                // It was accepted before it was known that workers do not take its file.
                ToClient::Finished { report, .. } if report.outcome == OutcomeCode::Unsupported => {
                    return Ok(Followed::SendInput);
                }
                ToClient::Finished { report, .. } => {
                    return Ok(Followed::Finished(Box::new(Finished { report, output })));
                }
                ToClient::Rejected { code, message, retry_after_ms, .. } => {
                    let rejected = rejected(&self.task, code, message.into_owned(), retry_after_ms);
                    return Ok(Followed::Finished(Box::new(rejected)));
                }
                ToClient::Answer { .. } | ToClient::Welcome { .. } | ToClient::Goodbye { .. } => {}
            }
        }
    }

    fn print_id(&self, id: &str, globals: &Globals) -> VerbResult {
        let line = if globals.json { serde_json::json!({ "job": id }).to_string() } else { id.to_owned() };
        let unprinted = |failure| match failure {
            Failure::Unwritten(why) => {
                Failure::Unwritten(format!("{why}; the id of the job that was accepted is {id}"))
            }
            Failure::ReaderGone => {
                Failure::Unwritten(format!("nobody reads the id of the job that was accepted: {id}"))
            }
            other => other,
        };
        print_line(line).map_err(unprinted)?;
        Ok(OK)
    }
}

/// Where the output goes.
enum Printed {
    Whole(Destination),
    /// Standard output, as it comes.
    Stream(StreamOutput),
}

impl Printed {
    /// The attempts of the earlier jobs count as well.
    fn deliver(self, earlier: &[Report], mut finished: Finished) -> VerbResult {
        finished.report.attempts += earlier.iter().map(|report| report.attempts).sum::<u32>();
        match self {
            Printed::Whole(destination) => destination.deliver_after(earlier, &finished),
            Printed::Stream(stream) => stream.end(&finished),
        }
    }
}

enum Followed {
    Detached(String),
    /// The file that is the input cannot be used: its bytes are wanted.
    SendInput,
    /// A part of the output could not be written.
    Unwritten(Failure),
    Finished(Box<Finished>),
}

fn lost(task: &str, job: Option<&str>, reason: &str) -> Finished {
    let named = job.map_or_else(|| "the job".to_owned(), |job| format!("job {job}"));
    let message = format!("{reason}; {named} may or may not have run");
    let mut finished = refused(task, OutcomeCode::Indeterminate, message);
    finished.report.job = job.unwrap_or_default().to_owned();
    finished
}

/// Cancels the job and waits for the answer. If the id of the job is not known yet, waits for it first. Another Ctrl-C,
/// or no answer in time, ends this. Returns whether the supervisor has answered.
fn cancel(client: &mut RequestClient, mut job: Option<String>) -> bool {
    let mut sent = false;
    loop {
        if let Some(job) = job.as_deref().filter(|_| !sent) {
            let cancel = ToSupervisor::Cancel { ticket: CANCEL_TICKET, job };
            sent = client.send(&cancel, &Bytes::new()).is_ok();
        }
        match client.receive(Some(ANSWER_TIMEOUT)) {
            Ok((ToClient::Accepted { job: id, .. }, _)) => job = Some(id.into_owned()),
            Ok((ToClient::Answer { .. }, _)) => return true,
            Ok((ToClient::Finished { .. } | ToClient::Part { .. }, _)) => {}
            Ok(_) | Err(_) => return false,
        }
    }
}

fn parse_key(text: &str) -> Result<String, String> {
    match text.len() {
        1..=NAME_MAX => Ok(text.to_owned()),
        length => Err(format!("a key has 1 to {NAME_MAX} bytes, this one {length}")),
    }
}

fn parse_lane(text: &str) -> Result<Lane, String> {
    match text {
        "cpu" => Ok(Lane::Cpu),
        "io" => Ok(Lane::Io),
        _ => Err("a lane is cpu or io".to_owned()),
    }
}
