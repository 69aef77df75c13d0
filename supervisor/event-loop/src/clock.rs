//! Where the loop's time comes from: the machine's clock, or a virtual one for tests.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::sys::processor_count;

/// Nanoseconds since the loop was made. They last for 584 years.
pub(super) type Nanos = u64;

#[derive(Debug)]
pub(super) struct Clock {
    origin: Instant,
    /// The same moment as the kernel counts it.
    origin_nanos: Nanos,
    source: TimeSource,
}

/// How far the processor's counter may go on before the clock is read again: about a microsecond, by the pace of the counter
/// (1 to 5 GHz). Durations are kept in whole microseconds.
const COUNT_PER_READING: u64 = 2_000;

/// A reading of the clock, and how far the processor's counter was then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    time: Nanos,
    count: Option<u64>,
}

impl Reading {
    #[inline]
    pub(super) fn time(self) -> Nanos {
        self.time
    }
}

#[derive(Debug)]
enum TimeSource {
    Monotonic,
    /// Stands still except when the loop would sleep.
    Virtual(Cell<Nanos>),
}

impl Clock {
    pub(super) fn monotonic() -> Clock {
        Clock { origin: Instant::now(), origin_nanos: monotonic_nanos(), source: TimeSource::Monotonic }
    }

    pub(super) fn virtual_time() -> Clock {
        Clock { origin: Instant::now(), origin_nanos: 0, source: TimeSource::Virtual(Cell::new(0)) }
    }

    #[inline]
    pub(super) fn read(&self) -> Nanos {
        match &self.source {
            TimeSource::Monotonic => monotonic_nanos() - self.origin_nanos,
            TimeSource::Virtual(now) => now.get(),
        }
    }

    #[inline]
    pub(super) fn reading(&self) -> Reading {
        match &self.source {
            TimeSource::Monotonic => Reading { time: self.read(), count: processor_count() },
            // Virtual time is exact, and costs nothing to read.
            TimeSource::Virtual(now) => Reading { time: now.get(), count: None },
        }
    }

    /// Reads the clock again, unless hardly any time has passed since `last`: it is never ahead of the clock, and at
    /// most two microseconds behind. After a short callback this costs 9 ns, a reading of the clock 20.
    #[inline]
    pub(super) fn reading_after(&self, last: Reading) -> Reading {
        if let (Some(before), Some(now)) = (last.count, processor_count())
            // On another core the counter may be behind. Then this is a huge number, and the clock is read.
            && now.wrapping_sub(before) < COUNT_PER_READING
        {
            return last;
        }
        self.reading()
    }

    /// The instant that lies `nanos` after the loop was made.
    pub(super) fn instant(&self, nanos: Nanos) -> Instant {
        self.origin + Duration::from_nanos(nanos)
    }

    pub(super) fn is_virtual(&self) -> bool {
        matches!(self.source, TimeSource::Virtual(_))
    }

    /// Lets virtual time pass. Real time passes by itself.
    pub(super) fn skip(&self, by: Nanos) {
        if let TimeSource::Virtual(now) = &self.source {
            now.set(now.get().saturating_add(by));
        }
    }
}

/// The clock that [`Instant`] reads, too, without the conversions on the way: it is read at every callback.
fn monotonic_nanos() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// A duration in nanoseconds; what does not fit counts as the largest.
#[inline]
pub(super) fn nanos(duration: Duration) -> Nanos {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(duration.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_never_ahead_of_the_clock_and_is_renewed_when_time_has_passed() {
        let clock = Clock::monotonic();
        let first = clock.reading();
        let mut last = first;
        while last.time() == first.time() {
            last = clock.reading_after(last);
            assert!(last.time() <= clock.read());
        }
        assert!(last.time() > first.time());
    }

    #[test]
    fn a_reading_of_virtual_time_is_exact() {
        let clock = Clock::virtual_time();
        let first = clock.reading();
        clock.skip(1);
        assert_eq!(clock.reading_after(first).time(), 1);
    }
}
