//! Child processes. The loop watches a descriptor of each process (a pidfd), which is readable when the process has exited.
//!
//! ```text
//!   spawn -> Running --(the pidfd is readable: the process is waited for)--> Exited: callback and futures are told
//!               |
//!               +--close(), the last handle or the loop is dropped--> the process's reaper waits for it
//! ```
//!
//! So no zombie remains whatever happens to the handle, and a signal never reaches another process that was given the same
//! number.

use std::cell::RefCell;
use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::Location;
use std::process::{Command, ExitStatus};
use std::rc::Rc;
use std::task::{Poll, Waker};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::SourceError;
use super::base::{Liveness, Source, SourceBase, impl_references};
use super::executable;
use super::reaper;
use super::stream::Stream;
use super::stream_inner::errno_of;
use super::transport::Transport;
use crate::callback::Site;
use crate::sys;
use crate::{AliveKind, Context, Interest, LoopHandle, Phase, Readiness};

type ExitCallback = Box<dyn FnOnce(&mut Context, Result<ExitStatus, SourceError>)>;

/// A child process. Cheap to clone: all clones are the same child.
///
/// A child keeps the loop alive until it has exited, unless it is unreferenced. The loop keeps a child with an exit
/// callback; one that nobody waits for is let go when its last handle is dropped. A child that was closed or let go
/// runs on, and a thread that all loops of the process share waits for its end.
#[derive(Clone)]
pub struct Child {
    inner: Rc<ChildInner>,
}

struct ChildInner {
    base: SourceBase,
    process_id: u32,
    state: RefCell<State>,
}

struct State {
    process: Process,
    callback: Option<(Site, ExitCallback)>,
    /// Futures that wait for the end, by their tickets.
    wakers: Vec<(u64, Waker)>,
    streams: StandardStreams,
}

enum Process {
    Running { process: std::process::Child, pidfd: OwnedFd },
    Exited(Result<ExitStatus, Errno>),
    Closed,
}

impl State {
    fn life(&self) -> Liveness {
        let is_active = matches!(self.process, Process::Running { .. });
        Liveness { is_active, is_busy: false, is_kept: is_active && self.callback.is_some() }
    }
}

/// The ends of a child's standard streams that were asked for.
#[derive(Default)]
struct StandardStreams {
    input: Option<Stream>,
    output: Option<Stream>,
    error_output: Option<Stream>,
}

impl Child {
    /// Starts `command`. The standard streams that it wants piped are to be taken from the child. It begins with the
    /// default action for every signal and none blocked, whatever this process ignores, catches or blocks.
    ///
    /// # Errors
    /// At once, as from the standard library: [`SourceError::Io`] for a program that does not exist and the like, also for a
    /// file that is neither a program for this machine nor a script that begins with `#!`;
    /// [`SourceError::OutOfDescriptors`]. No process is left over then: it is killed if it had begun.
    #[track_caller]
    pub fn spawn(event_loop: &LoopHandle, command: &mut Command) -> Result<Child, SourceError> {
        let site = Location::caller();
        executable::check(command)?;
        let mut process = sys::spawn_with_default_signals(command)?;
        match equip(event_loop, site, &mut process) {
            Ok((pidfd, streams)) => Child::watched(event_loop, site, process, pidfd, streams),
            Err(error) => {
                // It is dead in a moment, so this does not wait long.
                let _ = process.kill().and_then(|()| process.wait());
                Err(error)
            }
        }
    }

    fn watched(
        event_loop: &LoopHandle,
        site: Site,
        process: std::process::Child,
        pidfd: OwnedFd,
        streams: StandardStreams,
    ) -> Result<Child, SourceError> {
        let process_id = process.id();
        let process = Process::Running { process, pidfd };
        let state = RefCell::new(State { process, callback: None, wakers: Vec::new(), streams });
        let inner = Rc::new_cyclic(|inner| ChildInner {
            base: SourceBase::new(event_loop, site, AliveKind::ChildProcess, inner),
            process_id,
            state,
        });
        let child = Child { inner };
        // If it cannot be watched, dropping it leaves it to the reaper.
        child.inner.watch().inspect_err(|_| drop(child.kill(Signal::KILL.as_raw())))?;
        Ok(child)
    }

    /// The number of the process, for messages. It may come to mean another process after the exit, so signals are
    /// sent by [`Child::kill`].
    pub fn id(&self) -> u32 {
        self.inner.process_id
    }

    /// The writing end of the child's standard input, if it is piped and was not taken before. Its
    /// [`shutdown`](Stream::shutdown) is the child's end of file.
    pub fn take_stdin(&self) -> Option<Stream> {
        self.inner.state.borrow_mut().streams.input.take()
    }

    /// The reading end of the child's standard output, if it is piped and was not taken before.
    pub fn take_stdout(&self) -> Option<Stream> {
        self.inner.state.borrow_mut().streams.output.take()
    }

    /// The reading end of the child's standard error, if it is piped and was not taken before.
    pub fn take_stderr(&self) -> Option<Stream> {
        self.inner.state.borrow_mut().streams.error_output.take()
    }

    /// Calls `callback` in the poll phase when the child has exited, or in the pending phase if it has already.
    /// Its standard streams may still have something to read then. The status is an error only if somebody else in
    /// this process has waited for the child.
    ///
    /// # Errors
    /// [`SourceError::AlreadyReading`] if another callback waits, [`SourceError::Closed`].
    #[track_caller]
    pub fn on_exit(
        &self,
        callback: impl FnOnce(&mut Context, Result<ExitStatus, SourceError>) + 'static,
    ) -> Result<(), SourceError> {
        let site = Location::caller();
        let mut state = self.inner.state.borrow_mut();
        match state.process {
            Process::Closed => return Err(SourceError::Closed),
            Process::Exited(status) => {
                drop(state);
                let event_loop = self.inner.base.event_loop();
                event_loop.set_pending_at(site, move |context| callback(context, status.map_err(Into::into)));
            }
            Process::Running { .. } if state.callback.is_some() => return Err(SourceError::AlreadyReading),
            Process::Running { .. } => {
                state.callback = Some((site, Box::new(callback)));
                let life = state.life();
                drop(state);
                self.inner.base.set_life(life);
            }
        }
        Ok(())
    }

    /// Waits until the child has exited. Any number of futures may wait, also later.
    ///
    /// # Errors
    /// [`SourceError::Closed`], and as [`Child::on_exit`] tells its callback.
    pub async fn exited(&self) -> Result<ExitStatus, SourceError> {
        let waiting = WaitingForExit { inner: &self.inner, ticket: self.inner.base.next_ticket() };
        poll_fn(|context| self.inner.poll_exit(waiting.ticket, context.waker().clone())).await
    }

    /// Sends a signal to the process, and to no other.
    ///
    /// # Errors
    /// [`SourceError::UnusableSignal`] for 0, unknown and real-time signals, [`SourceError::AlreadyExited`],
    /// [`SourceError::Closed`], [`SourceError::Io`] without the permission.
    pub fn kill(&self, signal: i32) -> Result<(), SourceError> {
        let named = Signal::from_named_raw(signal).ok_or(SourceError::UnusableSignal { signal })?;
        match &self.inner.state.borrow().process {
            Process::Running { pidfd, .. } => pidfd_send_signal(pidfd, named).map_err(|errno| match errno {
                Errno::SRCH => SourceError::AlreadyExited,
                other => other.into(),
            }),
            Process::Exited(_) => Err(SourceError::AlreadyExited),
            Process::Closed => Err(SourceError::Closed),
        }
    }

    /// Stops waiting for the child: no callback is told of its exit, and standard streams that were not taken are closed. It
    /// runs on; whoever wants its end kills it before. `on_closed` runs in the closing phase.
    ///
    /// # Errors
    /// [`SourceError::Closed`] if it was closed before; `on_closed` is dropped then.
    #[track_caller]
    pub fn close(&self, on_closed: impl FnOnce(&mut Context) + 'static) -> Result<(), SourceError> {
        let Some(state) = self.inner.take_apart() else { return Err(SourceError::Closed) };
        self.inner.base.run_in_closing(Location::caller(), on_closed);
        state.wakers.into_iter().for_each(|(_, waker)| waker.wake());
        Ok(())
    }
}

/// Opens the child's pidfd and makes streams of its pipes.
fn equip(
    event_loop: &LoopHandle,
    site: Site,
    process: &mut std::process::Child,
) -> Result<(OwnedFd, StandardStreams), SourceError> {
    // The child was not waited for, so its number is still its own.
    let pidfd = pidfd_open(Pid::from_child(process), PidfdFlags::empty())?;
    let stream = |pipe: Option<OwnedFd>| -> Result<Option<Stream>, SourceError> {
        let Some(pipe) = pipe else { return Ok(None) };
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Some(Stream::open(event_loop, site, pipe, Transport::Pipe)))
    };
    let streams = StandardStreams {
        input: stream(process.stdin.take().map(OwnedFd::from))?,
        output: stream(process.stdout.take().map(OwnedFd::from))?,
        error_output: stream(process.stderr.take().map(OwnedFd::from))?,
    };
    Ok((pidfd, streams))
}

impl_references!(Child);

impl ChildInner {
    fn watch(&self) -> Result<(), SourceError> {
        let state = self.state.borrow();
        let Process::Running { pidfd, .. } = &state.process else { return Ok(()) };
        self.base.watch(pidfd.as_fd(), Interest::READ)?;
        let life = state.life();
        drop(state);
        self.base.set_life(life);
        Ok(())
    }

    /// Waits for the process if it has exited. Nothing if it has not.
    fn reap(&self) -> Option<Result<ExitStatus, Errno>> {
        let mut state = self.state.borrow_mut();
        let Process::Running { process, pidfd } = &mut state.process else { return None };
        let status = match process.try_wait() {
            Ok(status) => Ok(status?),
            Err(error) => Err(errno_of(error.into())),
        };
        // Asking for less cannot fail.
        let _ = self.base.watch(pidfd.as_fd(), Interest::NONE);
        state.process = Process::Exited(status);
        Some(status)
    }

    fn poll_exit(&self, ticket: u64, waker: Waker) -> Poll<Result<ExitStatus, SourceError>> {
        let mut state = self.state.borrow_mut();
        match state.process {
            Process::Exited(status) => return Poll::Ready(status.map_err(Into::into)),
            Process::Closed => return Poll::Ready(Err(SourceError::Closed)),
            Process::Running { .. } => {}
        }
        let replaced = match state.wakers.iter_mut().find(|(other, _)| *other == ticket) {
            Some((_, previous)) => Some(std::mem::replace(previous, waker)),
            None => {
                state.wakers.push((ticket, waker));
                None
            }
        };
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Leaves the loop, and a process that still runs to the reaper. Nothing if that happened before. Drop what is
    /// returned only when no borrow is held.
    fn take_apart(&self) -> Option<State> {
        let mut state = self.state.borrow_mut();
        if matches!(state.process, Process::Closed) {
            return None;
        }
        let closed = State {
            process: Process::Closed,
            callback: None,
            wakers: Vec::new(),
            streams: StandardStreams::default(),
        };
        let mut taken = std::mem::replace(&mut *state, closed);
        drop(state);
        match std::mem::replace(&mut taken.process, Process::Closed) {
            Process::Running { process, pidfd } => {
                self.base.leave(Some(pidfd.as_fd()));
                reaper::adopt(process, pidfd);
            }
            _ => self.base.leave(None),
        }
        Some(taken)
    }
}

impl Source for ChildInner {
    fn on_ready(self: Rc<Self>, context: &mut Context, _: Readiness) {
        let Some(status) = self.reap() else { return };
        let mut state = self.state.borrow_mut();
        let (callback, wakers) = (state.callback.take(), std::mem::take(&mut state.wakers));
        let life = state.life();
        drop(state);
        self.base.set_life(life);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
        if let Some((site, callback)) = callback {
            context.call(Phase::Poll, site, |context| callback(context, status.map_err(Into::into)));
        }
    }

    fn on_loop_gone(&self) {
        let remains = self.take_apart();
        drop(remains);
    }
}

impl Drop for ChildInner {
    fn drop(&mut self) {
        let remains = self.take_apart();
        drop(remains);
    }
}

/// A future that waits for the end. Dropping it ends its waiting.
struct WaitingForExit<'a> {
    inner: &'a ChildInner,
    ticket: u64,
}

impl Drop for WaitingForExit<'_> {
    fn drop(&mut self) {
        let mut state = self.inner.state.borrow_mut();
        let own = state.wakers.iter().position(|(ticket, _)| *ticket == self.ticket);
        let left = own.map(|index| state.wakers.swap_remove(index));
        drop(state);
        drop(left);
    }
}
