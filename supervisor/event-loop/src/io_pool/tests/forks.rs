//! What a forked child may do with its copies of a loop and of its pool: drop them, without harm to anybody.

use super::*;
use crate::origin::elsewhere;
use crate::tests::forks::{expect_an_end, loop_of_the_parent};

#[test]
fn a_child_drops_a_pool_whose_threads_were_at_work() {
    let pool = || {
        let event_loop = loop_of_the_parent();
        let pool = elsewhere::made(|| IoPool::new(&event_loop, IoPoolConfig::default()).unwrap());
        // There is a task under way, which is dropped with its future.
        let future = pool.run(|| ());
        pool.lock_for_ever();
        (event_loop, pool, future)
    };
    expect_an_end("the pool first", move || {
        let (event_loop, pool, future) = pool();
        drop((future, pool, event_loop));
    });
    expect_an_end("the loop first", move || {
        let (event_loop, pool, future) = pool();
        drop((event_loop, future, pool));
    });
}
