//! The datagrams of a socket that wait for room in the kernel, and the answers that are due.
//!
//! ```text
//!   send() --(the kernel has room)---------------------------+--> finished --> its callback runs
//!      |                                                     |
//!      +--(it has none, or others wait)--> waiting --(sent, or refused)
//!      +--(the queue is full)--> refused
//! ```

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::SourceError;
use super::answers::{Answers, Done};
use crate::callback::Site;
use crate::limits::{SEND_QUEUE_BYTES_MAX, SEND_QUEUE_LEN_MAX, TURNS_PER_EVENT};

pub(super) struct WaitingDatagram {
    pub(super) bytes: Vec<u8>,
    /// Missing if it goes to the peer of `connect`.
    pub(super) receiver: Option<SocketAddr>,
    pub(super) site: Site,
    pub(super) done: Done,
}

#[derive(Default)]
pub(super) struct SendQueue {
    waiting: VecDeque<WaitingDatagram>,
    /// Of those that wait.
    bytes: usize,
    pub(super) answers: Answers,
}

impl SendQueue {
    /// How many datagrams wait to be sent or for their answer.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.answers.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a datagram of this length may be sent, or wait.
    pub(super) fn admit(&self, length: usize) -> Result<(), SourceError> {
        let (datagrams, bytes) = (self.len(), self.bytes);
        if datagrams >= SEND_QUEUE_LEN_MAX || bytes.saturating_add(length) > SEND_QUEUE_BYTES_MAX {
            return Err(SourceError::SendQueueFull { datagrams, bytes });
        }
        Ok(())
    }

    pub(super) fn push(&mut self, datagram: WaitingDatagram) {
        self.bytes += datagram.bytes.len();
        self.waiting.push_back(datagram);
    }

    /// Sends what waits, in order, until `send` finds no room. The answers become due. A datagram that is refused for
    /// another reason does not hold up those behind it.
    pub(super) fn flush(
        &mut self,
        mut send: impl FnMut(&[u8], Option<SocketAddr>) -> Result<(), SourceError>,
    ) {
        for _ in 0..TURNS_PER_EVENT {
            let Some(first) = self.waiting.front() else { return };
            let result = send(&first.bytes, first.receiver);
            if matches!(result, Err(SourceError::WouldBlock)) {
                return;
            }
            self.finish_first(result);
        }
    }

    /// Nothing that waits will be sent.
    pub(super) fn fail(&mut self, error: impl Fn() -> SourceError) {
        while !self.waiting.is_empty() {
            self.finish_first(Err(error()));
        }
    }

    fn finish_first(&mut self, result: Result<(), SourceError>) {
        if let Some(WaitingDatagram { bytes, site, done, .. }) = self.waiting.pop_front() {
            self.bytes -= bytes.len();
            self.answers.add(site, done, result);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;

    fn datagram(bytes: Vec<u8>) -> WaitingDatagram {
        WaitingDatagram { bytes, receiver: None, site: Location::caller(), done: Box::new(|_, _| ()) }
    }

    /// The results of the answers that are due.
    fn results(queue: &mut SendQueue) -> Vec<String> {
        std::iter::from_fn(|| queue.answers.pop()).map(|answer| format!("{:?}", answer.result)).collect()
    }

    #[test]
    fn datagrams_are_sent_in_order_as_far_as_there_is_room_and_the_rest_waits() {
        let (mut queue, mut sent) = (SendQueue::default(), Vec::new());
        (1..=3).for_each(|length| queue.push(datagram(vec![0; length])));
        assert_eq!((queue.len(), queue.bytes()), (3, 6));
        queue.flush(|bytes, _| match bytes.len() {
            3 => Err(SourceError::WouldBlock),
            length => {
                sent.push(length);
                Ok(())
            }
        });
        assert_eq!(sent, [1, 2]);
        assert_eq!(
            (queue.len(), queue.bytes(), queue.is_idle()),
            (3, 3, false),
            "two wait for their answers"
        );
        assert_eq!(results(&mut queue), ["Ok(())", "Ok(())"]);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn a_datagram_that_is_refused_does_not_hold_up_the_next_one() {
        let (mut queue, mut sent) = (SendQueue::default(), 0);
        (0..2).for_each(|_| queue.push(datagram(vec![0; 10])));
        queue.flush(|_, _| {
            sent += 1;
            if sent == 1 { Err(SourceError::NotConnected) } else { Ok(()) }
        });
        assert_eq!(results(&mut queue), ["Err(NotConnected)", "Ok(())"]);
        assert!(queue.is_idle());
    }

    #[test]
    fn a_queue_takes_so_many_datagrams_and_so_many_bytes_and_says_when_it_is_full() {
        let mut queue = SendQueue::default();
        (0..SEND_QUEUE_LEN_MAX).for_each(|_| queue.push(datagram(Vec::new())));
        let refused = queue.admit(0);
        assert!(matches!(
            refused,
            Err(SourceError::SendQueueFull { datagrams: SEND_QUEUE_LEN_MAX, bytes: 0 })
        ));
        let mut queue = SendQueue::default();
        queue.push(datagram(vec![0; SEND_QUEUE_BYTES_MAX - 1]));
        queue.admit(1).unwrap();
        assert!(matches!(queue.admit(2), Err(SourceError::SendQueueFull { datagrams: 1, .. })));
    }

    #[test]
    fn datagrams_that_will_never_be_sent_are_all_answered() {
        let mut queue = SendQueue::default();
        (0..2).for_each(|_| queue.push(datagram(vec![0; 10])));
        queue.fail(|| SourceError::Cancelled);
        assert_eq!((queue.bytes(), results(&mut queue).len()), (0, 2));
    }
}
