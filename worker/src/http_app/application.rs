//! An application: its process, and where it listens.

use super::exchange::{Broken, Exchange};
use super::place::Place;
use super::request::Request;
use crate::foreign::Foreign;
use crate::limits::{HTTP_APP_END_MAX, HTTP_APP_LOOK, HTTP_APP_TOLD_AFTER};
use crate::task::complain;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Application {
    program: Foreign,
    place: Place,
}

impl Application {
    /// Starts it.
    ///
    /// # Errors
    /// It could not be started.
    pub(super) fn start(command: &[OsString]) -> io::Result<Application> {
        let (place, command) = Place::for_command(command)?;
        Ok(Application { program: Foreign::start(&command, |_| Ok(()))?, place })
    }

    /// Returns when it has answered. If it ends before, or what answers speaks no HTTP, so does this process; if it takes too long, the supervisor
    /// ends both.
    pub(super) fn wait_until_it_answers(&mut self) {
        let mut tell_at = Some(Instant::now() + HTTP_APP_TOLD_AFTER);
        loop {
            match self.answers() {
                Ok(()) => return self.place.forget_name(),
                Err(Broken::Closed(_)) if self.program.ends_within(HTTP_APP_LOOK) => {
                    self.end_as(Broken::Ended)
                }
                Err(Broken::Closed(why)) => {
                    if tell_at.take_if(|at| *at <= Instant::now()).is_some() {
                        complain(format_args!("the application does not answer yet: it {why}"));
                    }
                }
                Err(other) => self.end_as(other),
            }
        }
    }

    fn answers(&self) -> Result<(), Broken> {
        let question =
            Request::to_find_out_whether_it_answers().map_err(|error| Broken::Wrong(error.to_string()))?;
        self.ask(question)?.head().map(drop)
    }

    /// Sends it a request.
    pub(super) fn ask(&self, request: Request) -> Result<Exchange<'_>, Broken> {
        let stream =
            self.place.connect().map_err(|error| Broken::Closed(format!("takes no connection: {error}")))?;
        Ok(Exchange::new(&self.program, stream, request))
    }

    /// Ends this process, for this reason.
    pub(super) fn end_as(&mut self, broken: Broken) -> ! {
        match broken {
            Broken::Ended => self.program.end_as_it_did(),
            Broken::Unwanted => self.program.end_unwanted(),
            // Its connections are closed a moment before it has ended.
            Broken::Closed(_) if self.program.ends_within(HTTP_APP_END_MAX) => self.program.end_as_it_did(),
            Broken::Closed(why) | Broken::Wrong(why) => self.program.end_broken(&format!("it {why}")),
        }
    }

    /// As [`Foreign::life`].
    pub(super) fn life(&self) -> Option<OwnedFd> {
        self.program.life()
    }

    /// There are no more jobs, or it has ended.
    pub(super) fn finish(&mut self) {
        self.program.ask_to_end();
    }
}
