//! S10 to S13: timers.

use std::time::{Duration, Instant};

use offload_supervisor::event_loop::EventLoop;

use crate::stage::{Order, alone};

#[test]
fn s10_the_delay_of_a_timer_is_a_minimum() {
    let _alone = alone();
    let mut event_loop = EventLoop::new().unwrap();
    let early = Order::<Duration>::new();
    for micros in (0..20_000).step_by(100) {
        let (delay, start, early) = (Duration::from_micros(micros), Instant::now(), early.clone());
        event_loop.set_timeout(delay, move |_| match start.elapsed() {
            elapsed if elapsed < delay => early.push(delay - elapsed),
            _ => {}
        });
    }
    event_loop.run().unwrap();
    assert_eq!(early.so_far(), [Duration::ZERO; 0]);
}
