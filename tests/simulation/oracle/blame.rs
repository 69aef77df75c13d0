//! Who is blamed for the end of a worker (O15).

use super::jobs::JobBook;
use super::{Failure, Oracle, demand};
use offload_core::action::Ended;
use offload_core::ids::Mono;
use offload_protocol::nouns::OutcomeCode;

impl Oracle {
    /// An outcome that blames names an attempt of that job, which ran on that worker at that time.
    pub(super) fn judge_blame(&self, now: Mono, ended: &Ended, book: &JobBook) -> Result<(), Failure> {
        if book.is_here {
            let has_place = ended.place.is_some() || !ended.lost.is_empty();
            return demand(!has_place, "O15", || format!("no worker had {}: {ended:?}", ended.job));
        }
        let is_blamed = match ended.outcome {
            OutcomeCode::WorkerCrashed | OutcomeCode::WorkerProtocol | OutcomeCode::Poison => true,
            OutcomeCode::Timeout => !book.is_late(now),
            _ => false,
        };
        let named = ended.lost.last();
        let is_named = named.is_some_and(|lost| {
            lost.is_blamed && lost.attempt == ended.attempts && lost.place == ended.place
        });
        demand(!is_blamed || (ended.attempts > 0 && is_named), "O15", || {
            format!("{} is blamed for no attempt: {ended:?}", ended.job)
        })?;
        // Whatever ended its time: the limit of its runs, or its deadline. If its worker has ended, that is what it has lost.
        let runs =
            book.running_since.is_some() && book.holder.is_some_and(|worker| !self.gone.contains(&worker));
        let ran_out = ended.outcome == OutcomeCode::Timeout && runs;
        let names_it =
            named.is_some_and(|lost| (lost.attempt, lost.code) == (ended.attempts, OutcomeCode::Timeout));
        demand(!ran_out || book.is_doubtful || names_it, "O15", || {
            format!("{} ran when its time was up, and that names no attempt: {ended:?}", ended.job)
        })?;
        let ran = book.running_since.is_some() && book.suspended_since.is_none();
        let was_there = named.and_then(|lost| lost.place).map(|place| place.worker) == book.holder;
        demand(!is_blamed || book.is_doubtful || (ran && was_there), "O15", || {
            format!("{} is blamed and did not run there: {ended:?}\n{book:?}", ended.job)
        })?;
        let unstarted = ended.lost.iter().find(|lost| lost.is_blamed && lost.attempt == 0);
        demand(unstarted.is_none(), "O15", || format!("{} is blamed unstarted: {unstarted:?}", ended.job))?;
        self.judge_lost(ended, book)
    }

    /// Only the job that ran is blamed for the end of a worker, and not if that was for another one. One that was
    /// suspended is innocent. So it is told of each attempt that was lost, whatever the outcome.
    fn judge_lost(&self, ended: &Ended, book: &JobBook) -> Result<(), Failure> {
        let holder = book.holder.and_then(|worker| self.workers.get(&worker));
        let is_for_another = holder.is_some_and(|holder| holder.is_ended_for_a_job) || book.is_bystander;
        let is_guilty = |attempt: u32| match book.running_since.is_some() && attempt == book.starts {
            true => book.suspended_since.is_none() && !is_for_another,
            false => book.blamed.contains(&attempt),
        };
        let mut started = ended.lost.iter().filter(|lost| lost.attempt > 0);
        let wrong = started.find(|lost| lost.is_blamed != is_guilty(lost.attempt));
        demand(book.is_doubtful || wrong.is_none(), "O15", || {
            format!("{}, to be blamed for {:?}, has lost {wrong:?}\n{book:?}", ended.job, book.blamed)
        })
    }
}
