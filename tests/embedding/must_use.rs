//! What ends something when it is dropped is not dropped by accident: the compiler warns of each of these lines. If it did not, they
//! would not compile.

#![deny(unfulfilled_lint_expectations)]

use super::runtimes::block_on;
use super::{Running, config, endless};
use offload_supervisor::{ComputePool, EventLoop, Server};

#[test]
fn the_compiler_warns_of_a_job_that_is_cancelled_because_nobody_waits_for_it() {
    let mut event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    #[expect(unused_must_use, reason = "the job is cancelled at once")]
    pool.call(endless());
    #[expect(unused_must_use, reason = "the job is cancelled at once")]
    pool.stream(endless());
    event_loop.run().unwrap();
    assert_eq!(pool.status().jobs["cancelled"], 2);
    #[expect(unused_must_use, reason = "the pool ends at once")]
    ComputePool::start(config(1), &event_loop).unwrap();
}

#[test]
fn the_compiler_warns_of_a_place_that_nobody_uses() {
    let running = Running::with_workers(1);
    #[expect(unused_must_use, reason = "the job is cancelled at once")]
    running.handle.submit(endless());
    #[expect(unused_must_use, reason = "nobody waits")]
    running.handle.reserve();
    #[expect(unused_must_use, reason = "the place is free again")]
    block_on(running.handle.reserve()).unwrap();
    running.ends_by_itself();
}

/// Is not called: to be compiled is all that is asked of it.
#[expect(dead_code, reason = "it is compiled")]
fn the_compiler_warns_of_a_server_that_ends_at_once(start: impl Fn() -> Server) {
    #[expect(unused_must_use, reason = "the server ends at once")]
    start();
}
