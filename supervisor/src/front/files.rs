//! The descriptor that a client sends for the input of its next job.
//!
//! ```text
//!            a descriptor has come              InputFile                      Submit of this ticket
//!   Nothing ----------------------> Came ---------------------> Announced ---------------------------> Nothing
//!      |      '-- no regular file     '-- any other message:        ^   '-- any other message, or
//!      |          to read, or several:    a violation               |       a descriptor: a violation
//!      |          a violation                                       |
//!      '---- InputFile, and no descriptor: no place was free -------'
//! ```
//!
//! A descriptor comes with the first byte of its message. A client need not wait for answers, so a read may bring the Submit
//! of one file together with the next file, which is kept until that Submit is taken. While no place is free, none is taken out of the socket: then the
//! kernel discards them, and the client is asked for the bytes. A connection has two files without their
//! jobs at most.

use super::request::SubmittedFile;
use crate::input_file::{FilePlace, FilePlaces, InputFile};
use offload_protocol::messages::{FILES, ToSupervisor};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct ArrivingFiles {
    places: FilePlaces,
    /// Both ends have the capability.
    is_agreed: bool,
    state: State,
    /// The place for the descriptor that the next read may bring.
    free: Option<FilePlace>,
}

#[derive(Debug)]
enum State {
    Nothing,
    Came(InputFile),
    /// The next file may have come behind the Submit, which is not taken yet.
    Announced {
        ticket: u64,
        file: SubmittedFile,
        next: Option<InputFile>,
    },
}

impl ArrivingFiles {
    pub(super) fn new(places: FilePlaces) -> ArrivingFiles {
        ArrivingFiles { places, is_agreed: false, state: State::Nothing, free: None }
    }

    /// These are the capabilities that both ends have.
    pub(super) fn agree(&mut self, shared: u64) {
        self.is_agreed = shared & FILES != 0;
    }

    /// Whether the next read is to look for a descriptor: there is a place for one, or there must be none.
    pub(super) fn are_looked_for(&mut self) -> bool {
        if !self.is_agreed {
            return false;
        }
        match self.state {
            State::Nothing | State::Announced { next: None, .. } => {
                self.free = self.places.take();
                self.free.is_some()
            }
            State::Came(_) | State::Announced { next: Some(_), .. } => true,
        }
    }

    /// A read has brought these descriptors, and no bytes beyond those that were sent together with them.
    ///
    /// # Errors
    /// In words, how the client breaks the protocol.
    pub(super) fn came(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), String> {
        let place = self.free.take();
        let mut descriptors = descriptors.into_iter();
        match (descriptors.next(), descriptors.next(), place) {
            (None, ..) => Ok(()),
            (Some(file), None, Some(place)) => {
                let file = InputFile::of(file, place).map_err(|error| format!("an input file: {error}"))?;
                match &mut self.state {
                    State::Announced { next, .. } => *next = Some(file),
                    state => *state = State::Came(file),
                }
                Ok(())
            }
            (first, second, place) => {
                close_all(first.into_iter().chain(second), place);
                Err("several descriptors for one input".to_owned())
            }
        }
    }

    /// All messages that had come were taken. Returns whether a descriptor is left that none of them has announced.
    pub(super) fn is_one_left(&self, is_mid_frame: bool) -> bool {
        match self.state {
            State::Nothing | State::Announced { next: None, .. } => false,
            State::Came(_) => !is_mid_frame,
            // Its message can only be behind the Submit, which then would be complete.
            State::Announced { next: Some(_), .. } => true,
        }
    }

    /// Whether the next message must be a Submit.
    pub(super) fn is_submit_due(&self) -> bool {
        matches!(self.state, State::Announced { .. })
    }

    /// A message has come. Returns the file that is its input, or that the message was InputFile.
    ///
    /// # Errors
    /// In words, how the client breaks the protocol.
    pub(super) fn take(
        &mut self,
        message: &ToSupervisor<'_>,
        payload_length: usize,
    ) -> Result<TakenFile, String> {
        match (message, std::mem::replace(&mut self.state, State::Nothing)) {
            (ToSupervisor::InputFile { .. }, _) if !self.is_agreed => {
                Err("an input that is a file, without the capability".to_owned())
            }
            (ToSupervisor::InputFile { .. }, _) if payload_length > 0 => {
                Err("a payload with a message that is not a job".to_owned())
            }
            (&ToSupervisor::InputFile { ticket, .. }, State::Nothing) => {
                self.state = State::Announced { ticket, file: SubmittedFile::Unusable, next: None };
                Ok(TakenFile::Announced)
            }
            (&ToSupervisor::InputFile { ticket, bytes }, State::Came(file)) => {
                // A file that has changed meanwhile may change again.
                let is_as_said = file.bytes() == bytes;
                let file =
                    if is_as_said { SubmittedFile::Open(Arc::new(file)) } else { SubmittedFile::Unusable };
                self.state = State::Announced { ticket, file, next: None };
                Ok(TakenFile::Announced)
            }
            (ToSupervisor::Submit { ticket, .. }, State::Announced { ticket: announced, file, next })
                if *ticket == announced && payload_length == 0 =>
            {
                self.state = next.map_or(State::Nothing, State::Came);
                Ok(TakenFile::OfJob(file))
            }
            (_, State::Announced { .. }) => Err(NOT_ITS_JOB.to_owned()),
            // That it was with another message is found out when all messages are taken.
            (_, came) => {
                self.state = came;
                Ok(TakenFile::None)
            }
        }
    }

    /// The connection ends.
    pub(super) fn give_up(&mut self) {
        (self.state, self.free, self.is_agreed) = (State::Nothing, None, false);
    }
}

/// What a message has to do with a file.
pub(super) enum TakenFile {
    None,
    /// It has announced the file of the next message.
    Announced,
    OfJob(SubmittedFile),
}

pub(super) const NOT_ITS_JOB: &str = "an input file, and then something else than its job without a payload";

/// Closes descriptors that are of no use.
fn close_all(files: impl Iterator<Item = OwnedFd>, mut place: Option<FilePlace>) {
    files.for_each(|file| drop(InputFile::of(file, place.take())));
}
