//! Immediates: a queue whose entries can be taken back while they wait.

use std::collections::VecDeque;

use super::callback::Callback;

/// Names an immediate of one loop, for [`clear`](super::LoopHandle::clear).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImmediateId(u64);

/// Immediates are numbered in the order of their start, so a number is also a place in the queue. One that was
/// cleared leaves a gap until its turn has come.
pub(super) struct Immediates {
    queue: VecDeque<Option<Callback>>,
    first: u64,
    waiting: usize,
}

impl Immediates {
    pub(super) fn new() -> Immediates {
        Immediates { queue: VecDeque::new(), first: 0, waiting: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub(super) fn push(&mut self, callback: Callback) -> ImmediateId {
        let id = ImmediateId(self.end());
        self.queue.push_back(Some(callback));
        self.waiting += 1;
        id
    }

    pub(super) fn cancel(&mut self, id: ImmediateId) -> Option<Callback> {
        let place = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        let callback = self.queue.get_mut(place)?.take()?;
        self.waiting -= 1;
        Some(callback)
    }

    /// The number that the next immediate will get: those before it are of this iteration, the others are not.
    pub(super) fn end(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    /// The next immediate that was started before `end`.
    pub(super) fn take_before(&mut self, end: u64) -> Option<Callback> {
        while self.first < end {
            let callback = self.queue.pop_front()?;
            self.first += 1;
            if callback.is_some() {
                self.waiting -= 1;
                return callback;
            }
        }
        None
    }

    pub(super) fn for_each(&self, see: impl FnMut(&Callback)) {
        self.queue.iter().flatten().for_each(see);
    }

    pub(super) fn take_all(&mut self) -> VecDeque<Option<Callback>> {
        self.first = self.end();
        self.waiting = 0;
        std::mem::take(&mut self.queue)
    }
}
