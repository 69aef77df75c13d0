//! Measures how long other users of the loop wait while jobs run: a thread asks the loop for a reply every millisecond
//! and records how late it comes.
//!
//! This is an *open-loop* measurement: each probe has an intended time, no probe is left out because earlier ones are
//! not answered yet, and the wait counts from the intended time. So a loop that is blocked for 50 ms shows up as fifty
//! late replies, not as one. If the prober itself is late, that counts too, as it would for a client.

use crate::limits::PROBE_WAIT_MAX_US;
use hdrhistogram::Histogram;
use offload_event_loop::{Context, LoopGone, LoopHandle, Remote, Request};
use offload_supervisor::views::Percentiles;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two probes.
pub(super) const PERIOD: Duration = Duration::from_millis(1);

/// See the module's documentation.
pub(super) struct Prober {
    thread: JoinHandle<()>,
    waits: WaitHistogram,
}

/// How late each of many things was, in microseconds, exact to 0.1 %: the replies that the prober received, or a timer.
#[derive(Clone, Debug)]
pub(super) struct Waits(Histogram<u64>);

impl Waits {
    /// Of nothing yet.
    pub(super) fn new() -> Waits {
        Waits(histogram())
    }

    /// Those of several samples.
    pub(super) fn together<'a>(all: impl Iterator<Item = &'a Waits>) -> Waits {
        let mut together = histogram();
        for Waits(one) in all {
            together.add(one).expect("all have the same bounds");
        }
        Waits(together)
    }

    /// One more.
    pub(super) fn note(&mut self, wait: Duration) {
        self.note_many(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX), 1);
    }

    /// So many that were all as late, in microseconds.
    pub(super) fn note_many(&mut self, wait_us: u64, count: u64) {
        self.0.saturating_record_n(wait_us, count);
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// How late they came.
    pub(super) fn latency_us(&self) -> Percentiles {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Percentiles { p50: at(0.5), p99: at(0.99), max: self.0.max() }
    }

    /// The shape of the whole distribution: shares, each with the time within which so many were. The shares come closer to each
    /// other towards 1, up to where one is left.
    pub(super) fn distribution_us(&self) -> Vec<(f64, u64)> {
        let missing = |step: i32| 10_f64.powf(-f64::from(step) / STEPS_OF_A_TENTH);
        let count = self.count() as f64;
        let shares =
            (0..).map(missing).take_while(|missing| missing * count >= 1.0).map(|missing| 1.0 - missing);
        let shares = shares.chain((count > 0.0).then_some(1.0));
        let rounded = |share: f64| (share * SHARES_OF_ONE).round() / SHARES_OF_ONE;
        shares.map(rounded).map(|share| (share, self.0.value_at_quantile(share))).collect()
    }
}

/// Shares are told as multiples of a billionth.
const SHARES_OF_ONE: f64 = 1e9;

/// From 90 to 99 % there are so many steps, and as many from there to 99.9 %.
const STEPS_OF_A_TENTH: f64 = 6.0;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, PROBE_WAIT_MAX_US, 3).expect("the bounds are constants that fit together")
}

impl Prober {
    /// Sends `probes`, one per [`PERIOD`], and calls `done` on the loop when all are answered. Their number limits how
    /// many can wait on a blocked loop. If the loop is dropped, the prober ends with the next probe.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub(super) fn start(
        handle: &LoopHandle,
        probes: u32,
        done: impl FnOnce(&mut Context) + 'static,
    ) -> io::Result<Prober> {
        let waits = WaitHistogram::new();
        let (remote, noted) = (handle.remote(), waits.clone());
        let all_answered = handle.request(|cx, ()| done(cx));
        let thread = thread::Builder::new().name("offload-prober".to_owned()).spawn(move || {
            // This fails only if the loop was dropped, and then nobody needs the result.
            let _ = probe(&remote, probes, &noted, all_answered);
        })?;
        Ok(Prober { thread, waits })
    }

    /// What was seen, once all probes are sent.
    pub(super) fn finish(self) -> Waits {
        self.thread.join().expect("the prober has nothing to panic about");
        self.waits.probed()
    }
}

fn probe(
    remote: &Remote,
    probes: u32,
    waits: &WaitHistogram,
    all_answered: Request<()>,
) -> Result<(), LoopGone> {
    let start = Instant::now();
    for number in 1..=probes {
        let intended = start + PERIOD * number;
        thread::sleep(intended.saturating_duration_since(Instant::now()));
        let waits = waits.clone();
        remote.post(move |_cx| waits.note(intended.elapsed()))?;
    }
    // The loop runs the posts of one thread in order.
    all_answered.complete(())
}

/// The waits so far, in bounded memory. The loop writes and the prober's owner reads, so the lock is never contended.
#[derive(Clone)]
struct WaitHistogram(Arc<Mutex<Waits>>);

impl WaitHistogram {
    fn new() -> WaitHistogram {
        WaitHistogram(Arc::new(Mutex::new(Waits::new())))
    }

    /// All that a reply does; it takes constant time.
    fn note(&self, wait: Duration) {
        self.lock().note(wait);
    }

    fn probed(&self) -> Waits {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_supervisor::EventLoop;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn every_probe_is_answered_before_the_end_is_told() {
        let mut event_loop = EventLoop::new().unwrap();
        let told = Rc::new(Cell::new(false));
        let tell = Rc::clone(&told);
        let prober = Prober::start(&event_loop, 20, move |_cx| tell.set(true)).unwrap();
        event_loop.run().unwrap();
        assert!(told.get());
        assert_eq!(prober.finish().count(), 20);
    }

    #[test]
    fn a_blocked_loop_makes_every_probe_late_that_was_due_meanwhile() {
        let mut event_loop = EventLoop::new().unwrap();
        let waits = WaitHistogram::new();
        let all_answered = event_loop.request(|_cx, ()| {});
        // The loop does not run until the last probe is sent: 19 ms after the first was due, 9 ms after the eleventh.
        probe(&event_loop.remote(), 20, &waits, all_answered).unwrap();
        event_loop.run().unwrap();
        let (probes, latency_us) = (waits.probed().count(), waits.probed().latency_us());
        assert_eq!(probes, 20);
        assert!(latency_us.max >= 19_000 && latency_us.p50 >= 9_000, "{latency_us:?}");
    }

    #[test]
    fn the_replies_of_several_samples_come_together() {
        let (some, more) = (WaitHistogram::new(), WaitHistogram::new());
        some.note(Duration::from_micros(10));
        [20, 30].into_iter().for_each(|wait| more.note(Duration::from_micros(wait)));
        let together = Waits::together([some.probed(), more.probed()].iter());
        assert_eq!((together.count(), together.latency_us()), (3, Percentiles { p50: 20, p99: 30, max: 30 }));
    }

    #[test]
    fn the_distribution_rises_to_the_longest_wait() {
        let mut waits = Waits::new();
        assert_eq!(waits.distribution_us(), []);
        waits.note_many(10, 989);
        waits.note_many(500, 10);
        waits.note_many(900, 1);
        let shape = waits.distribution_us();
        assert!(shape.is_sorted() && shape.len() == 20, "{shape:?}");
        assert_eq!((shape[0], shape[19]), ((0.0, 10), (1.0, 900)));
        let at = |share: f64| shape.iter().find(|(least, _)| *least >= share - 1e-9).map(|(_, wait)| *wait);
        assert_eq!([0.9, 0.99, 0.999].map(at), [Some(10), Some(500), Some(500)]);
    }

    #[test]
    fn a_prober_whose_loop_is_gone_ends() {
        let event_loop = EventLoop::new().unwrap();
        let (remote, all_answered) = (event_loop.remote(), event_loop.request(|_cx, ()| {}));
        drop(event_loop);
        assert_eq!(probe(&remote, u32::MAX, &WaitHistogram::new(), all_answered), Err(LoopGone));
    }

    #[test]
    fn a_wait_beyond_measure_counts_as_the_longest() {
        let waits = WaitHistogram::new();
        waits.note(Duration::MAX);
        assert!(waits.probed().latency_us().max >= PROBE_WAIT_MAX_US);
    }
}
