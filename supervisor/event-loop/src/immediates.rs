//! Immediates: a queue whose entries can be cancelled while they wait.

use std::collections::VecDeque;

use super::callback::Callback;

/// Names an immediate of one loop, for [`clear`](super::LoopHandle::clear), `ref_` and `unref`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImmediateId(u64);

struct WaitingImmediate {
    callback: Callback,
    referenced: bool,
}

/// Immediates are numbered in the order of their start, so a number is also a place in the queue. One that was
/// cleared leaves a gap until its turn has come.
pub(super) struct Immediates {
    queue: VecDeque<Option<WaitingImmediate>>,
    first: u64,
    referenced: usize,
}

impl Immediates {
    pub(super) fn new() -> Immediates {
        Immediates { queue: VecDeque::new(), first: 0, referenced: 0 }
    }

    /// How many immediates keep the loop alive, and the poll from waiting.
    pub(super) fn referenced(&self) -> usize {
        self.referenced
    }

    pub(super) fn push(&mut self, callback: Callback) -> ImmediateId {
        let id = ImmediateId(self.end());
        self.queue.push_back(Some(WaitingImmediate { callback, referenced: true }));
        self.referenced += 1;
        id
    }

    pub(super) fn cancel(&mut self, id: ImmediateId) -> Option<Callback> {
        let waiting = self.place_of(id)?.take()?;
        Some(self.count_out(waiting))
    }

    /// Nothing happens if the immediate has run, or was cleared.
    pub(super) fn set_referenced(&mut self, id: ImmediateId, referenced: bool) {
        let Some(Some(waiting)) = self.place_of(id) else { return };
        let was_referenced = std::mem::replace(&mut waiting.referenced, referenced);
        self.referenced += usize::from(referenced);
        self.referenced -= usize::from(was_referenced);
    }

    /// Nothing if the immediate has run, or was cleared.
    pub(super) fn is_referenced(&self, id: ImmediateId) -> Option<bool> {
        let place = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        self.queue.get(place)?.as_ref().map(|waiting| waiting.referenced)
    }

    fn place_of(&mut self, id: ImmediateId) -> Option<&mut Option<WaitingImmediate>> {
        let place = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        self.queue.get_mut(place)
    }

    fn count_out(&mut self, waiting: WaitingImmediate) -> Callback {
        self.referenced -= usize::from(waiting.referenced);
        waiting.callback
    }

    /// The number that the next immediate will get: those before it are of this iteration, the others are not.
    pub(super) fn end(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    /// The next immediate that was started before `end`.
    pub(super) fn take_before(&mut self, end: u64) -> Option<(ImmediateId, Callback)> {
        while self.first < end {
            let id = ImmediateId(self.first);
            let waiting = self.queue.pop_front()?;
            self.first += 1;
            if let Some(waiting) = waiting {
                return Some((id, self.count_out(waiting)));
            }
        }
        None
    }

    pub(super) fn for_each_referenced(&self, mut see: impl FnMut(&Callback)) {
        let referenced = self.queue.iter().flatten().filter(|waiting| waiting.referenced);
        referenced.for_each(|waiting| see(&waiting.callback));
    }

    /// Dropping what is returned may run anything, so no borrow may be held then.
    #[must_use]
    pub(super) fn take_all(&mut self) -> Vec<Callback> {
        self.first = self.end();
        self.referenced = 0;
        std::mem::take(&mut self.queue).into_iter().flatten().map(|waiting| waiting.callback).collect()
    }
}
