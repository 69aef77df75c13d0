//! A length of time, or a moment, that may be missing, in 8 bytes. A million jobs may wait, and each has several.

use super::ids::Mono;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// Nanoseconds, or nothing. More than 584 years are cut to that.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct MaybeNanos(Option<NonZeroU64>);

impl MaybeNanos {
    /// One more than there are, so that 0 stands for nothing.
    fn of(nanos: u64) -> MaybeNanos {
        MaybeNanos(NonZeroU64::new(nanos.saturating_add(1)))
    }

    fn nanos(self) -> Option<u64> {
        self.0.map(|more| more.get() - 1)
    }

    /// As a length of time.
    pub fn duration(self) -> Option<Duration> {
        self.nanos().map(Duration::from_nanos)
    }

    /// As a moment.
    pub fn moment(self) -> Option<Mono> {
        self.nanos().map(Mono::from_nanos)
    }
}

impl From<Duration> for MaybeNanos {
    fn from(duration: Duration) -> MaybeNanos {
        MaybeNanos::of(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Option<Duration>> for MaybeNanos {
    fn from(duration: Option<Duration>) -> MaybeNanos {
        duration.map_or(MaybeNanos::default(), MaybeNanos::from)
    }
}

impl From<Option<Mono>> for MaybeNanos {
    fn from(moment: Option<Mono>) -> MaybeNanos {
        moment.map_or(MaybeNanos::default(), |moment| MaybeNanos::of(moment.as_nanos()))
    }
}

impl fmt::Debug for MaybeNanos {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.duration().fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out_and_it_takes_8_bytes() {
        for nanos in [0, 1, 10_000_000_000, u64::MAX - 1] {
            let time = Duration::from_nanos(nanos);
            assert_eq!(MaybeNanos::from(time).duration(), Some(time));
            assert_eq!(
                MaybeNanos::from(Some(Mono::from_nanos(nanos))).moment(),
                Some(Mono::from_nanos(nanos))
            );
        }
        assert_eq!(MaybeNanos::from(None::<Duration>).duration(), None);
        assert_eq!(MaybeNanos::from(Duration::MAX).duration(), Some(Duration::from_nanos(u64::MAX - 1)));
        assert_eq!(size_of::<MaybeNanos>(), 8);
    }
}
