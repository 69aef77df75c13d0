//! How far the supervisor is on the way to its end.
//!
//! ```text
//!             drain, or a signal                         jobs and workers are gone
//!   Serving --------------------> Draining ----------------------------------------> Closing: the last answers are
//!      |                             | stop, or another signal                         ^     written, then the event
//!      |            stop             v                                                 |     loop stops
//!      '-------------------------> Stopping ------------------------------------------'
//! ```

/// The stage of the supervisor. See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Jobs are accepted.
    Serving,
    /// Accepted jobs are finished, and no others are accepted.
    Draining {
        /// A signal has asked for the drain, so the next signal stops the supervisor.
        by_signal: bool,
    },
    /// Accepted jobs are cancelled.
    Stopping,
    /// Jobs and workers are gone; the last answers are written.
    Closing {
        /// Whether the supervisor was stopped, so that jobs were cancelled and not finished.
        was_stopped: bool,
    },
}

/// What asked for the end of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndRequester {
    Signal,
    /// A client, or this program itself.
    Caller,
}

impl Stage {
    /// A drain is requested. Returns true if no drain or stop has begun before.
    pub(super) fn drain(&mut self, requester: EndRequester) -> bool {
        let is_signal = requester == EndRequester::Signal;
        match self {
            Stage::Serving => {
                *self = Stage::Draining { by_signal: is_signal };
                true
            }
            Stage::Draining { by_signal } => {
                *by_signal |= is_signal;
                false
            }
            Stage::Stopping | Stage::Closing { .. } => false,
        }
    }

    /// A stop is requested. Returns true if no stop has begun before.
    pub(super) fn stop(&mut self) -> bool {
        let is_news = matches!(self, Stage::Serving | Stage::Draining { .. });
        if is_news {
            *self = Stage::Stopping;
        }
        is_news
    }

    /// Jobs and workers are gone. Returns true if that was not known before.
    pub(super) fn close(&mut self) -> bool {
        let is_news = !self.is_closing();
        if is_news {
            *self = Stage::Closing { was_stopped: self.was_stopped() };
        }
        is_news
    }

    /// Whether the next signal stops the supervisor, because a signal has asked for the end or a stop has begun.
    pub(super) fn was_signalled(self) -> bool {
        !matches!(self, Stage::Serving | Stage::Draining { by_signal: false })
    }

    /// Whether the supervisor was told not to finish the accepted jobs.
    pub(super) fn was_stopped(self) -> bool {
        matches!(self, Stage::Stopping | Stage::Closing { was_stopped: true })
    }

    pub(super) fn is_closing(self) -> bool {
        matches!(self, Stage::Closing { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_signal_ends_at_once_and_one_after_a_client_asked_does_not() {
        let mut stage = Stage::Serving;
        assert!(stage.drain(EndRequester::Caller) && !stage.was_signalled());
        assert!(!stage.drain(EndRequester::Signal) && stage.was_signalled());
        assert!(!stage.drain(EndRequester::Caller) && stage.was_signalled(), "it has not forgotten");
        assert!(stage.stop() && !stage.stop());
    }

    #[test]
    fn a_stop_is_not_taken_back_and_is_known_in_the_end() {
        let mut stage = Stage::Serving;
        assert!(stage.stop() && !stage.drain(EndRequester::Signal));
        assert!(stage.close() && !stage.close());
        assert_eq!(stage, Stage::Closing { was_stopped: true });
    }

    #[test]
    fn who_comes_when_all_is_over_changes_nothing() {
        let mut stage = Stage::Serving;
        assert!(stage.drain(EndRequester::Signal) && stage.close());
        assert!(!stage.drain(EndRequester::Caller) && !stage.stop() && !stage.was_stopped());
    }
}
