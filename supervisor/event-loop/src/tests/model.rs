//! The rules of order as a model in virtual time, and random programs that have to run on the real loop as in it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use crate::*;

/// As long as one tick of the loop's timers, in which the model counts.
const TICK: Duration = Duration::from_nanos(1 << 16);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Tick,
    Microtask,
    Immediate,
    Timeout { ticks: u32 },
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Start(usize),
    Clear(usize),
    /// Takes a tick of time to run.
    Dawdle,
}

/// A callback of a program: how it is started (by an earlier one), and what it does when it runs.
#[derive(Debug)]
struct Step {
    kind: Kind,
    operations: Vec<Operation>,
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Ran(usize),
    Cleared(usize, bool),
}

/// Step 0 is the entry; every other step is started once, by a random earlier one.
fn random_program(seed: u64) -> Vec<Step> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits") % below
    };
    let mut program = vec![Step { kind: Kind::Tick, operations: Vec::new() }];
    for number in 1..=2 + random(60) {
        let kind = match random(5) {
            0 => Kind::Tick,
            1 => Kind::Microtask,
            2 => Kind::Immediate,
            _ => Kind::Timeout { ticks: u32::try_from(random(4)).expect("small") },
        };
        program[random(number)].operations.push(Operation::Start(number));
        program.push(Step { kind, operations: Vec::new() });
        if random(4) == 0 {
            program[random(number)].operations.push(Operation::Clear(1 + random(number)));
        }
        if random(4) == 0 {
            program[random(number)].operations.push(Operation::Dawdle);
        }
    }
    program
}

#[derive(Default)]
struct Model {
    now: u64,
    /// When the loop last looked for due timers. One that is started later is due later.
    looked_at: u64,
    ticks: VecDeque<usize>,
    microtasks: VecDeque<usize>,
    immediates: VecDeque<usize>,
    /// By due tick and start.
    timers: BTreeMap<(u64, u64), usize>,
    timers_started: u64,
    events: Vec<Event>,
}

impl Model {
    fn run(mut self, program: &[Step]) -> Vec<Event> {
        // The entry's ticks wait for run() to begin.
        self.perform(0, program);
        self.drain(program);
        self.run_due_timers(program);
        while !self.immediates.is_empty() || !self.timers.is_empty() {
            self.poll();
            self.run_immediates(program);
            self.run_due_timers(program);
        }
        self.events
    }

    fn poll(&mut self) {
        if self.immediates.is_empty() {
            let next_due = self.timers.first_key_value().map_or(0, |(&(due, _), _)| due);
            self.now = self.now.max(next_due);
        }
        self.looked_at = self.now;
    }

    fn run_immediates(&mut self, program: &[Step]) {
        for immediate in self.immediates.clone() {
            // It may have been cleared by one before it.
            if self.immediates.front() == Some(&immediate) {
                self.immediates.pop_front();
                self.call(immediate, program);
            }
        }
    }

    fn run_due_timers(&mut self, program: &[Step]) {
        self.looked_at = self.now;
        let due: Vec<(u64, u64)> = self.timers.range(..=(self.now, u64::MAX)).map(|(&key, _)| key).collect();
        for key in due {
            if let Some(timer) = self.timers.remove(&key) {
                self.call(timer, program);
            }
        }
    }

    fn call(&mut self, step: usize, program: &[Step]) {
        self.perform(step, program);
        self.drain(program);
    }

    fn drain(&mut self, program: &[Step]) {
        while !self.ticks.is_empty() || !self.microtasks.is_empty() {
            while let Some(tick) = self.ticks.pop_front() {
                self.perform(tick, program);
            }
            while let Some(microtask) = self.microtasks.pop_front() {
                self.perform(microtask, program);
            }
        }
    }

    fn perform(&mut self, step: usize, program: &[Step]) {
        self.events.push(Event::Ran(step));
        for &operation in &program[step].operations {
            match operation {
                Operation::Start(step) => self.start(step, program[step].kind),
                Operation::Clear(step) => {
                    let was_waiting = self.clear(step);
                    self.events.push(Event::Cleared(step, was_waiting));
                }
                Operation::Dawdle => self.now += 1,
            }
        }
    }

    fn start(&mut self, step: usize, kind: Kind) {
        match kind {
            Kind::Tick => self.ticks.push_back(step),
            Kind::Microtask => self.microtasks.push_back(step),
            Kind::Immediate => self.immediates.push_back(step),
            Kind::Timeout { ticks } => {
                self.timers_started += 1;
                let due = (self.now + u64::from(ticks)).max(self.looked_at + 1);
                self.timers.insert((due, self.timers_started), step);
            }
        }
    }

    fn clear(&mut self, step: usize) -> bool {
        let before = self.immediates.len() + self.timers.len();
        self.immediates.retain(|&immediate| immediate != step);
        self.timers.retain(|_, timer| *timer != step);
        self.immediates.len() + self.timers.len() < before
    }
}

/// A program on the real loop.
struct Real {
    program: Vec<Step>,
    started: RefCell<HashMap<usize, Clearable>>,
    events: RefCell<Vec<Event>>,
}

impl Real {
    fn run(program: Vec<Step>) -> Vec<Event> {
        let config = LoopConfig { time: Time::Virtual, ..LoopConfig::default() };
        let mut event_loop = EventLoop::with(config).expect("two descriptors");
        let real = Rc::new(Real { program, started: RefCell::default(), events: RefCell::default() });
        real.perform(&mut event_loop, 0);
        assert!(!event_loop.run().expect("a working poller"));
        real.events.take()
    }

    fn perform(self: &Rc<Real>, context: &mut Context, step: usize) {
        self.events.borrow_mut().push(Event::Ran(step));
        for &operation in &self.program[step].operations {
            match operation {
                Operation::Start(step) => self.start(context, step),
                Operation::Clear(step) => {
                    let id = self.started.borrow().get(&step).copied();
                    let was_waiting = id.is_some_and(|id| context.clear(id));
                    self.events.borrow_mut().push(Event::Cleared(step, was_waiting));
                }
                Operation::Dawdle => context.shared.clock.skip(1 << 16),
            }
        }
    }

    fn start(self: &Rc<Real>, context: &mut Context, step: usize) {
        let real = Rc::clone(self);
        let callback = move |context: &mut Context| real.perform(context, step);
        let clearable = match self.program[step].kind {
            Kind::Tick => return context.next_tick(callback),
            Kind::Microtask => return context.queue_microtask(callback),
            Kind::Immediate => context.set_immediate(callback).into(),
            Kind::Timeout { ticks } => context.set_timeout(TICK * ticks, callback).into(),
        };
        self.started.borrow_mut().insert(step, clearable);
    }
}

#[test]
fn random_programs_run_in_the_order_of_the_model() {
    for seed in 0..3_000 {
        let expected = Model::default().run(&random_program(seed));
        assert_eq!(Real::run(random_program(seed)), expected, "seed {seed}");
    }
}
