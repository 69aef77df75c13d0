//! Records of jobs that the shell does itself: never more at a time than there are places; the shell is told of each that it need
//! not go on with, and of no other; no place is free while one waits for it (O24).

use super::{Failure, JobBook, Oracle, demand};
use crate::script::HERE;
use offload_core::Core;
use offload_core::action::Ended;
use offload_core::event::Event;
use offload_core::here::RanHere;
use offload_core::ids::{JobId, Mono};
use offload_core::jobs::JobState;
use offload_core::limits::{HERE_TIME_MAX, HERE_TIME_MIN};
use offload_protocol::nouns::OutcomeCode;
use std::collections::BTreeMap;
use std::time::Duration;

const RULE: &str = "O24";

/// The places, as they were at the start: no later configuration changes them.
#[derive(Debug)]
pub(super) struct HereBook {
    pub(super) places: usize,
    /// The jobs that have one, and whether the shell was told to stop.
    taken: BTreeMap<JobId, bool>,
}

impl HereBook {
    pub(super) fn new(places: usize) -> HereBook {
        HereBook { places, taken: BTreeMap::new() }
    }
}

impl JobBook {
    /// Whether it does not wait: a worker or the shell has it.
    pub(super) fn is_out(&self) -> bool {
        self.holder.is_some() || self.is_here
    }

    /// Whether the shell has done it with this end.
    pub(super) fn may_end_here(&self, outcome: OutcomeCode, result: &RanHere) -> bool {
        let said = result.as_ref().err().map_or(OutcomeCode::Ok, |(code, _)| *code);
        self.is_here && outcome == said
    }
}

impl Oracle {
    /// Whether the shell has read so many bytes of which nobody is told, and that have to be kept. They may lack room:
    /// `judge_keeping` looks whether they do.
    pub(super) fn may_lack_room_here(&self, id: JobId, outcome: OutcomeCode, result: &RanHere) -> bool {
        self.jobs[&id].is_here
            && outcome == OutcomeCode::IoError
            && result.is_ok()
            && self.promises.must_keep(id)
            && !self.is_ending()
    }
}

impl Oracle {
    /// A job has ended: its output is held, and its client has used its time.
    pub(super) fn note_end_here(&mut self, event: Option<&Event>, ended: &Ended) {
        let book = &self.jobs[&ended.job];
        if !book.is_here {
            return;
        }
        self.shares.used(&book.client, ended.run);
        if let Some(Event::RanHere { result: Ok(bytes), .. }) = event {
            self.memory.was_long(*bytes);
            if ended.outcome == OutcomeCode::Ok {
                self.memory.returned(&book.client, *bytes);
            }
        }
    }

    /// The shell is done with a job. What it was like comes with the event.
    pub(super) fn note_ran_here(&mut self, event: &Event) {
        if let Event::RanHere { job, .. } = event {
            self.here.taken.remove(job);
        }
    }

    pub(super) fn judge_run_here(&mut self, now: Mono, id: JobId, within: Duration) -> Result<(), Failure> {
        demand(self.live.contains(&id), "O1", || format!("{id} is to be done here and is no more"))?;
        self.judge_start(id)?;
        let job = self.jobs.get_mut(&id).expect("it lives");
        demand(job.task == HERE && !job.is_out(), RULE, || format!("{id} is to be done here: {job:?}"))?;
        demand(!job.is_late(now), "O2", || format!("{id} is given out when its time is up"))?;
        let time = job.timeout.min(HERE_TIME_MAX).max(HERE_TIME_MIN);
        demand(within == time, RULE, || format!("the thread of {id} has {within:?}, not {time:?}"))?;
        job.timeout = job.timeout.min(HERE_TIME_MAX);
        job.start(now, true);
        job.is_here = true;
        let is_new = self.here.taken.insert(id, false).is_none();
        let (taken, places) = (self.here.taken.len(), self.here.places);
        demand(is_new && taken <= places, RULE, || {
            format!("{id} is done here, with {taken} in {places} places")
        })
    }

    pub(super) fn judge_stop_here(&mut self, id: JobId) -> Result<(), Failure> {
        let was_told = self.here.taken.get_mut(&id).map(|is_stopped| std::mem::replace(is_stopped, true));
        let is_right = was_told == Some(false) && !self.live.contains(&id);
        demand(is_right, RULE, || format!("the shell is told to stop with {id}"))
    }

    pub(super) fn compare_here(&self, core: &Core) -> Result<(), Failure> {
        let (here, there) = (self.here.taken.len(), core.taken_here());
        demand(here == there, RULE, || format!("{here} places are taken, not {there}"))?;
        let goes_on = |(id, is_stopped): &(&JobId, &bool)| !**is_stopped && !self.live.contains(id);
        let forgotten = self.here.taken.iter().find(goes_on);
        demand(forgotten.is_none(), RULE, || {
            format!("{forgotten:?} has ended, and the shell goes on with it")
        })?;
        if here >= self.here.places {
            return Ok(());
        }
        let is_held = |id| core.jobs().get(id).is_some_and(|job| job.state == JobState::Held);
        let waits = |id: &&JobId| {
            let job = &self.jobs[*id];
            job.task == HERE && !job.is_out() && self.must_start(**id) && !is_held(**id)
        };
        let waiting = self.live.iter().find(waits);
        demand(waiting.is_none(), RULE, || format!("{waiting:?} waits, and a place is free"))
    }
}
