//! Out of descriptors. The limit is lowered in a process of the test's own, or it would hit other tests.

use std::fs::File;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Runs the test `name` again in a process of its own, and only there its body.
fn in_own_process(name: &str, body: impl FnOnce()) {
    const MARK: &str = "OFFLOAD_TEST_IN_ITS_OWN_PROCESS";
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let name = format!("tests::exhaustion::{name}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", &name, "--nocapture"]).env(MARK, "1").output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&output.stderr));
}

/// Opens files until there is no descriptor left.
fn use_up_descriptors() -> Vec<File> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn a_listener_without_descriptors_pauses_and_then_serves_who_waited() {
    in_own_process("a_listener_without_descriptors_pauses_and_then_serves_who_waited", || {
        let (mut event_loop, log) = (real_loop(), Log::default());
        let (listener, address) = tcp_listener(&event_loop);
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(b"x").unwrap();
        let hoard = use_up_descriptors();
        // As long as three pauses: a listener that does not pause is told thousands of times until then.
        event_loop.set_timeout(milliseconds(150), move |_| drop(hoard));
        let told = log.clone();
        listener
            .accept_start(move |_, listener, accepted| match accepted {
                Err(SourceError::OutOfDescriptors) => told.add("no descriptor"),
                Err(error) => panic!("{error}"),
                Ok(stream) => {
                    told.add("accepted");
                    let told = told.clone();
                    let read = move |_: &mut Context, stream: &Stream, incoming: Incoming<'_>| {
                        told.add(format!("{incoming:?}"));
                        stream.close(|_| ()).unwrap();
                    };
                    stream.read_start(read).unwrap();
                    listener.close(|_| ()).unwrap();
                }
            })
            .unwrap();
        assert!(!event_loop.run().unwrap());
        let told = log.0.borrow();
        let failures = told.iter().filter(|entry| *entry == "no descriptor").count();
        assert!((1..=4).contains(&failures), "told {failures} times");
        assert_eq!(told[failures..], ["accepted".to_owned(), format!("{:?}", Incoming::Data(b"x"))]);
    });
}

#[test]
fn without_descriptors_connecting_fails_in_the_pending_phase_and_the_rest_at_once() {
    let name = "without_descriptors_connecting_fails_in_the_pending_phase_and_the_rest_at_once";
    in_own_process(name, || {
        let (mut event_loop, log) = (real_loop(), Log::default());
        let (_listener, address) = tcp_listener(&event_loop);
        let reports = log.clone();
        event_loop.set_panic_handler(move |_, panic| {
            reports.add(format!("{:?}: {}", panic.phase, panic.message()));
        });
        let _hoard = use_up_descriptors();
        Stream::connect_tcp(&event_loop, address, |_, _, connected| panic!("{:?}", connected.unwrap_err()));
        assert!(matches!(Stream::pipe(&event_loop), Err(SourceError::OutOfDescriptors)));
        let spawned = Child::spawn(&event_loop, &mut Command::new("true"));
        assert!(matches!(spawned, Err(SourceError::OutOfDescriptors)));
        let bound = UdpSocket::bind(&event_loop, "127.0.0.1:0".parse().unwrap());
        assert!(matches!(bound, Err(SourceError::OutOfDescriptors)));
        event_loop.run().unwrap();
        log.expect(&["Pending: OutOfDescriptors"]);
    });
}
