//! The two parts of the event loop that several threads touch at once, taken through every order in which their
//! threads can meet: nothing is lost, nothing comes twice, nobody sleeps through a ring.
//!
//! The source is the loop's own; only its mutex and its atomics are loom's here.

use std::collections::VecDeque;

use loom::sync::Arc;
use loom::sync::Notify;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use mailbox::{Mailbox, Ring, WakeFlag};
use sync::Ordering;

/// What `event_loop/sync.rs` is to the loop.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;
}

#[path = "../supervisor/src/event_loop/mailbox.rs"]
mod mailbox;

/// Goes through all orders in which a thread is interrupted at most three times where it did not have to be. Without
/// that bound it takes hours; bugs that need more interruptions are all but unknown (Musuvathi and Qadeer, "Iterative
/// context bounding", 2007).
fn for_every_order(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// A mailbox with its bell, an eventfd in real life.
struct Loop<T> {
    mailbox: Mailbox<T>,
    bell: Notify,
}

impl<T> Loop<T> {
    fn new() -> Arc<Loop<T>> {
        Arc::new(Loop { mailbox: Mailbox::new(), bell: Notify::new() })
    }

    fn post(&self, thing: T) -> Result<(), T> {
        if self.mailbox.push(thing)? == Ring::Needed {
            self.bell.notify();
        }
        Ok(())
    }

    /// The poll phase: sleep until the bell rings, silence it, take everything.
    fn wait(&self) -> Vec<T> {
        self.bell.wait();
        self.mailbox.take(Vec::new())
    }
}

#[test]
fn every_post_of_two_threads_arrives_once_and_in_the_order_of_its_thread() {
    for_every_order(|| {
        let event_loop = Loop::new();
        let senders: Vec<_> = [[10, 11], [20, 21]]
            .map(|posts| {
                let event_loop = Arc::clone(&event_loop);
                thread::spawn(move || posts.map(|post| event_loop.post(post).unwrap()))
            })
            .into();
        let mut received = Vec::new();
        // If a ring could be slept through, loom would find the loop waiting for ever.
        while received.len() < 4 {
            received.extend(event_loop.wait());
        }
        for sender in senders {
            sender.join().unwrap();
        }
        assert!(!event_loop.mailbox.has_mail());
        for tens in [1, 2] {
            let of_one: Vec<i32> = received.iter().copied().filter(|post| post / 10 == tens).collect();
            assert_eq!(of_one, [tens * 10, tens * 10 + 1]);
        }
    });
}

#[test]
fn a_post_to_a_closing_loop_is_handed_back_or_handed_over() {
    for_every_order(|| {
        let event_loop = Loop::new();
        let remote = Arc::clone(&event_loop);
        let sender = thread::spawn(move || remote.post(1).is_ok());
        let handed_over = event_loop.mailbox.close().len();
        let was_accepted = sender.join().unwrap();
        assert_eq!(handed_over, usize::from(was_accepted));
        assert_eq!(event_loop.post(2), Err(2));
    });
}

#[test]
fn wake_ups_coalesce_and_the_future_always_sees_what_happened_before_the_last_one() {
    for_every_order(|| {
        let event_loop = Loop::new();
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
