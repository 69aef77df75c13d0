//! How long a pool lives: through a drain although nobody has it any more.

use super::{config, endless};
use offload_supervisor::protocol::nouns::OutcomeCode;
use offload_supervisor::{ComputePool, EventLoop, Job};
use std::cell::RefCell;
use std::rc::Rc;

type Told = Rc<RefCell<Vec<&'static str>>>;

fn tell(told: &Told, what: &'static str) {
    told.borrow_mut().push(what);
}

/// A pool with one worker and a job, which tells of its end.
fn with_a_job(event_loop: &mut EventLoop, told: &Told, job: Job) -> ComputePool {
    let pool = ComputePool::start(config(1), event_loop).unwrap();
    let told = Rc::clone(told);
    pool.submit(job, move |finished, _| match finished.report.outcome {
        OutcomeCode::Ok => tell(&told, "ok"),
        OutcomeCode::Cancelled => tell(&told, "cancelled"),
        other => panic!("{other}"),
    });
    pool
}

#[test]
fn a_drain_goes_on_without_the_pool_and_says_when_it_is_done() {
    let mut event_loop = EventLoop::new().unwrap();
    let told = Told::default();
    let pool = with_a_job(&mut event_loop, &told, Job::new("sleep").input("20"));
    let done = Rc::clone(&told);
    pool.drain(move |_| tell(&done, "drained"));
    drop(pool);
    event_loop.run().unwrap();
    assert_eq!(*told.borrow(), ["ok", "drained"]);
}

#[test]
fn a_shutdown_by_a_callback_that_owns_the_last_clone_says_when_it_is_done() {
    let mut event_loop = EventLoop::new().unwrap();
    let told = Told::default();
    let pool = with_a_job(&mut event_loop, &told, endless());
    let done = Rc::clone(&told);
    event_loop.set_immediate(move |_| pool.shutdown(move |_| tell(&done, "ended")));
    event_loop.run().unwrap();
    assert_eq!(*told.borrow(), ["cancelled", "ended"]);
}
