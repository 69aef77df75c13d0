//! When the limits of a connection are looked at, with one timer for all of them.
//!
//! ```text
//!   planned ---- the timer ----> looking: has the first limit passed?
//!      ^                           |-- no: planned for when it passes, or for the shortest limit, because others may begin meanwhile
//!      |                           |-- yes, and not seen before: warned. It is looked at again in a turn of its own,
//!      |                           |        when what came meanwhile was read
//!      '---------------------------'-- yes, as at the look before: it is late
//! ```

use super::{Late, Patience, Rule};
use crate::limits::{AHEAD_TIME, BODY_TIME, HEAD_TIME, LINGER_TIME, READ_TIME};
use offload_event_loop::TimerId;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

type OnLate = Box<dyn Fn(Late)>;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Look {
    planned: Cell<Option<(TimerId, Instant)>>,
    /// This limit had passed when it was last looked at, and when that was.
    warned: Cell<Option<(Rule, Instant)>>,
    on_late: RefCell<Option<OnLate>>,
}

impl Look {
    /// A limit has passed. If it had at the look before, returns when that was: what came until then was read.
    fn warn(&self, (at, rule): (Instant, Rule), now: Instant) -> Option<Instant> {
        let warned = self.warned.take().filter(|(its, since)| *its == rule && at <= *since);
        if warned.is_none() {
            self.warned.set(Some((rule, now)));
        }
        warned.map(|(_, since)| since)
    }
}

impl Patience {
    /// Calls `on_late` when a limit has passed, as often as that happens.
    pub(crate) fn watch(self: &Rc<Patience>, on_late: impl Fn(Late) + 'static) {
        self.look.on_late.replace(Some(Box::new(on_late)));
        self.look_again_at(self.now() + HEAD_TIME);
    }

    pub(super) fn tell(&self, late: Late) {
        if let Some(on_late) = &*self.look.on_late.borrow() {
            on_late(late);
        }
    }

    /// Looks at the limits then, or before.
    pub(super) fn look_by(self: &Rc<Patience>, at: Instant) {
        if self.look.planned.get().is_none_or(|(_, planned)| planned > at) {
            self.look_again_at(at);
        }
    }

    pub(super) fn look_again_at(self: &Rc<Patience>, at: Instant) {
        self.stop_looking();
        let (me, delay) = (Rc::downgrade(self), at.saturating_duration_since(self.now()));
        let timer = self.keeper.handle.set_timeout(delay, move |_| Patience::look(&me));
        self.keeper.handle.unref(timer);
        self.look.planned.set(Some((timer, at)));
    }

    pub(super) fn stop_looking(&self) {
        if let Some((timer, _)) = self.look.planned.take() {
            self.keeper.handle.clear(timer);
        }
    }

    fn look(me: &Weak<Patience>) {
        let Some(patience) = me.upgrade() else { return };
        patience.look.planned.set(None);
        let now = patience.now();
        match patience.first_limit() {
            Some((at, rule)) if at <= now => match patience.look.warn((at, rule), now) {
                None => patience.look_again_at(patience.keeper.turn()),
                Some(since) => {
                    patience.look_again_at(now + patience.longest_rest());
                    if let Some(late) = patience.limit_has_passed(rule, since) {
                        patience.tell(late);
                    }
                }
            },
            Some((at, Rule::Idle)) if !patience.ending.has_begun() => patience.put_off(at),
            Some((at, _)) => patience.put_off(at.min(now + patience.longest_rest())),
            None => patience.put_off(now + patience.longest_rest()),
        }
    }

    fn put_off(self: &Rc<Patience>, at: Instant) {
        self.look.warned.set(None);
        self.look_again_at(at);
    }

    /// While a request is under way the timer looks at least as often as the shortest limit is long, so none passes unseen.
    pub(super) fn longest_rest(&self) -> Duration {
        let shortest = HEAD_TIME.min(BODY_TIME).min(READ_TIME).min(AHEAD_TIME);
        if self.ending.has_begun() { LINGER_TIME.min(shortest) } else { shortest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::tests::seconds;

    #[test]
    fn only_a_limit_that_had_passed_at_the_look_before_is_late() {
        let (now, look) = (Instant::now(), Look::default());
        assert_eq!(look.warn((now, Rule::Head), now), None);
        assert_eq!(look.warn((now, Rule::Head), now + seconds(1)), Some(now));
        // Another one, and one that began anew since then.
        assert_eq!(look.warn((now, Rule::Head), now + seconds(2)), None);
        assert_eq!(look.warn((now, Rule::Idle), now + seconds(3)), None);
        assert_eq!(look.warn((now + seconds(4), Rule::Idle), now + seconds(4)), None);
        assert_eq!(look.warn((now + seconds(4), Rule::Idle), now + seconds(5)), Some(now + seconds(4)));
    }
}
