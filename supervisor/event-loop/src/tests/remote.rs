//! What other threads do to the loop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::sync::interruption;
use super::*;

#[test]
fn a_hold_keeps_the_loop_until_its_answer_has_come_from_another_thread() {
    let mut event_loop = real_loop();
    let (hold, remote) = (event_loop.hold(), event_loop.remote());
    let thread = std::thread::spawn(move || remote.post(|context| context.stop()).unwrap());
    assert!(event_loop.run().unwrap(), "stopped by the post, and still held");
    thread.join().unwrap();
    drop(hold);
    assert!(!event_loop.run().unwrap());
}

#[test]
fn posts_of_one_thread_run_once_each_in_order() {
    let mut event_loop = real_loop();
    let (remote, _hold) = (event_loop.remote(), event_loop.hold());
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sender_seen = std::sync::Arc::clone(&seen);
    let thread = std::thread::spawn(move || {
        for number in 0..10_000 {
            let seen = std::sync::Arc::clone(&sender_seen);
            remote.post(move |_| seen.lock().unwrap().push(number)).unwrap();
        }
        remote.post(|context| context.stop()).unwrap();
    });
    event_loop.run().unwrap();
    thread.join().unwrap();
    assert!(seen.lock().unwrap().iter().copied().eq(0..10_000));
}

#[test]
fn a_notifier_rung_often_is_answered_at_least_once_and_after_the_last_ring() {
    let mut event_loop = real_loop();
    let answers = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&answers);
    let notifier = event_loop.remote().notifier(move |_| {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    (0..100).for_each(|_| notifier.notify().unwrap());
    event_loop.run().unwrap();
    assert_eq!(answers.load(std::sync::atomic::Ordering::Relaxed), 1);
    drop(event_loop);
    assert_eq!(notifier.notify(), Err(LoopGone));
}

#[test]
fn a_request_keeps_the_loop_until_another_thread_completes_it() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let inner = log.clone();
    let request = event_loop.request(move |_, answer: u32| inner.add(format!("answer {answer}")));
    let thread = std::thread::spawn(move || request.complete(42).unwrap());
    assert!(!event_loop.run().unwrap());
    thread.join().unwrap();
    log.expect(&["answer 42"]);
}

#[test]
fn a_request_that_is_dropped_or_withdrawn_is_forgotten() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (first, second) = (log.clone(), log.clone());
    drop(event_loop.request(move |_, ()| first.add("dropped")));
    let withdrawn = event_loop.request(move |_, ()| second.add("withdrawn"));
    assert!(event_loop.withdraw(withdrawn.id()));
    assert!(!event_loop.withdraw(withdrawn.id()));
    withdrawn.complete(()).unwrap();
    assert!(!event_loop.run().unwrap());
    log.expect(&[]);
}

/// A thread that posts and is interrupted before its ring has reached the kernel.
struct InterruptedPoster {
    goes_on: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl InterruptedPoster {
    fn post(remote: Remote, callback: impl FnOnce(&mut Context) + Send + 'static) -> InterruptedPoster {
        let (goes_on, go_on) = mpsc::channel();
        let (is_there, there) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            interruption::before_next_ring(move || {
                is_there.send(()).unwrap();
                go_on.recv().unwrap();
            });
            remote.post(callback).unwrap();
        });
        there.recv().unwrap();
        InterruptedPoster { goes_on, thread }
    }

    fn go_on(self) {
        self.goes_on.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

/// Goes around as somebody does in whose poll this loop is, as long as there is something to do. How often that was.
fn rounds_of_an_embedder(event_loop: &mut EventLoop) -> usize {
    let is_readable = |event_loop: &EventLoop| {
        let mut set = [PollFd::from_borrowed_fd(event_loop.backend_fd(), PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())).unwrap() > 0
    };
    let mut rounds = 0;
    let is_due = |event_loop: &EventLoop| event_loop.backend_timeout() == Some(Duration::ZERO);
    while is_readable(event_loop) || event_loop.is_alive() && is_due(event_loop) {
        event_loop.run_mode(RunMode::NoWait).unwrap();
        rounds += 1;
        assert!(rounds < 100, "it spins");
    }
    rounds
}

/// Two rounds are needed at most: one for the post, one for the ring that comes after it.
#[test]
fn an_embedded_loop_does_not_spin_while_who_posts_is_interrupted_before_the_ring() {
    let mut event_loop = real_loop();
    let _hold = event_loop.hold();
    let seen = Arc::new(AtomicUsize::new(0));
    for round in 1..=3 {
        let counter = Arc::clone(&seen);
        let poster = InterruptedPoster::post(event_loop.remote(), move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(rounds_of_an_embedder(&mut event_loop), 1);
        assert_eq!(seen.load(Ordering::Relaxed), round, "the post is there, whenever its ring comes");
        poster.go_on();
        assert_eq!(rounds_of_an_embedder(&mut event_loop), 1);
    }
}

#[test]
fn a_ring_that_is_late_does_not_delay_the_post_after_it() {
    let mut event_loop = real_loop();
    let _hold = event_loop.hold();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let post = |name: &'static str| {
        let seen = Arc::clone(&seen);
        InterruptedPoster::post(event_loop.remote(), move |_| seen.lock().unwrap().push(name))
    };
    let first = post("first");
    let handle = event_loop.handle();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    let seen_by_the_second = Arc::clone(&seen);
    let second =
        InterruptedPoster::post(handle.remote(), move |_| seen_by_the_second.lock().unwrap().push("second"));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(*seen.lock().unwrap(), ["first", "second"]);
    first.go_on();
    second.go_on();
    assert_eq!(rounds_of_an_embedder(&mut event_loop), 1);
}

/// A loop that only ever does what others post is not alive between two posts.
#[test]
fn a_ring_that_comes_after_the_end_of_the_loop_is_silenced() {
    let mut event_loop = real_loop();
    let poster = InterruptedPoster::post(event_loop.remote(), |_| {});
    assert_eq!(rounds_of_an_embedder(&mut event_loop), 1);
    poster.go_on();
    assert!(!event_loop.is_alive());
    assert_eq!(rounds_of_an_embedder(&mut event_loop), 1);
}

/// An embedder asks the descriptor only: a post by a callback of the loop itself makes it readable when the loop has stopped.
#[test]
fn what_a_loop_has_posted_to_itself_makes_its_descriptor_readable_when_it_stops() {
    let mut event_loop = real_loop();
    let _hold = event_loop.hold();
    let (remote, seen) = (event_loop.remote(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&seen);
    event_loop.set_immediate(move |_| {
        remote.post(move |_| _ = counter.fetch_add(1, Ordering::Relaxed)).unwrap();
    });
    let is_readable = |event_loop: &EventLoop| {
        let mut set = [PollFd::from_borrowed_fd(event_loop.backend_fd(), PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())).unwrap() > 0
    };
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(is_readable(&event_loop));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    assert!(!is_readable(&event_loop));
}

#[test]
fn a_loop_that_notifies_itself_makes_no_system_call_for_it() {
    let mut event_loop = real_loop();
    let notifier = Arc::new(std::sync::OnceLock::<Notifier>::new());
    let (own, seen) = (Arc::clone(&notifier), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&seen);
    let created = event_loop.remote().notifier(move |_| {
        if counter.fetch_add(1, Ordering::Relaxed) < 9 {
            interruption::before_next_ring(|| panic!("a ring"));
            own.get().unwrap().notify().unwrap();
        }
    });
    notifier.get_or_init(|| created).notify().unwrap();
    event_loop.run().unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 10);
}

/// The captured values are dropped once, whether the post runs or not, and whether they fit into its place or not.
#[test]
fn what_a_post_has_captured_is_dropped_once() {
    fn post_and_drop<const LEN: usize>(runs: bool) -> usize {
        let mut event_loop = real_loop();
        let witness = Arc::new(());
        let (captured, other) = (Arc::clone(&witness), [LEN; LEN]);
        let post = move |_: &mut Context| {
            assert_eq!(other, [LEN; LEN], "it has arrived whole");
            drop(captured);
        };
        event_loop.remote().post(post).unwrap();
        assert_eq!(Arc::strong_count(&witness), 2);
        if runs {
            event_loop.run().unwrap();
        }
        drop(event_loop);
        Arc::strong_count(&witness)
    }
    for runs in [true, false] {
        assert_eq!([post_and_drop::<0>(runs), post_and_drop::<1>(runs), post_and_drop::<2>(runs)], [1; 3]);
        assert_eq!(post_and_drop::<100>(runs), 1);
    }
}

#[test]
fn what_a_post_that_panics_has_captured_is_dropped_once() {
    let mut event_loop = real_loop();
    let witness = Arc::new(());
    let captured = Arc::clone(&witness);
    let post = move |_: &mut Context| panic!("with {captured:?}");
    event_loop.remote().post(post).unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| event_loop.run())).is_err());
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn a_capture_of_any_alignment_arrives() {
    #[repr(align(64))]
    struct Aligned(u8);
    let mut event_loop = real_loop();
    let aligned = Aligned(7);
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let post = move |_: &mut Context| {
        let aligned = &aligned;
        assert!((&raw const *aligned).is_aligned());
        counter.store(aligned.0.into(), Ordering::Relaxed);
    };
    event_loop.remote().post(post).unwrap();
    event_loop.run().unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 7);
}
