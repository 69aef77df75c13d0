//! An application: its process, and where it listens.

use super::backlog::{Backlog, OtherEnd};
use super::exchange::{Begun, Broken, Exchange, until_next_look};
use super::place::Place;
use super::request::Request;
use crate::behind::Behind;
use crate::foreign::Foreign;
use crate::limits::{FOREIGN_BEGIN_MAX, HTTP_APP_END_MAX, HTTP_APP_LOOK, HTTP_APP_TOLD_AFTER};
use crate::task::complain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Application {
    program: Foreign,
    place: Place,
    backlog: Backlog,
    /// For the next job, and whether the application has accepted it, as far as that can be seen. It is made before the supervisor is
    /// told that the job begins, which cannot begin without.
    connection: Option<(OwnedFd, bool)>,
    /// Why it has to end, found out while no job ran.
    end: Option<Broken>,
}

impl Application {
    /// Starts it.
    ///
    /// # Errors
    /// It could not be started.
    pub(super) fn start(command: &[OsString], supervisor: &UnixStream) -> io::Result<Application> {
        let (place, command) = Place::for_command(command)?;
        let program = Foreign::start(&command, supervisor, |_| Ok(()))?;
        Ok(Application { program, place, backlog: Backlog::open(), connection: None, end: None })
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

    fn answers(&mut self) -> Result<(), Broken> {
        let question =
            Request::to_find_out_whether_it_answers().map_err(|error| Broken::Wrong(error.to_string()))?;
        self.ask(question)?.head().map(drop)
    }

    /// Sends it a request.
    pub(super) fn ask(&mut self, request: Request) -> Result<Exchange<'_>, Broken> {
        let (stream, is_accepted) = match self.connection.take() {
            Some(connection) => connection,
            None => (self.connect()?, false),
        };
        Ok(Exchange::new(&self.program, &self.backlog, (stream, is_accepted), request))
    }

    fn connect(&self) -> Result<OwnedFd, Broken> {
        self.place.connect().map_err(|error| Broken::Closed(format!("takes no connection: {error}")))
    }

    /// A connection for the next job, on which it has sent nothing.
    fn connect_before(&mut self) -> Result<(), Broken> {
        if self.program.ends_within(Duration::ZERO) {
            return Err(Broken::Ended);
        }
        let stream = self.connect()?;
        if is_readable(&stream) {
            return Err(Broken::Wrong(
                "sent something, or closed the connection, before it was asked".to_owned(),
            ));
        }
        let is_accepted = self.wait_until_it_accepts(&stream)?;
        self.connection = Some((stream, is_accepted));
        Ok(())
    }

    /// Waits until the application has accepted the connection: a job that is not accepted has not begun, and its time does not count.
    /// False if the other end is gone, so that a reset is to be waited for.
    fn wait_until_it_accepts(&self, stream: &OwnedFd) -> Result<bool, Broken> {
        let since = Instant::now();
        loop {
            match self.backlog.other_end(stream) {
                OtherEnd::Accepted | OtherEnd::Unknown => return Ok(true),
                OtherEnd::Gone => return Ok(false),
                OtherEnd::Unowned => {}
            }
            let waited = since.elapsed();
            if waited > FOREIGN_BEGIN_MAX {
                let longest = FOREIGN_BEGIN_MAX.as_secs();
                return Err(Broken::Closed(format!("has accepted no connection for {longest} s")));
            }
            self.program.heed_signals();
            if self.program.ends_within(until_next_look(waited)) {
                return Err(Broken::Ended);
            }
        }
    }

    /// Ends this process, for this reason, while a job runs. The supervisor is told what an exit cannot say.
    pub(super) fn end_during(&mut self, broken: Broken, job: (u64, u32), begun: Begun) -> ! {
        let broken = self.or_its_end(broken);
        match (&broken, begun) {
            (_, Begun::No) => self.program.tell_not_begun(job),
            // What it did may have to do with the job before, so this one is not blamed; nor is it run twice if it must not.
            (Broken::Ended | Broken::Closed(_), Begun::Perhaps) => {
                self.program.tell_broken(
                    "it ended, or closed the connection, before it had read all of the request",
                    true,
                );
            }
            _ => {}
        }
        self.end_now(broken)
    }

    /// Ends this process, for this reason.
    pub(super) fn end_as(&mut self, broken: Broken) -> ! {
        let broken = self.or_its_end(broken);
        self.end_now(broken)
    }

    /// The connections of an application that ends are closed a moment before it has ended. Then its end is the reason.
    fn or_its_end(&self, broken: Broken) -> Broken {
        match broken {
            Broken::Closed(_) if self.program.ends_within(HTTP_APP_END_MAX) => Broken::Ended,
            other => other,
        }
    }

    fn end_now(&mut self, broken: Broken) -> ! {
        match broken {
            Broken::Ended => self.program.end_as_it_did(),
            Broken::Unwanted => self.program.end_unwanted(),
            Broken::Closed(why) | Broken::Wrong(why) => self.program.end_broken(&format!("it {why}")),
        }
    }

    /// There are no more jobs, or it has ended or has to.
    pub(super) fn finish(&mut self) {
        match self.end.take() {
            Some(end) => self.end_as(end),
            None => self.program.ask_to_end(),
        }
    }
}

fn is_readable(stream: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(count) if count > 0)
}

/// The application, for the session.
pub(super) struct Watched {
    application: Rc<RefCell<Application>>,
    watched: Vec<OwnedFd>,
}

impl Watched {
    pub(super) fn new(application: &Rc<RefCell<Application>>) -> io::Result<Watched> {
        let watched = application.borrow().program.watched()?;
        Ok(Watched { application: Rc::clone(application), watched })
    }
}

impl Behind for Watched {
    fn watched(&self) -> &[OwnedFd] {
        &self.watched
    }

    fn look(&mut self, can_tell: bool) -> bool {
        let application = self.application.borrow();
        application.program.may_tell(can_tell);
        application.program.heed_signals();
        !application.program.ends_within(Duration::ZERO)
    }

    fn get_ready(&mut self, can_tell: bool) -> bool {
        let mut application = self.application.borrow_mut();
        application.program.may_tell(can_tell);
        application.end = application.connect_before().err();
        application.end.is_none()
    }
}
