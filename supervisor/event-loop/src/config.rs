//! The limits of a loop, where its time comes from, and the ways to run it.

use std::time::Duration;

/// Limits and time source of an [`EventLoop`](super::EventLoop).
///
/// The limits keep one phase from starving the others. Callbacks that do not fit below a limit stay first in their queue.
#[derive(Clone, Debug)]
pub struct LoopConfig {
    /// How many callbacks one phase runs at most before the next phase has its turn. At least 1 counts.
    pub callbacks_per_phase: usize,
    /// How many events one poll phase handles at most. At least 1 counts.
    pub events_per_poll: usize,
    /// How long one poll phase handles events at most; it also ends as soon as a timer is due.
    pub poll_budget: Duration,
    /// What happens when ticks, microtasks or idle hooks keep the loop longer than the `starvation_budget`.
    pub on_starvation: OnStarvation,
    /// How long the ticks and microtasks after one callback, or the idle hooks of one iteration, may take before
    /// they count as starving the rest of the loop. In virtual time nothing takes time.
    pub starvation_budget: Duration,
    /// Where the loop's time comes from.
    pub time: Time,
}

/// What a loop does when ticks, microtasks or idle hooks starve the rest of it. It counts in any case; see
/// [`Starvation`](super::Starvation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStarvation {
    /// Runs them all, as Node does: ticks that always queue another tick keep the loop from ever going on.
    Strict,
    /// Leaves the rest of them for later: other callbacks and the poll have their turn in between. What is left
    /// stays first in its queue.
    Budget,
}

impl Default for LoopConfig {
    /// A million callbacks, 48 times 1,024 events (as in libuv), 10 ms of polling, starvation counted from 10 ms
    /// on and allowed, real time.
    fn default() -> LoopConfig {
        LoopConfig {
            callbacks_per_phase: 1_000_000,
            events_per_poll: 48 * 1_024,
            poll_budget: Duration::from_millis(10),
            on_starvation: OnStarvation::Strict,
            starvation_budget: Duration::from_millis(10),
            time: Time::Real,
        }
    }
}

/// Where a loop's time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The monotonic clock of the machine.
    Real,
    /// A clock that stands still while callbacks run and jumps to the next due timer instead of sleeping. A test
    /// with it is deterministic and takes no time. Sources outside the loop are still looked at, without waiting.
    ///
    /// ```
    /// use offload_event_loop::{EventLoop, LoopConfig, Time};
    /// use std::time::Duration;
    ///
    /// let mut event_loop = EventLoop::with(LoopConfig { time: Time::Virtual, ..LoopConfig::default() })?;
    /// let (day, start) = (Duration::from_secs(24 * 60 * 60), event_loop.now());
    /// event_loop.set_timeout(day, move |context| assert!(context.now() - start >= day));
    /// event_loop.run()?; // It takes microseconds.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Virtual,
}

/// How long [`run_mode`](super::Context::run_mode) goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    /// Until nothing keeps the loop alive, or it is stopped.
    Default,
    /// One iteration, waiting for something to happen.
    Once,
    /// One iteration of what can be done now, without waiting.
    NoWait,
}
