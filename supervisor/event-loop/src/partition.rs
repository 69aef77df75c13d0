//! Long computations in small steps, so that the loop can run other callbacks in between.

use std::ops::ControlFlow;
use std::panic::Location;
use std::time::Duration;

use super::callback::{Callback, Site};
use super::clock::{Nanos, nanos};
use super::{Context, LoopHandle};

/// A good budget for one turn of a computation on the loop: 1 ms. A step that alone takes longer is counted in
/// [`LoopMetrics::steps_over_budget`](super::LoopMetrics::steps_over_budget), also by the form without a budget.
pub const PARTITION_BUDGET: Duration = Duration::from_millis(1);

/// Between two readings of the clock at most this many steps are made: as many may be too slow before it is noticed.
const STEPS_PER_READING_MAX: u32 = 1_024;

struct Partition<State, Step, Done> {
    state: State,
    step: Step,
    done: Done,
    pace: Pace,
}

/// How many steps make a turn.
struct Pace {
    budget: Nanos,
    steps_per_reading: u32,
    site: Site,
}

impl LoopHandle {
    /// Computes something in steps, one per iteration of the loop: `step` says `Continue` until it `Break`s with the
    /// result, which is handed to `done`. Each step should be short; that is up to the caller.
    #[track_caller]
    pub fn partition<State: 'static, Output: 'static>(
        &self,
        state: State,
        step: impl FnMut(&mut State) -> ControlFlow<Output> + 'static,
        done: impl FnOnce(&mut Context, Output) + 'static,
    ) {
        let pace = Pace { budget: 0, steps_per_reading: 1, site: Location::caller() };
        self.start_partition(Partition { state, step, done, pace });
    }

    /// As [`LoopHandle::partition`], but with as many steps per iteration as fit into `budget`, such as
    /// [`PARTITION_BUDGET`]. A step that takes longer than the budget, or than 1 ms if that is more, is counted in the
    /// [metrics](LoopHandle::metrics) with the place that started the computation. The clock is read once for several steps:
    /// if steps suddenly become slow, up to 1,024 of them may run before that is noticed.
    #[track_caller]
    pub fn partition_within<State: 'static, Output: 'static>(
        &self,
        budget: Duration,
        state: State,
        step: impl FnMut(&mut State) -> ControlFlow<Output> + 'static,
        done: impl FnOnce(&mut Context, Output) + 'static,
    ) {
        let pace = Pace { budget: nanos(budget), steps_per_reading: 1, site: Location::caller() };
        self.start_partition(Partition { state, step, done, pace });
    }

    fn start_partition<State, Output, Step, Done>(&self, partition: Partition<State, Step, Done>)
    where
        State: 'static,
        Output: 'static,
        Step: FnMut(&mut State) -> ControlFlow<Output> + 'static,
        Done: FnOnce(&mut Context, Output) + 'static,
    {
        let callback = Callback::new(partition.pace.site, move |context| partition.take_turn(context));
        self.shared.immediates.borrow_mut().push(callback);
        self.shared.drop_if_gone();
    }
}

impl<State, Output, Step, Done> Partition<State, Step, Done>
where
    State: 'static,
    Output: 'static,
    Step: FnMut(&mut State) -> ControlFlow<Output> + 'static,
    Done: FnOnce(&mut Context, Output) + 'static,
{
    fn take_turn(self, context: &mut Context) {
        // As a variable of this function the state can live in registers from step to step.
        let Partition { mut state, mut step, done, mut pace } = self;
        match pace.turn(context, || step(&mut state)) {
            ControlFlow::Break(output) => done(context, output),
            ControlFlow::Continue(()) => context.start_partition(Partition { state, step, done, pace }),
        }
    }
}

/// Counting takes as long as a small step. So it is done for eight steps at a time: an average of numbers took 1.4 times as long
/// as a plain loop when every step was counted, and 1.1 times as long since.
#[inline]
fn make_steps<Output>(count: u32, step: &mut impl FnMut() -> ControlFlow<Output>) -> ControlFlow<Output> {
    for _ in 0..count / 8 {
        step()?;
        step()?;
        step()?;
        step()?;
        step()?;
        step()?;
        step()?;
        step()?;
    }
    for _ in 0..count % 8 {
        step()?;
    }
    ControlFlow::Continue(())
}

impl Pace {
    /// As many steps as fit into the budget, and at least one.
    #[inline]
    fn turn<Output>(
        &mut self,
        context: &Context,
        mut step: impl FnMut() -> ControlFlow<Output>,
    ) -> ControlFlow<Output> {
        let mut reading = context.shared.clock.reading();
        let start = reading.time();
        let mut used = 0;
        loop {
            let outcome = make_steps(self.steps_per_reading, &mut step);
            reading = context.shared.clock.reading_after(reading);
            let used_before = std::mem::replace(&mut used, reading.time().saturating_sub(start));
            let of_these = used - used_before;
            if of_these > self.step_limit() {
                self.report_long_steps(context, of_these);
            }
            outcome?;
            if used >= self.budget {
                self.steps_per_reading = (self.steps_per_reading / 2).max(1);
                return ControlFlow::Continue(());
            }
            // Reading the clock costs more than a small step: so do it seldom, but often enough to stay exact.
            if used < self.budget / 16 {
                self.steps_per_reading = (self.steps_per_reading * 2).min(STEPS_PER_READING_MAX);
            }
        }
    }

    fn step_limit(&self) -> Nanos {
        self.budget.max(nanos(PARTITION_BUDGET))
    }

    /// A partition with steps that are too long themselves is none. When steps become slow all at once, it was perhaps
    /// only all of them together that took too long; the next ones are looked at one by one.
    fn report_long_steps(&mut self, context: &Context, duration: Nanos) {
        let each = duration / u64::from(self.steps_per_reading);
        context.shared.metrics.borrow_mut().step_over_budget(self.site, each);
        self.steps_per_reading = 1;
    }
}
