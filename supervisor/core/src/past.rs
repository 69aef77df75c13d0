//! What most jobs never have: a task that nobody offers yet, metadata and labels, lost attempts, checkpoints, progress, outputs in
//! parts. A job in the queue should be small, because there may be a million of them. So all of this is in a box, which is made
//! when something of it is first set: a job takes 136 bytes instead of 260 and more.

use super::action::LostAttempt;
use super::ids::{JobId, Mono};
use super::parts::Parts;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// The [`Trouble`] of a job. To read it costs nothing; to write it makes the box.
#[derive(Clone, Debug, Default)]
pub struct Past(Option<Box<Trouble>>);

impl Past {
    /// Whether anything of it was ever set.
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Of a job with so many bytes of metadata and labels.
    pub(super) fn with_tags(tag_bytes: u64) -> Past {
        let mut past = Past::default();
        if tag_bytes > 0 {
            past.tag_bytes = tag_bytes;
        }
        past
    }

    /// Takes out the attempts that were lost.
    pub(super) fn take_lost(self) -> Vec<LostAttempt> {
        self.0.map_or_else(Vec::new, |trouble| trouble.lost)
    }
}

impl Deref for Past {
    type Target = Trouble;

    fn deref(&self) -> &Trouble {
        static NONE: Trouble = Trouble::NONE;
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Past {
    fn deref_mut(&mut self) -> &mut Trouble {
        self.0.get_or_insert_with(|| Box::new(Trouble::NONE))
    }
}

/// What happened to a job beside waiting and running.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The name of the task that was asked for, of a job that was accepted before anybody offered the task.
    pub task_name: Option<Arc<str>>,
    /// When it was last put on probation.
    pub put_back_at: Option<Mono>,
    /// The job that its key stood for before the key expired.
    pub key_before: Option<JobId>,
    /// How many of its attempts ended their worker.
    pub crashes: u32,
    /// How many workers in a row had no other job and ended before they had started it. That delays the job, but
    /// never ends it by itself.
    pub unstarted: u32,
    /// How many such workers were not counted, because they had done other jobs before.
    pub excused: u32,
    /// As a suspect, it may run together with others as one of so many jobs: half as many as there were when its worker ended. 0
    /// or 1 if it has to be alone.
    pub together_most: u32,
    /// It was lost together with other jobs, and has not been dispatched since.
    pub was_together: bool,
    /// How many of its attempts were lost together with others, which costs none.
    pub lost_together: u32,
    /// How often its worker's program broke the rules while it ran, and that had to do with another job.
    pub bystander: u32,
    /// How many of its tests on probation have failed at the longest pause.
    pub late_tests: u32,
    /// How long its earlier attempts ran that yielded.
    pub ran_before: Duration,
    /// How far it is, as its worker last reported.
    pub progress: Option<Progress>,
    /// Length in bytes of the checkpoint that the next attempt goes on from; 0 if there is none.
    pub checkpoint_bytes: u64,
    /// Bytes of its metadata and labels.
    pub tag_bytes: u64,
    /// The attempts that were lost, the first one first.
    pub lost: Vec<LostAttempt>,
    /// The parts of its output.
    pub parts: Parts,
}

impl Trouble {
    const NONE: Trouble = Trouble {
        task_name: None,
        put_back_at: None,
        key_before: None,
        crashes: 0,
        unstarted: 0,
        excused: 0,
        together_most: 0,
        was_together: false,
        lost_together: 0,
        bystander: 0,
        late_tests: 0,
        ran_before: Duration::ZERO,
        progress: None,
        checkpoint_bytes: 0,
        tag_bytes: 0,
        lost: Vec::new(),
        parts: Parts::NONE,
    };
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Units of work that are done.
    pub done: u64,
    /// Units of work in total; 0 if unknown.
    pub total: u64,
    /// When that was reported.
    pub at: Mono,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_read_what_a_job_does_not_have_takes_no_memory_and_what_was_set_stays() {
        let mut past = Past::default();
        assert!(past.lost.is_empty() && past.crashes == 0 && !past.is_there());
        past.crashes += 1;
        assert!(past.is_there());
        assert_eq!((past.clone().crashes, past.unstarted), (1, 0));
        assert!(past.take_lost().is_empty());
    }
}
