//! Model checks of the parts of the event loop that several threads share. Loom runs them in every order in which the threads
//! can meet: nothing is lost, nothing comes twice, no wake-up is missed, and no thread makes a system call to wake a loop that
//! is awake.
//!
//! The code is that of the loop itself. Only its mutex, its atomics and the kernel's counter are replaced by loom's.

use std::collections::VecDeque;

use loom::sync::Arc;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::thread;

use blocks::Blocks;
use mailbox::{Mailbox, Ring, WakeFlag};
use rest::Rest;
use sync::{EventCounter, Ordering};
use wakeup::Wakeup;

/// What `supervisor/event-loop/src/sync.rs` is to the loop.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
    pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;

    /// What the kernel's is to its callers.
    pub(super) struct EventCounter {
        count: Mutex<u64>,
        is_filled: Condvar,
    }

    impl EventCounter {
        pub(super) fn new() -> EventCounter {
            EventCounter { count: Mutex::new(0), is_filled: Condvar::new() }
        }

        pub(super) fn add_one(&self) -> bool {
            *self.count.lock().unwrap() += 1;
            self.is_filled.notify_one();
            true
        }

        pub(super) fn take(&self) -> u64 {
            std::mem::take(&mut *self.count.lock().unwrap())
        }

        pub(super) fn is_readable(&self) -> bool {
            *self.count.lock().unwrap() > 0
        }

        /// If a ring could be slept through, loom would find somebody waiting here for ever.
        pub(super) fn wait_until_readable(&self) {
            let mut count = self.count.lock().unwrap();
            while *count == 0 {
                count = self.is_filled.wait(count).unwrap();
            }
        }
    }
}

#[path = "../supervisor/event-loop/src/blocks.rs"]
mod blocks;
#[path = "../supervisor/event-loop/src/delivery.rs"]
mod delivery;
#[path = "../supervisor/event-loop/src/mailbox.rs"]
mod mailbox;
#[path = "../supervisor/event-loop/src/wakeup.rs"]
mod wakeup;

#[path = "../supervisor/event-loop/src/rest.rs"]
mod rest;

#[path = "interleavings/notifications.rs"]
mod notifications;

/// Goes through all orders in which a thread is interrupted at most three times where it did not have to be. Without
/// that bound it takes hours; bugs that need more interruptions are all but unknown (Musuvathi and Qadeer, "Iterative
/// context bounding", 2007).
fn for_every_order(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// The loop's [`Wakeup`], and others that are wrong, to see that these tests would find it.
trait Bell: Send + Sync + 'static {
    fn new() -> Self;
    fn ring(&self);
    fn may_be_rung(&self) -> bool;
    fn silence(&self);
    fn counter(&self) -> &EventCounter;
}

impl Bell for Wakeup {
    fn new() -> Wakeup {
        Wakeup::new(EventCounter::new())
    }

    fn ring(&self) {
        self.ring();
    }

    fn may_be_rung(&self) -> bool {
        self.may_be_rung()
    }

    fn silence(&self) {
        self.silence();
    }

    fn counter(&self) -> &EventCounter {
        self.counter()
    }
}

/// A mailbox with its bell, as the loop has them.
struct Loop<T, B> {
    mailbox: Mailbox<T>,
    bell: B,
}

impl<T, B: Bell> Loop<T, B> {
    fn new() -> Arc<Loop<T, B>> {
        Arc::new(Loop { mailbox: Mailbox::new(), bell: B::new() })
    }

    fn post(&self, thing: T) -> Result<(), T> {
        if self.mailbox.push(thing)? == Ring::Needed {
            self.bell.ring();
        }
        Ok(())
    }

    /// A post of the loop's own thread, from one of its callbacks: it rings for nobody.
    fn post_from_within(&self, thing: T) {
        let _ = self.mailbox.push(thing);
    }

    /// The loop stops running, and is watched by somebody else from here on.
    fn leave(&self) {
        if self.mailbox.has_mail() {
            self.bell.ring();
        }
    }

    fn take_posts(&self) -> Vec<T> {
        let mut posts = Blocks::new();
        if self.mailbox.has_mail() {
            self.mailbox.take(&mut posts, 1);
        }
        std::iter::from_fn(|| posts.pop()).collect()
    }

    /// The poll phase: take what is there; sleep if there is nothing, and take what it was woken for; silence the bell.
    fn wait(&self) -> Vec<T> {
        let mut posts = self.take_posts();
        if posts.is_empty() && !self.mailbox.has_mail() {
            self.bell.counter().wait_until_readable();
            posts = self.take_posts();
        }
        self.bell.silence();
        posts
    }

    /// The poll phase of a loop whose descriptor is watched by somebody else, and which watches nothing itself.
    fn look(&self) -> Vec<T> {
        let posts = self.take_posts();
        let is_readable = self.bell.counter().is_readable();
        assert!(!is_readable || self.bell.may_be_rung(), "it would be called again and again");
        if is_readable {
            self.bell.silence();
        }
        posts
    }

    /// For when nobody posts any more.
    fn has_come_to_rest(&self) -> bool {
        drop(self.look());
        !self.mailbox.has_mail() && !self.bell.counter().is_readable() && !self.bell.may_be_rung()
    }
}

#[test]
fn every_post_of_two_threads_arrives_once_and_in_the_order_of_its_thread() {
    for_every_order(|| {
        let event_loop = Loop::<_, Wakeup>::new();
        let senders: Vec<_> = [[10, 11], [20, 21]]
            .map(|posts| {
                let event_loop = Arc::clone(&event_loop);
                thread::spawn(move || posts.map(|post| event_loop.post(post).unwrap()))
            })
            .into();
        let mut received = Vec::new();
        while received.len() < 4 {
            received.extend(event_loop.wait());
        }
        for sender in senders {
            sender.join().unwrap();
        }
        assert!(event_loop.has_come_to_rest());
        for tens in [1, 2] {
            let of_one: Vec<i32> = received.iter().copied().filter(|post| post / 10 == tens).collect();
            assert_eq!(of_one, [tens * 10, tens * 10 + 1]);
        }
    });
}

/// The other thread finds the post of the loop's own thread before its own and rings for neither.
#[test]
fn a_loop_that_posts_to_itself_without_a_ring_does_not_sleep_through_the_post_behind_it() {
    for_every_order(|| {
        let event_loop = Loop::<_, Wakeup>::new();
        let remote = Arc::clone(&event_loop);
        let poster = thread::spawn(move || remote.post(1).unwrap());
        event_loop.post_from_within(0);
        let mut received = Vec::new();
        while received.len() < 2 {
            received.extend(event_loop.wait());
        }
        poster.join().unwrap();
        received.sort_unstable();
        assert_eq!(received, [0, 1]);
        assert!(event_loop.has_come_to_rest());
    });
}

/// A callback posts to its own loop, which then stops. Whoever watches its descriptor learns of that post and of the other
/// thread's, whichever was first.
fn an_embedder_serves_a_loop_that_has_posted_to_itself(leave: fn(&Loop<i32, Wakeup>)) {
    for_every_order(move || {
        let event_loop = Loop::<_, Wakeup>::new();
        let remote = Arc::clone(&event_loop);
        let poster = thread::spawn(move || remote.post(1).unwrap());
        event_loop.post_from_within(0);
        leave(&event_loop);
        poster.join().unwrap();
        assert!(event_loop.bell.may_be_rung(), "nobody would be told of the posts");
        let mut received = Vec::new();
        while received.len() < 2 {
            event_loop.bell.counter().wait_until_readable();
            received.extend(event_loop.look());
        }
        received.sort_unstable();
        assert_eq!(received, [0, 1]);
        assert!(event_loop.has_come_to_rest());
    });
}

#[test]
fn a_loop_that_stops_rings_for_what_it_has_posted_to_itself() {
    an_embedder_serves_a_loop_that_has_posted_to_itself(Loop::leave);
}

#[test]
#[should_panic(expected = "nobody would be told of the posts")]
fn a_loop_that_stops_without_a_ring_would_be_found_out() {
    an_embedder_serves_a_loop_that_has_posted_to_itself(|_| {});
}

/// Two threads post to a loop that lives in somebody else's poll. It is called when its descriptor is readable, or when
/// it says that it has something to do. Every call finds a post or hears a ring, and in the end nothing is left over.
fn an_embedder_serves_two_threads<B: Bell>() {
    for_every_order(|| {
        let event_loop = Loop::<_, B>::new();
        let posters: Vec<_> = (0..2)
            .map(|post| {
                let event_loop = Arc::clone(&event_loop);
                thread::spawn(move || event_loop.post(post).unwrap())
            })
            .collect();
        let (mut received, mut calls) = (Vec::new(), 0);
        while received.len() < 2 {
            if !event_loop.mailbox.has_mail() {
                event_loop.bell.counter().wait_until_readable();
            }
            received.extend(event_loop.look());
            calls += 1;
        }
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        received.sort_unstable();
        assert_eq!(received, [0, 1]);
        assert!(calls <= 4, "two posts and two rings are no reason for {calls} calls");
        assert!(event_loop.has_come_to_rest(), "a ring is believed to be on its way");
    });
}

#[test]
fn an_embedded_loop_is_called_for_posts_and_rings_only_and_hears_them_all() {
    an_embedder_serves_two_threads::<Wakeup>();
}

/// A flag in the place of the number of rings.
struct Flag {
    is_rung: AtomicBool,
    counter: EventCounter,
}

impl Flag {
    fn new() -> Flag {
        Flag { is_rung: AtomicBool::new(false), counter: EventCounter::new() }
    }
}

/// As it was: first the kernel's counter, then the flag.
struct CounterFirst(Flag);

impl Bell for CounterFirst {
    fn new() -> CounterFirst {
        CounterFirst(Flag::new())
    }

    fn ring(&self) {
        self.0.counter.add_one();
        self.0.is_rung.store(true, Ordering::SeqCst);
    }

    fn may_be_rung(&self) -> bool {
        self.0.is_rung.load(Ordering::SeqCst)
    }

    fn silence(&self) {
        self.0.is_rung.store(false, Ordering::SeqCst);
        self.0.counter.take();
    }

    fn counter(&self) -> &EventCounter {
        &self.0.counter
    }
}

#[test]
#[should_panic(expected = "it would be called again and again")]
fn a_flag_that_is_raised_after_the_counter_would_be_found_out() {
    an_embedder_serves_two_threads::<CounterFirst>();
}

/// As it was, where only what is left over is looked at.
#[test]
#[should_panic(expected = "a ring is believed to be on its way")]
fn a_flag_that_stays_raised_would_be_found_out() {
    for_every_order(|| {
        let event_loop = Loop::<_, CounterFirst>::new();
        let remote = Arc::clone(&event_loop);
        let poster = thread::spawn(move || remote.post(()).unwrap());
        event_loop.wait();
        poster.join().unwrap();
        let is_rung = event_loop.bell.may_be_rung() && !event_loop.bell.counter().is_readable();
        assert!(!is_rung, "a ring is believed to be on its way");
    });
}

/// The right order, with a flag: it is lowered for a ring that was counted and not made yet.
struct FlagFirst(Flag);

impl Bell for FlagFirst {
    fn new() -> FlagFirst {
        FlagFirst(Flag::new())
    }

    fn ring(&self) {
        self.0.is_rung.store(true, Ordering::SeqCst);
        self.0.counter.add_one();
    }

    fn may_be_rung(&self) -> bool {
        self.0.is_rung.load(Ordering::SeqCst)
    }

    fn silence(&self) {
        self.0.is_rung.store(false, Ordering::SeqCst);
        self.0.counter.take();
    }

    fn counter(&self) -> &EventCounter {
        &self.0.counter
    }
}

#[test]
#[should_panic(expected = "it would be called again and again")]
fn a_flag_that_stands_for_two_rings_would_be_found_out() {
    an_embedder_serves_two_threads::<FlagFirst>();
}

#[test]
fn a_post_to_a_closing_loop_is_handed_back_or_handed_over() {
    for_every_order(|| {
        let event_loop = Loop::<_, Wakeup>::new();
        let remote = Arc::clone(&event_loop);
        let sender = thread::spawn(move || remote.post(1).is_ok());
        let handed_over = event_loop.mailbox.close().iter().flatten().count();
        let was_accepted = sender.join().unwrap();
        assert_eq!(handed_over, usize::from(was_accepted));
        assert_eq!(event_loop.post(2), Err(2));
    });
}

#[test]
fn wake_ups_coalesce_and_the_future_always_sees_what_happened_before_the_last_one() {
    for_every_order(|| {
        let event_loop = Loop::<_, Wakeup>::new();
        let flag = Arc::new(WakeFlag::new(false));
        let progress = Arc::new(AtomicUsize::new(0));
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let (event_loop, flag, progress) = (event_loop.clone(), flag.clone(), progress.clone());
                thread::spawn(move || {
                    progress.fetch_add(1, Ordering::Relaxed);
                    if flag.raise() {
                        event_loop.post(()).unwrap();
                    }
                })
            })
            .collect();
        let (mut seen, mut polls) = (0, 0);
        let mut queued = VecDeque::new();
        while seen < 2 {
            queued.extend(event_loop.wait());
            while queued.pop_front().is_some() {
                flag.lower();
                polls += 1;
                seen = progress.load(Ordering::Relaxed);
            }
        }
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        assert!(polls <= 2, "at most one poll a wake-up");
    });
}

#[test]
fn no_watchdog_sleeps_beside_a_loop_that_runs() {
    for_every_order(|| {
        let rest = Arc::new(Rest::new());
        let bells = [Arc::new(Notify::new()), Arc::new(Notify::new())];
        let watchdogs: Vec<_> = bells
            .iter()
            .map(|bell| {
                let (rest, bell) = (rest.clone(), bell.clone());
                thread::spawn(move || {
                    if rest.may_be_left() {
                        // If nobody rang, loom would find the watchdog waiting for ever.
                        bell.wait();
                    }
                })
            })
            .collect();
        let go_on = || {
            if rest.end() {
                bells.iter().for_each(|bell| bell.notify());
            }
        };
        go_on();
        rest.begin();
        go_on();
        watchdogs.into_iter().for_each(|watchdog| watchdog.join().unwrap());
        assert!(!rest.may_be_left(), "it runs");
    });
}
