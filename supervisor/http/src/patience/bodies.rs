//! How long a client may take for a body that somebody waits for: BODY_TIME for each BODY_QUOTA, and BODY_IN_ALL with a second more for
//! each BODY_RATE. Each body has a time of its own.
//!
//! ```text
//!   Flowing ---- somebody waits ----> Waiting ---- bytes come ----> Flowing, but the time that it took stays used up
//!                                        '---- too late: whoever waits has to give it up; the connection goes on
//! ```

use super::Patience;
use super::given_up::GivenUp;
use super::pace::{Pace, Paces};
use crate::limits::{BODY_IN_ALL, BODY_QUOTA, BODY_RATE, BODY_TIME};
use std::rc::Rc;
use std::task::Context;
use std::time::Instant;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Bodies(Paces);

impl Bodies {
    fn waits(&self, number: u64, now: Instant) {
        self.0.change(number, |pace, _| pace.wait(now));
    }

    fn came(&self, number: u64, bytes: usize, now: Instant) {
        self.0.change(number, |pace, _| pace.count(bytes, now, BODY_QUOTA));
    }

    pub(super) fn limit(&self) -> Option<Instant> {
        self.0.first(body_limit)
    }

    /// Gives up those that are late.
    pub(super) fn give_up(&self, now: Instant) {
        self.0.give_up(now, body_limit);
    }
}

fn body_limit(pace: &Pace) -> Option<Instant> {
    pace.limit(BODY_TIME).min(pace.limit_in_all(BODY_IN_ALL, BODY_RATE))
}

impl Patience {
    /// A body that somebody will wait for.
    pub(crate) fn body(self: &Rc<Patience>) -> BodyPace {
        let given_up = Rc::<GivenUp>::default();
        let number = self.bodies.0.add(Pace::default(), Some(Rc::clone(&given_up)));
        BodyPace { patience: Rc::clone(self), number, given_up }
    }
}

/// See [`Patience::body`].
pub(crate) struct BodyPace {
    patience: Rc<Patience>,
    number: u64,
    given_up: Rc<GivenUp>,
}

impl BodyPace {
    /// Somebody waits for more of it, and is woken when it is late.
    pub(crate) fn wait(&self, context: &Context<'_>) {
        self.patience.bodies.waits(self.number, self.patience.now());
        self.given_up.wait(context);
    }

    /// Whether it did not come in time: whoever waits for it has to give it up.
    pub(crate) fn is_late(&self) -> bool {
        self.given_up.is_it()
    }

    /// So much of it came, and nobody waits for now.
    pub(crate) fn came(&self, bytes: usize) {
        self.patience.bodies.came(self.number, bytes, self.patience.now());
    }
}

impl Drop for BodyPace {
    fn drop(&mut self) {
        self.patience.bodies.0.remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::tests::seconds;

    #[test]
    fn a_body_has_a_time_for_each_quota_and_one_in_all() {
        let (now, bodies) = (Instant::now(), Bodies::default());
        let number = bodies.0.add(Pace::default(), None);
        assert_eq!(bodies.limit(), None, "nobody waits");
        bodies.waits(number, now);
        assert_eq!(bodies.limit(), Some(now + BODY_TIME));
        for quota in 0..4 {
            let at = now + seconds(7 * quota);
            bodies.waits(number, at);
            bodies.came(number, usize::try_from(BODY_QUOTA).unwrap(), at + seconds(7));
        }
        bodies.waits(number, now + seconds(100));
        assert_eq!(bodies.limit(), Some(now + seconds(100) + BODY_IN_ALL - seconds(28)));
    }

    #[test]
    fn a_body_that_flows_is_no_excuse_for_one_that_stands() {
        let (now, bodies) = (Instant::now(), Bodies::default());
        let late = Rc::<GivenUp>::default();
        let stands = bodies.0.add(Pace::default(), Some(Rc::clone(&late)));
        let flows = bodies.0.add(Pace::default(), None);
        bodies.waits(stands, now);
        bodies.waits(flows, now);
        bodies.came(flows, 1 << 20, now + seconds(9));
        assert_eq!(bodies.limit(), Some(now + BODY_TIME));
        bodies.give_up(now + BODY_TIME);
        assert_eq!((late.is_it(), bodies.limit()), (true, None));
    }
}
