//! S1 to S9: the loop and its phases.

use offload_supervisor::event_loop::EventLoop;

use crate::stage::{Order, beside_others};

#[test]
fn s03_a_phase_runs_its_callbacks_in_the_order_of_their_registration() {
    let _beside = beside_others();
    let mut event_loop = EventLoop::new().unwrap();
    let order = Order::new();
    for name in ["first", "second", "third"] {
        event_loop.set_immediate(order.add(name));
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["first", "second", "third"]);
}
