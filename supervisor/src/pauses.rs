//! Times in which this process did not run, because it was stopped, or its machine was. They are recognized by how late
//! a timer is.
//!
//! ```text
//!    0 ... LATE_MIN        late because of work: the time counts for everybody
//!   LATE_MIN ... GAP_MIN   a short pause
//!   GAP_MIN ...            a long one
//! ```
//!
//! This says whether there was a pause. What follows from it is decided where time limits are applied. The hub has a
//! clock of its own for the core: it leaves a long pause out, and measures each wait of jobs in parts, because a job's
//! limits and its receipt must be exact (`hub/gaps.rs`). The server has limits of seconds and minutes for clients, and
//! gives all of them one more chance (`server/patience.rs`). Both bound how much they excuse in a row, so that limits
//! apply also on a machine that is always late.

use crate::limits::{GAP_MIN, LATE_MIN};
use std::time::Duration;

/// What the lateness of a timer says of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It ran.
    None,
    /// It did not run for less than [`GAP_MIN`].
    Short,
    /// It did not run for [`GAP_MIN`] or longer.
    Long,
}

impl Pause {
    /// The pause before a timer that fired this late.
    pub(crate) fn behind(late: Duration) -> Pause {
        match late {
            late if late < LATE_MIN => Pause::None,
            late if late < GAP_MIN => Pause::Short,
            _ => Pause::Long,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_known_by_how_late_a_timer_is() {
        let behind = |millis| Pause::behind(Duration::from_millis(millis));
        assert_eq!([0, 99].map(behind), [Pause::None; 2]);
        assert_eq!([100, 999].map(behind), [Pause::Short; 2]);
        assert_eq!([1000, 3_600_000].map(behind), [Pause::Long; 2]);
    }
}
