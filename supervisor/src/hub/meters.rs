//! What is measured of jobs that have ended, by task. A job costs a look at the meter that was used last, three counts and
//! no memory. The names are those that workers have offered, never those that clients ask for.

use super::Hub;
use crate::limits::{LOADS_JOBS_MAX, TASKS_MEASURED_MAX};
use crate::views::{Meters, TaskLoad, TaskMeter};
use offload_core::action::Ended;
use offload_core::ids::TaskIndex;
use offload_core::lookup::Lookup;
use offload_protocol::nouns::OutcomeCode;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module's documentation.
pub(super) struct TaskMeters {
    /// The meter of each task, by its place in `all`.
    places: Lookup<Arc<str>, usize>,
    /// The last one is that of all other tasks.
    all: Vec<TaskMeter>,
}

impl Default for TaskMeters {
    fn default() -> TaskMeters {
        TaskMeters { places: Lookup::default(), all: vec![TaskMeter::new(TaskMeter::OTHER.into())] }
    }
}

impl TaskMeters {
    /// The meter of this task. A task that has none gets one, if it is on offer and there are not too many.
    fn of(&mut self, task: &Arc<str>, is_on_offer: impl FnOnce() -> bool) -> &mut TaskMeter {
        let last = self.all.len() - 1;
        let place = match self.places.get::<str>(task) {
            Some(place) => *place,
            None if last < TASKS_MEASURED_MAX && is_on_offer() => {
                self.places.insert(task.clone(), last);
                self.all.insert(last, TaskMeter::new(task.clone()));
                last
            }
            None => last,
        };
        &mut self.all[place]
    }
}

impl Hub {
    /// Takes a job that has ended into account; the bytes are those of its input and its output.
    pub(super) fn measure(&mut self, ended: &Ended, (input_bytes, output_bytes): (u64, u64)) {
        let registry = self.core.registry();
        let meter = self.meters.of(&ended.task, || registry.find(&ended.task).is_some());
        meter.ended[ended.outcome as usize] += 1;
        if ended.attempts > 0 {
            meter.queued.add(ended.queued);
            meter.run.add(ended.run);
        }
        meter.total.add(ended.queued + ended.run + ended.returned);
        meter.input_bytes += input_bytes;
        meter.output_bytes += output_bytes;
    }

    /// How many jobs of each task wait and run, of the oldest ones, and how many have died.
    pub(crate) fn loads(&self) -> Vec<TaskLoad> {
        let mut loads: BTreeMap<Option<TaskIndex>, TaskLoad> = BTreeMap::new();
        let mut load_of = |task: Option<TaskIndex>, count: fn(&mut TaskLoad) -> &mut usize| {
            let name = |task| self.core.registry().task(task).name.clone();
            let new = || TaskLoad {
                task: task.map_or(TaskMeter::OTHER.into(), name),
                waiting: 0,
                running: 0,
                dead: 0,
            };
            *count(loads.entry(task).or_insert_with(new)) += 1;
        };
        for (_, job) in self.core.jobs().iter().take(LOADS_JOBS_MAX) {
            match job.state.is_dispatched() {
                true => load_of(job.task, |load| &mut load.running),
                false => load_of(job.task, |load| &mut load.waiting),
            }
        }
        for task in self.records.dead().tasks() {
            load_of(self.core.registry().find(task), |load| &mut load.dead);
        }
        loads.into_values().collect()
    }

    pub(crate) fn meters(&self) -> Meters {
        let tally = self.core.tally();
        let rejected = OutcomeCode::ALL.iter().map(|code| (*code, tally.rejected_as(*code)));
        Meters {
            tasks: self.meters.all.clone(),
            rejected: rejected.filter(|(_, count)| *count > 0).collect(),
            starts: tally.starts(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(meters: &TaskMeters) -> Vec<&str> {
        meters.all.iter().map(|meter| &*meter.task).collect()
    }

    #[test]
    fn only_tasks_that_workers_offer_have_meters_of_their_own() {
        let mut meters = TaskMeters::default();
        for (task, is_on_offer) in [("a", true), ("made up", false), ("b", true), ("a", true)] {
            meters.of(&task.into(), || is_on_offer).input_bytes += 1;
        }
        assert_eq!(names(&meters), ["a", "b", TaskMeter::OTHER]);
        assert_eq!(meters.all.iter().map(|meter| meter.input_bytes).collect::<Vec<_>>(), [2, 1, 1]);
    }

    #[test]
    fn further_tasks_are_measured_together() {
        let mut meters = TaskMeters::default();
        for number in 0..2 * TASKS_MEASURED_MAX {
            meters.of(&number.to_string().into(), || true).input_bytes += 1;
        }
        assert_eq!(meters.all.len(), TASKS_MEASURED_MAX + 1);
        assert_eq!(meters.all.last().unwrap().input_bytes, TASKS_MEASURED_MAX as u64);
    }
}
