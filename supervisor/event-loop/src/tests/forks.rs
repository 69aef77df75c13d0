//! What a forked child may do with its copy of a loop: drop it, without harm to anybody. The same of a pool is in `io_pool/tests/forks.rs`.

use std::sync::mpsc;

use super::*;
use crate::origin::elsewhere;

/// As a child has it, while a thread of its parent posts something. The thread is not there to give its lock back.
pub(crate) fn loop_of_the_parent() -> EventLoop {
    let event_loop = elsewhere::made(real_loop);
    event_loop.shared.remote.lock_for_ever();
    event_loop
}

#[track_caller]
pub(crate) fn expect_an_end(what: &str, act: impl FnOnce() + Send + 'static) {
    let (say_ended, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        act();
        say_ended.send(()).unwrap();
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(20)) {
        panic!("it waits for ever: {what}");
    }
    thread.join().unwrap();
}

#[test]
fn a_child_drops_a_loop_to_which_its_parent_was_posting() {
    expect_an_end("an empty loop", || drop(loop_of_the_parent()));
    expect_an_end("a task that another one awaits, and a request", || {
        let mut event_loop = elsewhere::made(real_loop);
        let awaited = event_loop.spawn(std::future::pending::<()>());
        event_loop.spawn(awaited);
        event_loop.run_mode(RunMode::NoWait).unwrap();
        let request = event_loop.request(|_, ()| ());
        event_loop.set_immediate(move |_| drop(request));
        event_loop.shared.remote.lock_for_ever();
        drop(event_loop);
    });
    expect_an_end("a request, before its loop", || {
        let event_loop = loop_of_the_parent();
        let request = event_loop.request(|_, ()| ());
        drop(request);
        drop(event_loop);
    });
    expect_an_end("a request, after its loop", || {
        let event_loop = loop_of_the_parent();
        let request = event_loop.request(|_, ()| ());
        drop(event_loop);
        drop(request);
    });
}

#[test]
fn what_a_child_drops_does_not_wake_the_loop_of_its_parent() {
    /// Lets a future go on.
    struct FillsOnDrop(Rc<one_shot::OneShot<()>>);
    impl Drop for FillsOnDrop {
        fn drop(&mut self) {
            self.0.fill(());
        }
    }
    let mut event_loop = elsewhere::made(real_loop);
    let (guard, remote) = (FillsOnDrop(one_shot::OneShot::new()), event_loop.remote());
    let awaited = Rc::clone(&guard.0);
    event_loop.spawn(async move { awaited.wait().await });
    let request = event_loop.request(|_, ()| ());
    event_loop.run_mode(RunMode::NoWait).unwrap();
    drop((guard, request));
    assert!(!remote.may_be_rung());
    drop(event_loop);
    assert!(!remote.may_be_rung());
}

#[test]
fn a_signal_to_a_child_does_not_reach_its_parent() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (signal, own, heard) = (libc::SIGXCPU, log.clone(), log.clone());
    let of_parent =
        elsewhere::made(|| event_loop.on_signal(&[signal], move |_, _| heard.add("the parent's"))).unwrap();
    event_loop
        .on_signal(&[signal], move |context, _| {
            own.add("the child's");
            context.stop();
        })
        .unwrap();
    signal_hook::low_level::raise(signal).unwrap();
    event_loop.run().unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    event_loop.close(of_parent, |_| ()).unwrap();
    log.expect(&["the child's"]);
}
