//! How a batch ends.
//!
//! ```text
//!   complete, a signal, a failure --- end ---> Target::shut_down --- on_shut_down: every job has ended
//!                                                                         |
//!                                                       the last results are written, or given up
//!                                                                         |
//!   conclude: what could not be written is saved, and the user is told <--'
//! ```

use super::BatchRunner;
use crate::batch::{CancelledJobs, NotDone};
use crate::failure::Failure;
use crate::limits::{LAST_WRITE_TIMEOUT, ONE_SIGNAL};
use crate::sink::Unwritten;
use crate::source::InputSource;
use crate::{end_by, output, text};
use signal_hook::consts::SIGHUP;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Why a batch ends, and since when.
pub(super) struct BatchEnd {
    pub(super) reason: EndReason,
    pub(super) at: Instant,
}

impl BatchEnd {
    /// Whether a signal that comes so long after the end means the same as the one before. `timeout` sends its signal
    /// twice, to the process and to its group.
    fn is_told_again(&self, signal: i32, after: Duration) -> bool {
        matches!(self.reason, EndReason::Interrupted(before) if before == signal) && after < ONE_SIGNAL
    }
}

/// Why a batch ends.
pub(super) enum EndReason {
    /// Nothing is left to do, or too many jobs have failed.
    Complete,
    /// So many jobs have failed that those which are running are cancelled.
    Halted,
    /// A write failed: see [`BatchRunner::unwritten`].
    Unwritten,
    /// A signal.
    Interrupted(i32),
    /// Anything else.
    Failed(Failure),
}

impl EndReason {
    /// What is said of a job that is cancelled for this.
    fn of_cancelled(&self) -> &'static str {
        match self {
            EndReason::Interrupted(_) => "interrupted before it had ended",
            EndReason::Halted => "cancelled, because as many jobs have failed as --halt allows",
            EndReason::Complete | EndReason::Unwritten | EndReason::Failed(_) => {
                "cancelled, because this run cannot go on"
            }
        }
    }
}

impl BatchRunner {
    pub(super) fn on_interrupt(self: &Rc<Self>, signal: i32) {
        let is_hangup = signal == SIGHUP;
        if let Some(end) = &mut *self.end.borrow_mut() {
            if end.is_told_again(signal, end.at.elapsed()) || is_hangup || self.is_hung_up.take() {
                return;
            }
            return match end.reason {
                EndReason::Complete | EndReason::Halted | EndReason::Interrupted(_) => end_by(signal),
                EndReason::Unwritten | EndReason::Failed(_) => {
                    // It is the first signal, so what has ended is not lost by it.
                    end.reason = EndReason::Interrupted(signal);
                    self.give_up_results();
                    self.handle.stop();
                }
            };
        }
        self.is_hung_up.set(is_hangup);
        self.progress
            .say("interrupted: what is not done is cancelled; a second signal ends this at once".to_owned());
        self.end(EndReason::Interrupted(signal));
    }

    /// The first call decides how the batch has ended.
    pub(super) fn end(self: &Rc<Self>, reason: EndReason) {
        if self.end.borrow().is_some() {
            return;
        }
        match reason {
            EndReason::Complete => {}
            // The file that saves results has those of jobs that have ended.
            EndReason::Unwritten => {
                self.batch.borrow_mut().end_early(CancelledJobs::AreCounted, reason.of_cancelled());
            }
            EndReason::Halted | EndReason::Interrupted(_) | EndReason::Failed(_) => {
                let cancelled_jobs = match self.spare_sink.borrow().has_a_line_for_each_job() {
                    true => CancelledJobs::HaveResults,
                    false => CancelledJobs::AreCounted,
                };
                self.batch.borrow_mut().end_early(cancelled_jobs, reason.of_cancelled());
            }
        }
        self.end.replace(Some(BatchEnd { reason, at: Instant::now() }));
        let runner = Rc::clone(self);
        self.target.shut_down(Box::new(move |_| runner.on_shut_down()));
    }

    /// All jobs have ended. The last results are written, however long it takes, unless a signal demands an end.
    fn on_shut_down(self: &Rc<Self>) {
        self.batch.borrow_mut().on_silence();
        self.is_shut_down.set(true);
        let is_urgent = |end: &BatchEnd| matches!(end.reason, EndReason::Interrupted(_));
        if self.end.borrow().as_ref().is_some_and(is_urgent) {
            let runner = Rc::clone(self);
            self.handle.set_timeout(LAST_WRITE_TIMEOUT, move |_| {
                runner.give_up_writing(
                    "standard output takes no more; some of what follows may be written already",
                );
                runner.turn();
            });
        }
        self.turn();
    }

    pub(super) fn on_unwritten(self: &Rc<Self>, unwritten: Unwritten) {
        match &mut *self.unwritten.borrow_mut() {
            Some(first) => first.left.extend(unwritten.left),
            none => *none = Some(unwritten),
        }
        self.end(EndReason::Unwritten);
    }

    pub(super) fn on_thread_failure(self: &Rc<Self>, failure: Failure) {
        self.end(EndReason::Failed(failure));
        if self.sink.borrow().is_none() {
            // The thread may have been the one that wrote, so nobody knows how far it came.
            self.give_up_writing("a thread that writes results failed");
        }
    }

    /// Nothing more is written: what is left is saved.
    fn give_up_results(&self) {
        let is_writing = self.sink.borrow().is_none();
        let left = if is_writing { self.writing.borrow().to_vec() } else { Vec::new() };
        let failure = Failure::Unwritten("interrupted".to_owned());
        self.unwritten.borrow_mut().get_or_insert(Unwritten { failure, left });
    }

    /// Counts the write under way as failed. Some of its results may be written nevertheless.
    fn give_up_writing(self: &Rc<Self>, why: &str) {
        let left = self.writing.borrow().to_vec();
        self.is_stuck.set(true);
        self.on_unwritten(Unwritten { failure: Failure::Unwritten(why.to_owned()), left });
    }

    /// Says what is left to be said after the loop has stopped, and returns the failure to report.
    pub(super) fn conclude(&self, reason: EndReason) -> Option<Failure> {
        match reason {
            EndReason::Complete | EndReason::Halted => {
                self.halted().into_iter().for_each(|line| self.progress.say(line));
                self.dropped().into_iter().chain(self.left_out()).for_each(|line| self.progress.say(line));
                self.close(&mut output::say);
                None
            }
            EndReason::Unwritten => {
                self.close(&mut output::say);
                let failure = self.save_what_is_left(&mut output::say)?;
                Some(match not_done_line(self.not_done()) {
                    Some(line) => output::failure_after(failure, &line),
                    None => failure,
                })
            }
            EndReason::Interrupted(signal) => {
                self.conclude_interrupted(signal);
                Some(Failure::Interrupted(signal))
            }
            EndReason::Failed(failure) => {
                self.close(&mut output::say);
                let also = self.save_what_is_left(&mut output::say).and_then(|also| also.message());
                also.into_iter().chain(not_done_line(self.not_done())).for_each(|line| output::say(&line));
                Some(failure)
            }
        }
    }

    /// Nothing here may block for long: no signal is looked at any more. So the thread of the display writes the
    /// messages.
    fn conclude_interrupted(&self, signal: i32) {
        let tell = &mut |line: &str| self.progress.say(line.to_owned());
        self.sink.borrow_mut().iter_mut().for_each(|sink| sink.finish(tell));
        let unwritten = self.save_what_is_left(tell).and_then(|failure| failure.message());
        unwritten.into_iter().chain(not_done_line(self.not_done())).for_each(|line| tell(&line));
        self.progress.close();
        if self.sink.borrow().is_none() {
            // A thread still waits for the reader of standard output. Nothing else can be written there.
            end_by(signal);
        }
    }

    fn close(&self, tell: &mut dyn FnMut(&str)) {
        self.progress.close();
        self.sink.borrow_mut().iter_mut().for_each(|sink| sink.finish(tell));
    }

    /// Saves the results that could not be written, if there are any, and those that should have been written after
    /// them. Returns the failure to report.
    fn save_what_is_left(&self, tell: &mut dyn FnMut(&str)) -> Option<Failure> {
        let Unwritten { failure, mut left } = self.unwritten.take()?;
        left.extend(self.batch.borrow_mut().take_results());
        left.sort_by_key(|result| result.index);
        Some(self.spare_sink.borrow_mut().save_what_is_left(Unwritten { failure, left }, tell))
    }

    /// What was not done at an early end, the inputs of a command line that were not even looked at included.
    fn not_done(&self) -> NotDone {
        let not_done = self.batch.borrow().not_done();
        match &*self.source.borrow() {
            Some(InputSource::Known(known)) => NotDone {
                not_submitted: not_done.not_submitted + known.left(),
                is_partly_read: false,
                ..not_done
            },
            _ => not_done,
        }
    }

    /// Ends the batch because so many jobs have failed.
    pub(super) fn halt(self: &Rc<Self>, is_now: bool) {
        match is_now {
            true => self.end(EndReason::Halted),
            false => {
                self.batch
                    .borrow_mut()
                    .end_early(CancelledJobs::AreCounted, EndReason::Halted.of_cancelled());
            }
        }
    }

    /// Why the batch was halted, and what was not done.
    fn halted(&self) -> Vec<String> {
        let Some(failed) = self.batch.borrow().halted_after() else { return Vec::new() };
        let why = format!("halted after {}", text::count(failed, "failed job"));
        [why].into_iter().chain(not_done_line(self.not_done())).collect()
    }

    /// The inputs that were left out, where only failed jobs are run again.
    fn left_out(&self) -> Vec<String> {
        let is_any = self.batch.borrow().left_out() > 0;
        self.done_jobs.as_ref().filter(|_| is_any).map_or_else(Vec::new, |done_jobs| done_jobs.left_out())
    }

    /// For a batch that has ended because too many jobs failed: the jobs whose results are not written.
    fn dropped(&self) -> Option<String> {
        let batch = self.batch.borrow();
        let failed = text::count(batch.tally().failed, "failed result");
        let jobs = text::count(batch.unwritten(), "more job");
        let is_any = batch.unwritten() > 0;
        is_any.then(|| format!("stopped after {failed}: {jobs} had been submitted and have no line"))
    }
}

/// What was not done, in one line for people; nothing if all was done.
fn not_done_line(not_done: NotDone) -> Option<String> {
    let NotDone { cancelled, unknown, not_submitted, is_partly_read } = not_done;
    let counted =
        |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", text::count(count, "job")));
    let parts = [
        counted(cancelled, "cancelled"),
        counted(unknown, "whose outcome nobody knows"),
        counted(not_submitted, "not submitted"),
        is_partly_read.then(|| "the rest of the list not read".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("not done: {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_signal_at_once_means_the_same() {
        let end = BatchEnd { reason: EndReason::Interrupted(2), at: Instant::now() };
        assert!(end.is_told_again(2, Duration::ZERO));
        assert!(!end.is_told_again(15, Duration::ZERO));
        assert!(!end.is_told_again(2, ONE_SIGNAL));
        let end = BatchEnd { reason: EndReason::Complete, ..end };
        assert!(!end.is_told_again(2, Duration::ZERO));
    }

    #[test]
    fn what_was_not_done_is_one_line() {
        let not_done = NotDone { cancelled: 1, unknown: 0, not_submitted: 20, is_partly_read: true };
        let line = "not done: 1 job cancelled, 20 jobs not submitted, the rest of the list not read";
        assert_eq!(not_done_line(not_done).as_deref(), Some(line));
        assert_eq!(not_done_line(NotDone::default()), None);
    }
}
