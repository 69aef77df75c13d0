//! `ComputePool::auto`: a job is done where the policy says, and comes to the same in both places.

use super::config;
use offload_supervisor::{ComputePool, EventLoop, Job, Policy, TaskPolicy};
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;

/// The average of 1 to n, one number a step.
struct Average {
    n: u64,
    added: u64,
    sum: u64,
}

impl Average {
    fn step(&mut self) -> ControlFlow<Result<bytes::Bytes, String>> {
        self.added += 1;
        self.sum += self.added;
        match self.added < self.n {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(Ok(format!("{:?}", self.sum as f64 / self.n as f64).into())),
        }
    }
}

#[test]
fn small_jobs_are_done_on_the_loop_and_large_ones_by_workers_with_the_same_result() {
    let mut event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    let known = TaskPolicy { offload_from: Some(1000), slice_us: 500 };
    let policy = Policy { tasks: [("average".to_owned(), known)].into() };
    let (on_the_loop, outputs) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    for n in [999, 1000, 1001] {
        let (begun, outputs) = (Rc::clone(&on_the_loop), Rc::clone(&outputs));
        let begin = move || {
            begun.set(begun.get() + 1);
            Average { n, added: 0, sum: 0 }
        };
        let job = Job::new("average").input(n.to_string());
        pool.auto(&policy, n, job, begin, Average::step, move |output, _cx| {
            outputs.borrow_mut().push(output.unwrap());
        });
    }
    assert!(outputs.borrow().is_empty(), "done is never called from within the call");
    event_loop.run().unwrap();
    assert_eq!(on_the_loop.get(), 1, "only the one below the size of the policy");
    let mut outputs = outputs.take();
    outputs.sort();
    assert_eq!(outputs, ["500.0", "500.5", "501.0"]);
    assert_eq!(pool.status().jobs["ok"], 2, "the others");
}
