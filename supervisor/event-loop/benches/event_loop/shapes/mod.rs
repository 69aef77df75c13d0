//! What each shape does. Each one checks that every callback ran before it returns a figure.

pub(crate) mod long_work;
pub(crate) mod loops;
pub(crate) mod sockets;
pub(crate) mod threads;
pub(crate) mod timers;

use offload_event_loop::EventLoop;

use crate::measure::{Counter, Measured, Meter};

fn new_loop() -> EventLoop {
    EventLoop::new().expect("a loop needs two descriptors")
}

fn run(event_loop: &mut EventLoop) {
    event_loop.run().expect("the poller works");
}

/// Runs the loop to its end, stops the meter, and looks whether `n` were counted.
fn run_and_stop(event_loop: &mut EventLoop, meter: &Meter, counter: Counter, n: u64) -> Measured {
    run(event_loop);
    let measured = meter.stop();
    counter.expect(n);
    measured
}
