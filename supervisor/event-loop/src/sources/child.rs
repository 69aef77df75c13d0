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
use std::os::fd::OwnedFd;
use std::panic::Location;
use std::process::{Command, ExitStatus};
use std::rc::Rc;
use std::task::{Poll, Waker};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::SourceError;
use super::base::{Base, Gone, Liveness, Source};
use super::executable;
use super::methods::impl_common_methods;
use super::reaper;
use super::stream::Stream;
use super::transport::Transport;
use super::waiting::{WaitingFutures, WaitingPlace};
use crate::callback::Site;
use crate::calls::wake_each;
use crate::sys;
use crate::{AliveKind, Context, Interest, LoopHandle, Phase, Readiness};

type ExitCallback = Box<dyn FnOnce(&mut Context, Result<ExitStatus, SourceError>)>;

/// A child process. Cheap to clone: all clones are the same child.
///
/// A child keeps the loop alive until it has exited, unless it is unreferenced. The loop keeps a child with an exit
/// callback; one that nobody waits for is let go when its last handle is dropped. A child that was closed or let go
/// runs on, and a thread that all loops of the process share waits for its end.
///
/// It is not [`AsFd`](std::os::fd::AsFd), because the loop closes its pidfd when it has exited: see [`Child::descriptor`].
///
/// ```
/// use offload_event_loop::{Child, EventLoop, Incoming};
/// use std::process::{Command, Stdio};
///
/// let mut event_loop = EventLoop::new()?;
/// let child = Child::spawn(&event_loop, Command::new("echo").arg("hello").stdout(Stdio::piped()))?;
/// let output = child.take_stdout().expect("it is piped");
/// output.read_start(|_, _, incoming| {
///     if let Incoming::Data(bytes) = incoming {
///         assert_eq!(bytes, b"hello\n");
///     }
/// })?;
/// child.on_exit(|_, status| assert!(status.is_ok_and(|status| status.success())))?;
/// event_loop.run()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Child {
    inner: Rc<ChildInner>,
}

struct ChildInner {
    /// Its descriptor is the pidfd, until the process has exited.
    base: Base,
    process_id: u32,
    state: RefCell<ChildState>,
}

struct ChildState {
    process: ChildProcess,
    waiting: Waiting,
}

enum ChildProcess {
    Running(std::process::Child),
    Exited(Result<ExitStatus, Errno>),
    Closed,
}

/// Everybody who waits for the end, and the streams that nobody has taken yet.
#[derive(Default)]
struct Waiting {
    callback: Option<(Site, ExitCallback)>,
    futures: WaitingFutures,
    streams: StandardStreams,
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
        event_loop.shared.check_not_gone()?;
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
        let waiting = Waiting { streams, ..Waiting::default() };
        let inner = Rc::new_cyclic(|inner| ChildInner {
            base: Base::new(event_loop, site, AliveKind::ChildProcess, inner, Ok(pidfd)),
            process_id,
            state: RefCell::new(ChildState { process: ChildProcess::Running(process), waiting }),
        });
        let child = Child { inner };
        // If it cannot be watched, dropping it leaves it to the reaper.
        child.inner.update().inspect_err(|_| drop(child.kill(Signal::KILL.as_raw())))?;
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
        self.inner.state.borrow_mut().waiting.streams.input.take()
    }

    /// The reading end of the child's standard output, if it is piped and was not taken before.
    pub fn take_stdout(&self) -> Option<Stream> {
        self.inner.state.borrow_mut().waiting.streams.output.take()
    }

    /// The reading end of the child's standard error, if it is piped and was not taken before.
    pub fn take_stderr(&self) -> Option<Stream> {
        self.inner.state.borrow_mut().waiting.streams.error_output.take()
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
            ChildProcess::Closed => return Err(SourceError::Closed),
            ChildProcess::Exited(status) => {
                drop(state);
                let event_loop = self.inner.base.event_loop();
                event_loop.set_pending_at(site, move |context| callback(context, status.map_err(Into::into)));
            }
            ChildProcess::Running(_) if state.waiting.callback.is_some() => {
                return Err(SourceError::AlreadyReading);
            }
            ChildProcess::Running(_) => {
                state.waiting.callback = Some((site, Box::new(callback)));
                drop(state);
                self.inner.update()?;
            }
        }
        Ok(())
    }

    /// Waits until the child has exited. Any number of futures may wait, also later.
    ///
    /// # Errors
    /// [`SourceError::Closed`], and the errors that the callback of [`Child::on_exit`] gets.
    pub async fn exited(&self) -> Result<ExitStatus, SourceError> {
        let place = WaitingPlace::new(&*self.inner, ChildInner::leave_exit);
        poll_fn(|context| self.inner.poll_exit(place.ticket, context.waker().clone())).await
    }

    /// Sends a signal to the process, and to no other.
    ///
    /// # Errors
    /// [`SourceError::UnusableSignal`] for 0, unknown and real-time signals, [`SourceError::AlreadyExited`],
    /// [`SourceError::Closed`], [`SourceError::Io`] without the permission.
    pub fn kill(&self, signal: i32) -> Result<(), SourceError> {
        let named = Signal::from_named_raw(signal).ok_or(SourceError::UnusableSignal { signal })?;
        let pidfd = self.inner.base.descriptor()?;
        pidfd_send_signal(&*pidfd, named).map_err(|errno| match errno {
            Errno::SRCH => SourceError::AlreadyExited,
            other => other.into(),
        })
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

impl_common_methods!(Child {
    /// Its pidfd, while it runs: for example for `setns`, or for `waitid` to look at the child without taking its end away.
    ///
    /// # Errors
    /// [`SourceError::AlreadyExited`] once its end is known, [`SourceError::Closed`].
    descriptor,
    /// Stops waiting for the child: its exit callback is dropped, and standard streams that were not taken are closed. The
    /// process runs on; to end it, [kill](Child::kill) it before. `on_closed` runs in the closing phase.
    close,
});

impl ChildInner {
    /// Waits for the process if it has exited. Nothing if it has not.
    fn reap(&self) -> Option<Result<ExitStatus, Errno>> {
        let mut state = self.state.borrow_mut();
        let ChildProcess::Running(process) = &mut state.process else { return None };
        let status = match process.try_wait() {
            Ok(status) => Ok(status?),
            Err(error) => Err(SourceError::from(error).into_errno()),
        };
        state.process = ChildProcess::Exited(status);
        self.base.give_up(Gone::Exited);
        Some(status)
    }

    fn poll_exit(&self, ticket: u64, waker: Waker) -> Poll<Result<ExitStatus, SourceError>> {
        let mut state = self.state.borrow_mut();
        match state.process {
            ChildProcess::Exited(status) => return Poll::Ready(status.map_err(Into::into)),
            ChildProcess::Closed => return Poll::Ready(Err(SourceError::Closed)),
            ChildProcess::Running(_) => {}
        }
        let replaced = state.waiting.futures.insert(ticket, waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// The future with this ticket waits for the end no more.
    fn leave_exit(&self, ticket: u64) {
        let left = self.state.borrow_mut().waiting.futures.remove(ticket);
        drop(left);
    }
}

impl Source for ChildInner {
    type Waiting = Waiting;

    fn base(&self) -> &Base {
        &self.base
    }

    fn interest(&self) -> Interest {
        match self.state.borrow().process {
            ChildProcess::Running(_) => Interest::READ,
            ChildProcess::Exited(_) | ChildProcess::Closed => Interest::NONE,
        }
    }

    fn liveness(&self) -> Liveness {
        let state = self.state.borrow();
        let is_active = matches!(state.process, ChildProcess::Running(_));
        Liveness { is_active, is_busy: false, is_kept: is_active && state.waiting.callback.is_some() }
    }

    fn on_ready(self: &Rc<Self>, context: &mut Context, _: Readiness) {
        let Some(status) = self.reap() else { return };
        let mut state = self.state.borrow_mut();
        let (callback, futures) = (state.waiting.callback.take(), state.waiting.futures.take());
        drop(state);
        self.want_less();
        let mut panics = wake_each(futures.into_iter().map(|waker| || waker.wake()));
        if let Some((site, callback)) = callback {
            let call = |context: &mut Context| callback(context, status.map_err(Into::into));
            panics.extend(context.call_guarded(Phase::Poll, site, call));
        }
        context.finish_calls(panics);
    }

    /// A process that still runs is left to the reaper.
    fn take_waiting(&self) -> Waiting {
        let mut state = self.state.borrow_mut();
        let process = std::mem::replace(&mut state.process, ChildProcess::Closed);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        if let ChildProcess::Running(process) = process {
            reaper::adopt(process);
        }
        waiting
    }

    fn tell_closed(self: &Rc<Self>, mut waiting: Waiting) -> Vec<Waker> {
        waiting.futures.take()
    }
}

impl Drop for ChildInner {
    fn drop(&mut self) {
        // The process may still run.
        self.abandon();
    }
}
