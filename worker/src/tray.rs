//! Descriptors that come from the supervisor, and the tray: a socket of its own in which the next job may lie while another
//! one runs.
//!
//! ```text
//!   Hello: can look into a tray ---> Welcome, with a descriptor ---> between two jobs, if none waits: look, do not wait
//! ```
//!
//! The supervisor may take a job back from the tray at any time. So what is found there is this worker's, and what is not
//! found is not missed: it comes by the other socket.

use offload_protocol::frame::FrameDecoder;
use offload_protocol::limits::TRAY_PACKET_MAX;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recv, recvmsg};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// See the module's documentation.
pub(crate) struct Tray {
    socket: OwnedFd,
    decoder: FrameDecoder,
}

impl Tray {
    pub(crate) fn new(socket: OwnedFd) -> Tray {
        Tray { socket, decoder: FrameDecoder::new(TRAY_PACKET_MAX) }
    }

    /// Takes what is in the tray: a whole frame. `None` if it is empty, or of no use any more.
    pub(crate) fn take(&mut self) -> Option<&mut FrameDecoder> {
        match recv(&self.socket, self.decoder.space(), RecvFlags::DONTWAIT) {
            Ok((count @ 1.., _)) => {
                self.decoder.filled(count);
                Some(&mut self.decoder)
            }
            _ => None,
        }
    }
}

/// Reads from the supervisor, with the descriptor that may come along. Should there be several, the last one counts, and the
/// others are closed.
///
/// # Errors
/// What the kernel reports.
pub(crate) fn receive_with_descriptor(
    stream: &UnixStream,
    space: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut ancillary_space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut ancillary_space);
    let received =
        recvmsg(stream, &mut [IoSliceMut::new(space)], &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.last(),
        _ => None,
    });
    Ok((received.bytes, descriptors.last()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::TaskContext;
    use crate::limits::TRAY_RUN_MIN;
    use crate::task::{Input, Output, TaskError};
    use crate::test_supervisor::{Said, Serving, TestSupervisor};
    use crate::worker::Worker;
    use offload_protocol::messages::PREFETCH;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{self, Sender};
    use std::time::Instant;

    /// A worker with a task `wait` that returns when the test lets it, one `echo`, and one `large` that returns 8 MiB.
    fn waiter() -> (TestSupervisor, Serving, Sender<()>) {
        let (release, released) = mpsc::channel::<()>();
        let (supervisor, serving) = TestSupervisor::of(move || {
            let wait = move |_: Input, _: &mut TaskContext| {
                let began = Instant::now();
                released.recv().map_err(|_| TaskError::new("the test is over"))?;
                // Behind a job that is over at once, nothing is looked for.
                while began.elapsed() <= TRAY_RUN_MIN {}
                Ok(Output::text("waited"))
            };
            Worker::new()
                .raw("wait", wait)
                .raw("echo", |input, _| Ok(Output::bytes(input.bytes)))
                .raw("large", |_, _| Ok(Output::bytes(vec![7; 8 << 20])))
        });
        (supervisor, serving, release)
    }

    /// The two ends of a tray: the one into which jobs are put, and the one that both sides have.
    fn tray() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn put(tray: &OwnedFd, job: u64, task: &str, input: &str) {
        send(tray, &TestSupervisor::run_packet(job, task, input), SendFlags::NOSIGNAL).unwrap();
    }

    fn started(job: u64) -> Said {
        Said::Started { job, attempt: 1 }
    }

    #[track_caller]
    fn finishes(supervisor: &mut TestSupervisor, finished: u64) {
        let said = supervisor.hear();
        assert!(matches!(said, Said::Finished { job, .. } if job == finished), "{said:?}");
    }

    #[test]
    fn a_job_in_the_tray_is_begun_when_the_one_that_runs_has_ended() {
        let (mut supervisor, serving, release) = waiter();
        let (ours, shared) = tray();
        supervisor.welcome(PREFETCH, &[&shared]);
        supervisor.add_run(1, "wait", "").send();
        assert_eq!(supervisor.hear(), started(1));
        put(&ours, 2, "echo", "from the tray");
        release.send(()).unwrap();
        finishes(&mut supervisor, 1);
        assert_eq!(supervisor.hear(), started(2));
        finishes(&mut supervisor, 2);
        assert_eq!(recv(&shared, &mut [0; 10], RecvFlags::DONTWAIT).err(), Some(Errno::AGAIN));
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn a_job_that_was_taken_back_is_not_missed() {
        let (mut supervisor, serving, release) = waiter();
        let (ours, shared) = tray();
        supervisor.welcome(PREFETCH, &[&shared]);
        supervisor.add_run(1, "wait", "").send();
        assert_eq!(supervisor.hear(), started(1));
        put(&ours, 2, "echo", "");
        assert!(recv(&shared, &mut [0; 1], RecvFlags::DONTWAIT).is_ok());
        release.send(()).unwrap();
        finishes(&mut supervisor, 1);
        supervisor.add_run(2, "echo", "").send();
        assert_eq!(supervisor.hear(), started(2));
        finishes(&mut supervisor, 2);
        drop(supervisor);
        serving.end().unwrap();
    }

    /// The supervisor may have no room for the long answer, which must not hold up another client's job.
    #[test]
    fn a_long_answer_is_sent_before_a_job_is_taken_from_the_tray() {
        let (mut supervisor, serving, _release) = waiter();
        let (ours, shared) = tray();
        supervisor.welcome(PREFETCH, &[&shared]);
        supervisor.add_run(1, "large", "").send();
        assert_eq!(supervisor.hear(), started(1));
        put(&ours, 2, "echo", "");
        assert_eq!(supervisor.read_some(), 1, "it is writing its answer");
        assert!(recv(&shared, &mut [0; 1], RecvFlags::DONTWAIT).is_ok(), "the job is still there");
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn descriptors_that_are_not_expected_are_closed() {
        for (capabilities, has_extra) in [(0, false), (0, true), (PREFETCH, true)] {
            let (mut supervisor, serving, _release) = waiter();
            let (_ours, shared) = tray();
            let (mut peer, extra) = UnixStream::pair().unwrap();
            let extra = OwnedFd::from(extra);
            let descriptors = if has_extra { vec![&extra, &shared] } else { vec![&extra] };
            supervisor.welcome(capabilities, &descriptors);
            supervisor.add_run(1, "echo", "").send();
            assert_eq!(supervisor.hear(), started(1));
            finishes(&mut supervisor, 1);
            drop(extra);
            assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the worker has no copy");
            drop(supervisor);
            serving.end().unwrap();
        }
    }
}
