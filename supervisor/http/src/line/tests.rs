//! What the tests with the real binary do not reach.

use super::*;
use offload_event_loop::{EventLoop, LoopConfig, Time};
use offload_supervisor::pauses::RunningClock;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[test]
fn an_answer_to_a_violation_is_not_offered_for_ever_to_a_client_that_reads_nothing() {
    let config = LoopConfig { time: Time::Virtual, ..LoopConfig::default() };
    let mut event_loop = EventLoop::with(config).unwrap();
    let handle = event_loop.handle().clone();
    let (mut client, server) = UnixStream::pair().unwrap();
    let mut full = server.try_clone().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[0; 4096]).is_ok() {}
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").unwrap();
    let line = Line::new(
        &Timekeeper::new(&handle, &RunningClock::new(&handle)),
        server.into(),
        None,
        &Rc::default(),
    )
    .unwrap();
    let has_ended = Rc::new(Cell::new(false));
    let ended = Rc::clone(&has_ended);
    drop(handle.spawn(async move {
        assert!(line.greet().await.is_none(), "there is nothing to be served");
        line.end().await;
        ended.set(true);
    }));
    event_loop.set_timeout(Duration::from_secs(60), |cx| cx.stop());
    event_loop.run().unwrap();
    assert!(has_ended.get());
    drop(client);
}
