//! Whether there is room to keep what a job returns, and who may go beyond his share.

use super::super::Oracle;
use offload_core::Core;
use offload_core::ids::JobId;
use offload_core::jobs::JobState;

/// A limit, less one part in so many.
fn part(limit: u64, less: u64) -> u64 {
    limit - limit.checked_div(less).unwrap_or(0)
}

impl Oracle {
    /// Whether the job's output is to be kept, and what is kept is over its limits less one part in so many.
    pub(super) fn is_over_its_room(&self, id: JobId, less: u64) -> bool {
        self.is_over_its_share(id, less) || self.is_over_all(id, less)
    }

    /// One job at a time that somebody waits for may be beyond its client's share.
    pub(super) fn is_over_its_share(&self, id: JobId, less: u64) -> bool {
        let Some(book) = self.promises.promises.get(&id) else { return false };
        let other = self.promises.beyond.get(&book.client).copied();
        let may_be = book.is_awaited && !other.is_some_and(|other| self.takes_the_place(other));
        !may_be && self.is_beyond_its_share(id, less)
    }

    /// Whether a job that went beyond its client's share keeps others from that: it is in flight, or it has left something and its
    /// client is still over its share.
    pub(super) fn takes_the_place(&self, job: JobId) -> bool {
        let Some(book) = self.promises.promises.get(&job) else { return false };
        book.until.is_none() || (book.has_left_much && self.is_beyond_its_share(job, 0))
    }

    /// Why a job that somebody waits for is held although its client has room for one more: another one has the place, or is in a
    /// queue and may take it.
    pub(super) fn is_another_first(&self, id: JobId, core: &Core) -> bool {
        let Some(book) = self.promises.promises.get(&id).filter(|book| book.is_awaited) else { return false };
        let is_like = |other: &JobId| {
            let of_other = self.promises.promises.get(other);
            of_other.is_some_and(|other| other.is_awaited && other.client == book.client)
        };
        // Whether it went beyond the share or only beyond the lower mark, the core alone knows.
        let has_place = core.promises().beyond(&book.client).filter(|other| *other != id);
        let waits = |other: &JobId| {
            let state = core.jobs().get(*other).map(|job| job.state);
            matches!(state, Some(JobState::Queued | JobState::Paused | JobState::Parked))
        };
        has_place.is_some_and(|other| self.takes_the_place(other))
            || self.live.iter().any(|other| *other != id && is_like(other) && waits(other))
    }

    pub(super) fn is_beyond_its_share(&self, id: JobId, less: u64) -> bool {
        let Some(book) = self.promises.promises.get(&id) else { return false };
        let all = self.promises.counted(true, self.config.max_kept_bytes);
        let free = self.config.max_kept_bytes.saturating_sub(all);
        self.promises.kept_of_ended(Some(&book.client)) > part(free, less)
    }

    fn is_over_all(&self, id: JobId, less: u64) -> bool {
        let is_kept = self.promises.promises.contains_key(&id);
        let limit = self.config.max_kept_bytes;
        let most = limit + self.config.max_payload * self.config.workers as u64;
        is_kept
            && (self.promises.counted(true, limit) > limit
                || self.promises.kept_of_ended(None) > part(most, less))
    }
}
