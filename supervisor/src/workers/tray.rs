//! The tray of one worker: a place for its next job while it works, from which the supervisor can take the job back with
//! certainty, also from a worker that is busy, stopped or hung.
//!
//! ```text
//!   supervisor                       the kernel                                worker
//!   put: send ---> one end ===== at most one packet =====> the other end ---> takes it between two jobs: recv
//!   take_back: recv <-------------------------------------------'
//! ```
//!
//! It is a pair of sockets for packets, of which this process keeps both ends. The worker has a copy of the second one. Two
//! processes may receive from that end, and the kernel gives a packet to exactly one of them. So whoever has the packet
//! knows that the other one has not seen it, and nobody has to be asked.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Debug)]
pub struct Tray {
    ours: OwnedFd,
    workers: Arc<OwnedFd>,
}

impl Tray {
    /// Makes an empty tray.
    ///
    /// # Errors
    /// What the kernel reports; usually that no descriptors are left.
    pub fn new() -> io::Result<Tray> {
        let (ours, workers) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok(Tray { ours, workers: Arc::new(workers) })
    }

    /// The end of which the worker gets a copy.
    pub fn workers_end(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.workers)
    }

    /// Puts a packet into the tray, which must be empty.
    ///
    /// # Errors
    /// What the kernel reports: the worker has shut the tray down, or it takes no packet of this length.
    pub fn put(&self, packet: &[u8]) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        retry_on_intr(|| send(&self.ours, packet, flags))?;
        Ok(())
    }

    /// Takes the packet out. True if it was there: then the worker has not seen it, and never will.
    ///
    /// Receiving could wait for a worker that is receiving: the kernel copies a packet under a lock. But by then the packet has
    /// left the queue, so an empty queue is the answer, and it is asked for without that lock. (Only a worker that peeks into
    /// memory whose pages somebody else provides (FUSE, userfaultfd) could still delay this; only code that is written for it
    /// does so.)
    pub fn take_back(&self) -> bool {
        let mut readable = [PollFd::new(&*self.workers, PollFlags::IN)];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !retry_on_intr(|| poll(&mut readable, Some(&no_wait))).is_ok_and(|ready| ready > 0) {
            return false;
        }
        // The kernel drops what does not fit into the buffer. No packet is empty: 0 bytes are the end of a tray that the
        // worker has shut down.
        let received = retry_on_intr(|| recv(&self.workers, &mut [0; 1], RecvFlags::DONTWAIT));
        matches!(received, Ok((1.., _)) | Err(Errno::MSGSIZE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::limits::TRAY_PACKET_MAX;
    use rustix::net::{Shutdown, shutdown};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// As a worker does it.
    fn take(end: &OwnedFd) -> Option<Vec<u8>> {
        let mut bytes = vec![0; TRAY_PACKET_MAX];
        let (count, _) = recv(end, &mut bytes[..], RecvFlags::DONTWAIT).ok()?;
        bytes.truncate(count);
        Some(bytes)
    }

    #[test]
    fn a_packet_is_taken_whole_and_cannot_be_taken_back_then() {
        let tray = Tray::new().unwrap();
        let packet = vec![7; TRAY_PACKET_MAX];
        tray.put(&packet).unwrap();
        assert_eq!(take(&tray.workers_end()), Some(packet));
        assert!(!tray.take_back());
    }

    #[test]
    fn a_packet_that_is_taken_back_is_gone_for_the_worker() {
        let tray = Tray::new().unwrap();
        for _ in 0..3 {
            tray.put(&[7; 1000]).unwrap();
            assert!(tray.take_back());
            assert_eq!(take(&tray.workers_end()), None);
        }
        assert!(!tray.take_back());
    }

    #[test]
    fn a_tray_that_its_worker_has_shut_down_takes_nothing_more_and_gives_back_what_it_has() {
        let tray = Tray::new().unwrap();
        tray.put(&[7; 10]).unwrap();
        shutdown(&*tray.workers_end(), Shutdown::Both).unwrap();
        assert!(tray.put(&[8; 10]).is_err());
        assert!(tray.take_back());
        assert!(!tray.take_back());
    }

    /// Both ends try at the same time, each packet.
    #[test]
    fn of_two_that_want_a_packet_exactly_one_gets_it() {
        let tray = Tray::new().unwrap();
        let (end, taken, put) = (tray.workers_end(), AtomicUsize::new(0), AtomicUsize::new(0));
        const PACKETS: usize = 2000;
        let taken_back = std::thread::scope(|scope| {
            scope.spawn(|| {
                while put.load(Ordering::Acquire) <= PACKETS {
                    taken.fetch_add(usize::from(take(&end).is_some()), Ordering::Relaxed);
                }
            });
            let mut taken_back = 0;
            for packet in 1..=PACKETS {
                tray.put(&[1; 100]).unwrap();
                put.store(packet, Ordering::Release);
                taken_back += usize::from(tray.take_back());
            }
            put.store(PACKETS + 1, Ordering::Release);
            taken_back
        });
        let left = usize::from(tray.take_back());
        assert_eq!((taken.into_inner() + taken_back, left), (PACKETS, 0));
    }
}
