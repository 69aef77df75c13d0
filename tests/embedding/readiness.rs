//! `/readyz` of a server of one's own: 503 while a job would not be begun soon, with the reason.

use super::config;
use super::server::{Served, answer};
use offload_http::api::Access;
use offload_http::{Address, Server};
use offload_supervisor::service::{Service, ServiceConfig};
use offload_supervisor::{EventLoop, PoolConfig, Program};
use std::sync::mpsc;
use std::time::Duration;
use tests::harness::{PATIENCE, until};

/// A server whose loop is blocked for 400 ms right after the head of a request with `X-Block` has come.
fn served(pool: PoolConfig) -> Served {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut event_loop = EventLoop::new().unwrap();
        let service = Service::start(ServiceConfig::with(pool), &mut event_loop).unwrap();
        let server = Server::new(&service, &event_loop);
        // The name of the host that these requests show.
        server.mount_api(Access { hosts: vec!["x".to_owned()], ..Access::default() });
        let handle = event_loop.handle();
        server.check(move |head, _| {
            if head.headers.contains_key("x-block") {
                handle.set_immediate(|_| std::thread::sleep(Duration::from_millis(400)));
            }
            Ok(())
        });
        let address = server.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        send.send((address.to_string(), event_loop.remote())).unwrap();
        event_loop.run().unwrap();
    });
    let (address, remote) = receive.recv_timeout(PATIENCE).expect("it listens");
    Served { address, remote, thread }
}

fn is_ready(served: &Served) -> (u16, String) {
    answer(served.send("GET", "/readyz", "", ""))
}

#[test]
fn while_the_loop_is_late_it_is_not_ready() {
    let served = served(config(1));
    until("it is ready", || (is_ready(&served).0 == 200).then_some(()));
    let (status, problem) = answer(served.send("GET", "/readyz", "X-Block: yes\r\n", ""));
    assert_eq!(status, 503, "{problem}");
    assert!(problem.contains("\"code\":\"unavailable\"") && problem.contains("ms late"), "{problem}");
    until("it is ready again", || (is_ready(&served).0 == 200).then_some(()));
    served.remote.stop();
    served.thread.join().expect("the loop ends");
}

#[test]
fn while_its_only_program_never_starts_it_is_not_ready() {
    let programs = vec![Program::command(vec!["/no/such/program".to_owned()])];
    let served = served(PoolConfig { programs, ..config(1) });
    until("it is degraded, and was never ready", || {
        let (status, problem) = is_ready(&served);
        assert_eq!(status, 503, "{problem}");
        problem.contains("the supervisor is degraded").then_some(())
    });
    served.remote.stop();
    served.thread.join().expect("the loop ends");
}
