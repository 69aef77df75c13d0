//! S24 to S26: whether an immediate or a timeout of 0 ms comes first.

use std::time::Duration;

use super::props::{burn, in_poll, milliseconds, real_loop};
use crate::stage::{Order, alone, beside_others};

/// A main script that sets both and then needs so long until it ends.
fn race_from_the_main_script(rest_of_the_script: Duration) -> Vec<&'static str> {
    let (mut event_loop, order) = (real_loop(), Order::new());
    event_loop.set_timeout(Duration::ZERO, order.add("timeout"));
    event_loop.set_immediate(order.add("immediate"));
    burn(rest_of_the_script);
    event_loop.run().unwrap();
    order.so_far()
}

/// A timer of 0 ms is due when the clock has made its next step. A script that ends before that finds its immediate
/// first, one that ends after that its timeout: which of them happens is up to whatever else the machine does. So
/// both orders have to be seen here, the second one by a script that is slow for certain, the first one by one that
/// is fast most of the time.
#[test]
fn s24_from_the_main_script_the_order_of_timeout_and_immediate_is_not_determined() {
    let _alone = alone();
    assert_eq!(race_from_the_main_script(milliseconds(2)), ["timeout", "immediate"]);
    let is_ever_first =
        (0..1_000).any(|_| race_from_the_main_script(Duration::ZERO) == ["immediate", "timeout"]);
    assert!(is_ever_first, "the immediate is never first");
}

#[test]
fn s25_inside_an_io_callback_the_immediate_is_always_first() {
    let _beside = beside_others();
    for run in 0..100 {
        let (mut event_loop, order) = (real_loop(), Order::new());
        let inner = order.clone();
        in_poll(&event_loop, move |context| {
            context.set_timeout(Duration::ZERO, inner.add("timeout"));
            context.set_immediate(inner.add("immediate"));
            // Every other run gives the timer the time to become due.
            burn(milliseconds(run % 2));
        });
        event_loop.run().unwrap();
        assert_eq!(order.so_far(), ["immediate", "timeout"], "run {run}");
    }
}

#[test]
fn s26_inside_an_io_callback_the_immediate_is_first_however_many_timers_there_are() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let inner = order.clone();
    in_poll(&event_loop, move |context| {
        for _ in 0..10_000 {
            context.set_timeout(Duration::ZERO, inner.add("timeout"));
        }
        context.set_immediate(inner.add("immediate"));
        burn(milliseconds(2));
    });
    event_loop.run().unwrap();
    let order = order.so_far();
    assert_eq!((order.len(), order[0]), (10_001, "immediate"));
}
