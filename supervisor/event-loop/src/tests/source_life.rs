//! What sources do to the life of the loop, and what misuse of them is called.

use super::*;

/// Reports the phase in which callbacks panic.
fn log_phases(event_loop: &mut EventLoop, log: &Log) {
    let log = log.clone();
    event_loop.set_panic_handler(move |_, panic| log.add(format!("{:?}: {}", panic.phase, panic.message())));
}

#[track_caller]
fn expect_in_pending_phase(connect: impl FnOnce(&EventLoop) -> Stream, expected: std::io::ErrorKind) {
    let (mut event_loop, log) = (real_loop(), Log::default());
    log_phases(&mut event_loop, &log);
    let stream = connect(&event_loop);
    log.add("returned");
    event_loop.run().unwrap();
    log.expect(&["returned", &format!("Pending: {expected:?}")]);
    assert!(matches!(stream.try_write(b"x"), Err(SourceError::NotConnected)));
    assert!(matches!(stream.write("x", |_, _| ()), Err(SourceError::NotConnected)));
    stream.close(log.entry("closed")).unwrap();
    assert!(matches!(stream.close(|_| ()), Err(SourceError::Closed)));
    event_loop.run().unwrap();
    assert_eq!(log.0.borrow().last().unwrap(), "closed");
}

fn tell(_: &mut Context, _: &Stream, result: Result<(), SourceError>) {
    panic!("{:?}", result.unwrap_err().kind());
}

#[test]
fn a_refused_tcp_connection_is_told_in_the_pending_phase() {
    let (_deaf, address) = deaf_socket();
    let connect = |event_loop: &EventLoop| Stream::connect_tcp(event_loop, address, tell);
    expect_in_pending_phase(connect, std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_connection_that_the_kernel_refuses_at_once_is_told_in_the_pending_phase_too() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, deaf) = (folder.path().join("missing"), folder.path().join("deaf"));
    drop(std::os::unix::net::UnixListener::bind(&deaf).unwrap());
    let too_long = folder.path().join("x".repeat(200));
    for (path, expected) in [
        (missing, std::io::ErrorKind::NotFound),
        (deaf, std::io::ErrorKind::ConnectionRefused),
        (too_long, std::io::ErrorKind::InvalidFilename),
    ] {
        let connect = |event_loop: &EventLoop| Stream::connect_unix(event_loop, &path, tell);
        expect_in_pending_phase(connect, expected);
    }
}

#[test]
fn writes_that_wait_for_a_refused_connection_are_answered_after_it() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (_deaf, address) = deaf_socket();
    let (connected, written) = (log.clone(), log.clone());
    let stream = Stream::connect_tcp(&event_loop, address, move |_, _, result| {
        connected.add(format!("connected {}", result.is_ok()));
    });
    stream.write("x", move |_, result| written.add(format!("{result:?}"))).unwrap();
    event_loop.run().unwrap();
    log.expect(&["connected false", "Err(Cancelled)"]);
}

#[test]
fn a_source_keeps_the_loop_alive_while_somebody_waits_unless_it_is_unreferenced() {
    let mut event_loop = real_loop();
    let (listener, _) = tcp_listener(&event_loop);
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    assert!(!event_loop.is_alive(), "nobody waits for anything yet");
    reader.read_start(|_, _, _| ()).unwrap();
    assert!(event_loop.is_alive());
    reader.unref();
    assert!(!event_loop.run().unwrap());
    listener.accept_start(|_, _, _| ()).unwrap();
    assert!(event_loop.is_alive());
    listener.unref();
    assert!(!event_loop.run().unwrap());
    reader.ref_();
    assert!(event_loop.is_alive());
    reader.read_stop();
    assert!(!event_loop.is_alive());
    listener.ref_();
    listener.accept_stop();
    assert!(!event_loop.is_alive());
    writer.unref();
    writer.write(vec![0; 1_000_000], |_, _| ()).unwrap();
    assert!(event_loop.is_alive(), "a write under way counts although its stream does not");
    reader.read_start(|_, _, _| ()).unwrap();
    reader.unref();
    assert!(!event_loop.run().unwrap());
    assert_eq!(writer.queued_bytes(), 0);
}

#[test]
fn the_site_of_a_source_tells_why_the_loop_is_alive() {
    let event_loop = real_loop();
    let line = line!() + 1;
    let (reader, _writer) = Stream::pair(&event_loop).unwrap();
    assert_eq!(event_loop.why_alive().len(), 0);
    reader.read_start(|_, _, _| ()).unwrap();
    let reasons = event_loop.why_alive();
    let [Alive { what: AliveKind::Stream, site, count: 1 }] = *reasons else { panic!("{reasons:?}") };
    assert_eq!((site.line(), site.file()), (line, file!()));
}

#[test]
fn dropping_the_last_handle_of_an_idle_stream_closes_it() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    let heard = log.clone();
    reader.read_start(move |_, _, incoming| heard.add(format!("{incoming:?}"))).unwrap();
    event_loop.set_immediate(move |_| drop(writer));
    assert!(!event_loop.run().unwrap());
    log.expect(&["End"]);
}

#[test]
fn a_stream_without_a_handle_writes_to_the_end_and_then_closes() {
    let mut event_loop = real_loop();
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    writer.write(vec![7; 1_000_000], |_, written| written.unwrap()).unwrap();
    drop(writer);
    let reading = event_loop.spawn(async move {
        let (mut total, mut buffer) = (0, vec![0; 10_000]);
        loop {
            match reader.read(&mut buffer).await.unwrap() {
                0 => return total,
                count => total += count,
            }
        }
    });
    event_loop.run().unwrap();
    assert_eq!(reading.take_result(), Some(Ok(1_000_000)));
}

#[test]
fn dropping_the_loop_drops_what_its_sources_own_and_closes_them() {
    let event_loop = real_loop();
    let witness = Rc::new(());
    let (listener, address) = tcp_listener(&event_loop);
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    let connecting = Stream::connect_tcp(&event_loop, address, {
        let owned = (Rc::clone(&witness), reader.clone());
        move |_, _, _| drop(owned)
    });
    let owned = (Rc::clone(&witness), reader.clone());
    reader.read_start(move |_, _, _| drop(owned.clone())).unwrap();
    let owned = (Rc::clone(&witness), listener.clone(), event_loop.handle());
    listener.accept_start(move |_, _, _| drop(owned.clone())).unwrap();
    for bytes in [10, 1_000_000] {
        let owned = (Rc::clone(&witness), writer.clone());
        writer.write(vec![0; bytes], move |_, _| drop(owned)).unwrap();
    }
    drop(event_loop);
    assert_eq!(Rc::strong_count(&witness), 1);
    assert!(reader.is_closed() && writer.is_closed() && connecting.is_closed());
    assert!(matches!(listener.accept_start(|_, _, _| ()), Err(SourceError::Closed)));
    assert!(matches!(writer.write("x", |_, _| ()), Err(SourceError::Closed)));
}

#[test]
fn a_stream_that_is_always_readable_does_not_keep_others_from_their_turn() {
    let (mut event_loop, turns) = (real_loop(), Rc::new(Cell::new(0)));
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let busy = Stream::from_descriptor(&event_loop, zero.into());
    assert!(matches!(busy, Err(SourceError::NotWatchable)), "the kernel says nothing about its readiness");
    // A stream that is given whatever is read from it never runs dry.
    let (busy, feeder) = Stream::pair(&event_loop).unwrap();
    feeder.try_write(&vec![7; 130_000]).unwrap();
    let count = Rc::clone(&turns);
    busy.read_start(move |_, _, incoming| match incoming {
        Incoming::Data(bytes) if count.get() < 1_000 => {
            count.set(count.get() + 1);
            feeder.try_write(bytes).unwrap();
        }
        _ => (),
    })
    .unwrap();
    let (calm, writer) = Stream::pair(&event_loop).unwrap();
    writer.try_write(b"x").unwrap();
    let (victim, count) = (busy.clone(), Rc::clone(&turns));
    calm.read_start(move |_, calm, _| {
        assert!(count.get() <= 32, "{} reads of the other before this one", count.get());
        calm.close(|_| ()).unwrap();
        victim.close(|_| ()).unwrap();
    })
    .unwrap();
    event_loop.run().unwrap();
    assert!(turns.get() > 0);
}

#[test]
fn a_pipe_has_two_ends_and_a_regular_file_is_refused_by_name() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (reader, writer) = Stream::pipe(&event_loop).unwrap();
    let heard = log.clone();
    reader.read_start(move |_, _, incoming| heard.add(format!("{incoming:?}"))).unwrap();
    writer.write("x", |_, written| written.unwrap()).unwrap();
    let shut = log.clone();
    writer.shutdown(move |_, result| shut.add(format!("shut {result:?}"))).unwrap();
    assert!(matches!(writer.try_write(b"y"), Err(SourceError::AlreadyShutDown)));
    let wrong = log.clone();
    reader.shutdown(move |_, result| wrong.add(format!("wrong end {}", result.is_err()))).unwrap();
    assert!(matches!(reader.local_address(), Err(SourceError::Io(_))));
    event_loop.run().unwrap();
    log.expect(&["shut Ok(())", "wrong end true", &format!("{:?}", Incoming::Data(b"x")), "End"]);
    writer.close(|_| ()).unwrap();
    let file = tempfile::tempfile().unwrap();
    let refused = Stream::from_descriptor(&event_loop, file.into());
    assert!(matches!(refused, Err(SourceError::NotWatchable)));
}

#[test]
fn a_descriptor_of_unknown_origin_becomes_a_stream() {
    let mut event_loop = real_loop();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = Stream::from_descriptor(&event_loop, reader.into()).unwrap();
    writer.write_all(b"x").unwrap();
    drop(writer);
    let reading = event_loop.spawn(async move {
        let mut buffer = [0; 8];
        (reader.read(&mut buffer).await.unwrap(), reader.read(&mut buffer).await.unwrap())
    });
    event_loop.run().unwrap();
    assert_eq!(reading.take_result(), Some(Ok((1, 0))));
}

#[test]
fn a_fifo_that_is_open_for_both_cannot_be_shut_down_and_is_read_on() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    let fifo = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let stream = Stream::from_descriptor(&event_loop, fifo.into()).unwrap();
    let inner = log.clone();
    stream
        .read_start(move |_, stream, incoming| {
            assert!(matches!(incoming, Incoming::Data(b"x")));
            inner.add("read");
            stream.close(|_| ()).unwrap();
        })
        .unwrap();
    let (written, shut) = (log.clone(), log.clone());
    stream.write("x", move |_, result| written.add(format!("{}", result.is_ok()))).unwrap();
    stream.shutdown(move |_, result| shut.add(format!("{}", result.is_ok()))).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(!event_loop.is_alive(), "it does not wait for what can never come");
    log.expect(&["true", "false", "read"]);
}

/// What a callback may own.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

/// `start` registers a callback that owns what it is given, is called once, and stops itself.
#[track_caller]
fn expect_a_report_of_the_panic(start: impl FnOnce(&EventLoop, PanicsWhenDropped)) {
    let (mut event_loop, log) = (real_loop(), Log::default());
    log_phases(&mut event_loop, &log);
    start(&event_loop, PanicsWhenDropped);
    event_loop.run().expect("the panic does not leave the loop");
    event_loop.next_tick(log.entry("tick"));
    event_loop.run().unwrap();
    log.expect(&["Poll: dropped", "tick"]);
}

#[test]
fn what_a_stopped_read_callback_owned_may_panic_when_it_is_dropped() {
    expect_a_report_of_the_panic(|event_loop, owned| {
        let (reader, writer) = Stream::pair(event_loop).unwrap();
        writer.try_write(b"x").unwrap();
        reader
            .read_start(move |_, stream, _| {
                let _ = (&owned, &writer);
                stream.read_stop();
            })
            .unwrap();
    });
}

#[test]
fn what_a_stopped_accept_callback_owned_may_panic_when_it_is_dropped() {
    expect_a_report_of_the_panic(|event_loop, owned| {
        let (listener, address) = tcp_listener(event_loop);
        let client = std::net::TcpStream::connect(address).unwrap();
        listener
            .accept_start(move |_, listener, _| {
                let _ = (&owned, &client);
                listener.accept_stop();
            })
            .unwrap();
    });
}

#[test]
fn what_a_stopped_receive_callback_owned_may_panic_when_it_is_dropped() {
    expect_a_report_of_the_panic(|event_loop, owned| {
        let socket = UdpSocket::bind(event_loop, "127.0.0.1:0".parse().unwrap()).unwrap();
        socket.try_send_to(b"x", socket.local_address().unwrap()).unwrap();
        socket
            .receive_start(move |_, socket, _| {
                let _ = &owned;
                socket.receive_stop();
            })
            .unwrap();
    });
}
