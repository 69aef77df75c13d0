//! Notifications that meet a pause: each one arrives, and none before the pause is over.

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::delivery::Delivery;
use super::mailbox::WakeFlag;
use super::sync::{Mutex, Ordering};
use super::wakeup::Wakeup;
use super::{Loop, for_every_order};

/// How the loop treats the notifications of a notifier: the loop's [`Delivery`], and others that are wrong.
trait Notifications: Send + Sync + 'static {
    fn new() -> Self;
    fn notify(&self) -> bool;
    fn arrive(&self) -> bool;
    fn pause(&self);
    fn resume(&self) -> bool;
}

impl Notifications for Delivery {
    fn new() -> Delivery {
        Delivery::new()
    }

    fn notify(&self) -> bool {
        self.notify()
    }

    fn arrive(&self) -> bool {
        self.arrive()
    }

    fn pause(&self) {
        self.pause();
    }

    fn resume(&self) -> bool {
        self.resume()
    }
}

/// A notifier and its loop. Its callback has to see all that was done before the last notification.
struct Notified<N> {
    event_loop: Arc<Loop<(), Wakeup>>,
    delivery: N,
    progress: AtomicUsize,
}

impl<N: Notifications> Notified<N> {
    fn new() -> Arc<Notified<N>> {
        let (event_loop, progress) = (Loop::new(), AtomicUsize::new(0));
        Arc::new(Notified { event_loop, delivery: N::new(), progress })
    }

    fn make_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
        self.notify();
    }

    fn notify(&self) {
        if self.delivery.notify() {
            self.event_loop.post(()).unwrap();
        }
    }

    fn resume(&self) {
        if self.delivery.resume() {
            self.notify();
        }
    }

    /// The poll phase, which calls the callback for every notification that has arrived.
    fn look(&self, seen: &mut Seen) {
        for () in self.event_loop.look() {
            if self.delivery.arrive() {
                seen.calls += 1;
                seen.progress = self.progress.load(Ordering::Relaxed);
            }
        }
    }

    /// The last poll phases, when nobody notifies, pauses or resumes any more.
    fn finish(&self, seen: &mut Seen) {
        self.look(seen);
        assert!(self.event_loop.has_come_to_rest());
        assert_eq!(seen.progress, self.progress.load(Ordering::Relaxed), "a notification was lost");
    }
}

/// How often the callback was called, and what it saw the last time.
#[derive(Default)]
struct Seen {
    calls: usize,
    progress: usize,
}

/// One thread notifies, another pauses and resumes, and the loop looks.
fn a_notification_meets_a_pause<N: Notifications>() {
    for_every_order(|| {
        let (notified, mut seen) = (Notified::<N>::new(), Seen::default());
        let (notifying, pausing) = (Arc::clone(&notified), Arc::clone(&notified));
        let notifier = thread::spawn(move || (0..2).for_each(|_| notifying.make_progress()));
        let pauser = thread::spawn(move || {
            pausing.delivery.pause();
            pausing.resume();
        });
        notified.look(&mut seen);
        notifier.join().unwrap();
        pauser.join().unwrap();
        notified.finish(&mut seen);
        assert!(seen.calls <= 2, "a notification is called for once");
    });
}

#[test]
fn a_notification_that_meets_a_pause_is_delivered_once_after_it() {
    a_notification_meets_a_pause::<Delivery>();
}

/// Whoever resumes last finds what was remembered.
#[test]
fn a_notification_survives_two_threads_that_pause_and_resume() {
    for_every_order(|| {
        let (notified, mut seen) = (Notified::<Delivery>::new(), Seen::default());
        let pausers = [Arc::clone(&notified), Arc::clone(&notified)].map(|notified| {
            thread::spawn(move || {
                notified.delivery.pause();
                notified.resume();
            })
        });
        notified.make_progress();
        notified.look(&mut seen);
        pausers.into_iter().for_each(|pauser| pauser.join().unwrap());
        notified.finish(&mut seen);
        assert_eq!(seen.calls, 1);
    });
}

#[test]
fn after_a_pause_the_callback_is_not_called_until_it_is_resumed() {
    for_every_order(|| {
        let (notified, mut seen) = (Notified::<Delivery>::new(), Seen::default());
        let notifying = Arc::clone(&notified);
        let notifier = thread::spawn(move || notifying.make_progress());
        notified.delivery.pause();
        notified.look(&mut seen);
        notifier.join().unwrap();
        notified.look(&mut seen);
        assert_eq!(seen.calls, 0, "it is paused");
        assert!(notified.delivery.is_paused());
        notified.resume();
        assert!(!notified.delivery.is_paused());
        notified.finish(&mut seen);
    });
}

/// A loop that is dropped drops what is on its way to it.
#[test]
fn after_a_notification_that_was_lost_the_next_one_is_sent() {
    for_every_order(|| {
        let delivery = Arc::new(Delivery::new());
        let other = Arc::clone(&delivery);
        let lose_one = |delivery: &Delivery| {
            if delivery.notify() {
                delivery.get_lost();
            }
        };
        let thread = thread::spawn(move || lose_one(&other));
        lose_one(&delivery);
        thread.join().unwrap();
        assert!(delivery.notify());
    });
}

/// It remembers first, and lowers the flag when the lock is released.
struct LoweredTooLate {
    is_on_its_way: WakeFlag,
    /// Whether it is paused, and whether it was notified meanwhile.
    state: Mutex<(bool, bool)>,
}

impl LoweredTooLate {
    fn is_open_or_remembers(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        state.1 = state.0;
        let is_open = !state.0;
        drop(state);
        if !is_open {
            self.is_on_its_way.lower();
        }
        is_open
    }
}

impl Notifications for LoweredTooLate {
    fn new() -> LoweredTooLate {
        LoweredTooLate { is_on_its_way: WakeFlag::new(false), state: Mutex::new((false, false)) }
    }

    fn notify(&self) -> bool {
        self.is_on_its_way.raise() && self.is_open_or_remembers()
    }

    fn arrive(&self) -> bool {
        let is_open = self.is_open_or_remembers();
        if is_open {
            self.is_on_its_way.lower();
        }
        is_open
    }

    fn pause(&self) {
        self.state.lock().unwrap().0 = true;
    }

    fn resume(&self) -> bool {
        std::mem::take(&mut *self.state.lock().unwrap()) == (true, true)
    }
}

#[test]
#[should_panic(expected = "a notification was lost")]
fn a_flag_that_is_lowered_after_the_lock_would_be_found_out() {
    a_notification_meets_a_pause::<LoweredTooLate>();
}
