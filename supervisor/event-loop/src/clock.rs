//! Where the loop's time comes from: the machine's clock, or a virtual one for tests.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the loop was made. They last for 584 years.
pub(super) type Nanos = u64;

#[derive(Debug)]
pub(super) struct Clock {
    origin: Instant,
    /// The same moment as the kernel counts it.
    origin_nanos: Nanos,
    source: TimeSource,
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
