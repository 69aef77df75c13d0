//! Programs that never say hello: how often they are started before jobs are rejected.

use offload_core::action::Notice;
use offload_core::config::CoreConfig;
use offload_protocol::nouns::OutcomeCode::{Ok, Unavailable};
use tests::pool_under_test::{PoolUnderTest, Start};

#[test]
fn a_program_that_never_says_anything_is_waited_for_as_often_as_configured_and_one_that_did_is_not() {
    let config = CoreConfig { workers: 2, spares: 0, max_silent_starts: 1, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config.clone(), Start::Wait);
    let waiting = pool.submit("sum");
    pool.wait(config.hello_timeout);
    assert_eq!(pool.outcome(waiting), Some(Unavailable));
    assert_eq!(pool.refusal("sum").message, "a worker did not say hello within 10 s");
    let degraded = |notice: &&Notice| matches!(notice, Notice::Degraded { failures: 1, .. });
    assert_eq!(pool.notices.iter().filter(degraded).count(), 1);
    pool.workers_start_with(Start::Hello);
    pool.wait(config.backoff_max * 2);
    let job = pool.submit("sum");
    pool.run(job);
    assert_eq!(pool.outcome(job), Some(Ok), "one more was tried");

    let patient = CoreConfig { max_silent_starts: 5, ..config.clone() };
    let mut pool = PoolUnderTest::with(patient, Start::Wait);
    let waiting = pool.submit("sum");
    pool.wait(config.hello_timeout);
    assert_eq!(pool.outcome(waiting), None);
}
