//! What other threads may do to the loop: post a callback, notify it, wake a future, stop it. Whoever leaves the first post
//! in the loop's mailbox wakes the loop.

use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Context;
use super::blocks::Blocks;
use super::callback::Site;
use super::delivery::Delivery;
use super::error::{LoopError, LoopGone};
use super::limits::SPARE_BLOCKS;
use super::mailbox::{Mailbox, Ring};
use super::origin::Origin;
use super::slab::SlabKey;
use super::sync::EventCounter;
use super::sys::SmallCall;
use super::tasks::{LocalLoops, Tasks};
use super::wakeup::Wakeup;

/// Laid out as in C, where all begins at a multiple of 8. Left to itself, the compiler puts the keys at 4, copies posts in pieces
/// that overlap, and the processor waits for each copy to be complete before it can read from it: 4 ns a post.
#[repr(C)]
pub(super) enum Post {
    Run {
        site: Site,
        run: SmallCall,
    },
    /// A future of the loop was woken.
    Wake(SlabKey),
    /// The answer to a request.
    Answer {
        request: SlabKey,
        value: Box<dyn Any + Send>,
    },
    /// A request whose other end was dropped without an answer.
    Abandon {
        request: SlabKey,
    },
}

impl Post {
    /// Where it was posted. An answer has no site; its request has one.
    pub(super) fn site(&self, tasks: &Tasks) -> Option<Site> {
        match self {
            Post::Run { site, .. } => Some(site),
            Post::Wake(key) => tasks.site(*key),
            Post::Answer { .. } | Post::Abandon { .. } => None,
        }
    }
}

struct RemoteShared {
    loop_number: u64,
    origin: Origin,
    posts: Mailbox<Post>,
    stopping: AtomicBool,
    wakeup: Wakeup,
}

/// A handle to the loop for any thread: posts callbacks and stops it.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<RemoteShared>,
}

impl Remote {
    pub(super) fn new(loop_number: u64) -> Result<Remote, LoopError> {
        let shared = RemoteShared {
            loop_number,
            origin: Origin::here(),
            posts: Mailbox::new(),
            stopping: AtomicBool::new(false),
            wakeup: Wakeup::new(EventCounter::new()?),
        };
        Ok(Remote { shared: Arc::new(shared) })
    }

    /// Runs `callback` on the loop, in its poll phase. Posts of one thread run in the order of posting, each once.
    ///
    /// A loop with nothing left to do ends although another thread means to post to it: keep it alive with
    /// [`hold`](super::LoopHandle::hold). The number of posts under way has no bound, so a thread that can be faster than the
    /// loop must limit what it posts.
    ///
    /// ```
    /// use offload_event_loop::EventLoop;
    ///
    /// let mut event_loop = EventLoop::new()?;
    /// let _hold = event_loop.hold(); // Until the last post stops it.
    /// let remote = event_loop.remote();
    /// let thread = std::thread::spawn(move || {
    ///     remote.post(|_| println!("from another thread"))?;
    ///     remote.post(|context| context.stop())
    /// });
    /// event_loop.run()?;
    /// thread.join().expect("it did not panic")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LoopGone`] when the loop was dropped; the callback is dropped here, on the calling thread.
    #[track_caller]
    pub fn post(&self, callback: impl FnOnce(&mut Context) + Send + 'static) -> Result<(), LoopGone> {
        let site = Site::from(std::panic::Location::caller());
        self.push(Post::Run { site, run: SmallCall::new(callback) })
    }

    /// Makes `run` return after the current iteration, waking it if it waits.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wakeup.ring();
    }

    /// A notifier for `callback`: however often it is notified before the loop gets there, the callback runs once.
    #[track_caller]
    pub fn notifier(&self, callback: impl FnMut(&mut Context) + Send + 'static) -> Notifier {
        let target = NotifierTarget { delivery: Delivery::new(), callback: Mutex::new(Box::new(callback)) };
        Notifier { remote: self.clone(), site: std::panic::Location::caller(), target: Arc::new(target) }
    }

    pub(super) fn push(&self, post: Post) -> Result<(), LoopGone> {
        self.try_push(post).map_err(|_| LoopGone)
    }

    /// Gives the post back when the loop is gone.
    pub(super) fn try_push(&self, post: Post) -> Result<(), Post> {
        // A loop that runs on this thread looks at its posts before it waits the next time, so only another one has to be
        // woken: with the two system calls for it, a notifier that notifies itself took three times as long.
        if self.shared.posts.push(post)? == Ring::Needed && !LocalLoops::is_running_here(self.loop_number()) {
            self.shared.wakeup.ring();
        }
        Ok(())
    }

    /// Moves everything posted since the last time to the end of `queue`, in order.
    pub(super) fn take(&self, queue: &mut Blocks<Post>) {
        self.shared.posts.take(queue, SPARE_BLOCKS);
    }

    /// The number of the loop, different from those of all others in this process.
    pub(super) fn loop_number(&self) -> u64 {
        self.shared.loop_number
    }

    /// The loop was woken, or is about to be.
    pub(super) fn may_be_rung(&self) -> bool {
        self.shared.wakeup.may_be_rung()
    }

    /// Not for a post, but for whoever watches the loop's descriptor.
    pub(super) fn ring(&self) {
        // A child shares the kernel's counter with its parent, but not the number of rings beside it.
        if self.is_of_this_process() {
            self.shared.wakeup.ring();
        }
    }

    /// See [`Origin`]: if not, nobody may be told anything while something is dropped.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.shared.origin.is_here()
    }

    pub(super) fn has_posts(&self) -> bool {
        self.shared.posts.has_mail()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Ordering::Acquire)
    }

    pub(super) fn forget_stop(&self) {
        self.shared.stopping.store(false, Ordering::Release);
    }

    /// From here on nothing is accepted any more. A forked child leaves what it has of the posts where it is: another thread of
    /// its parent may have had the lock.
    pub(super) fn close(&self) -> VecDeque<VecDeque<Post>> {
        if !self.is_of_this_process() {
            return VecDeque::new();
        }
        self.shared.posts.close()
    }

    #[cfg(test)]
    pub(super) fn lock_for_ever(&self) {
        std::mem::forget(self.shared.posts.lock());
    }

    pub(super) fn wake_descriptor(&self) -> BorrowedFd<'_> {
        self.shared.wakeup.counter().as_fd()
    }

    /// To be called when the loop stops running. A post by its own thread has not rung for it; whoever watches its
    /// descriptor has to learn of it from here on.
    pub(super) fn ring_for_what_is_left(&self) {
        if self.has_posts() {
            self.shared.wakeup.ring();
        }
    }

    /// Takes all wake-ups that have come. The posts are taken after this, before the loop waits again.
    pub(super) fn silence(&self) {
        self.shared.wakeup.silence();
    }
}

type NotifierCallback = Box<dyn FnMut(&mut Context) + Send>;

struct NotifierTarget {
    delivery: Delivery,
    callback: Mutex<NotifierCallback>,
}

/// Runs a callback on the loop from any thread. See [`Remote::notifier`]. Like `uv_async_t`, but it does not keep the loop
/// alive: a [`Hold`](super::Hold) does.
#[derive(Clone)]
#[must_use = "without it nobody can make the callback run"]
pub struct Notifier {
    remote: Remote,
    site: Site,
    target: Arc<NotifierTarget>,
}

impl Notifier {
    /// Makes the callback run once after this call; further calls until then add nothing.
    ///
    /// # Errors
    /// [`LoopGone`] when the loop was dropped.
    pub fn notify(&self) -> Result<(), LoopGone> {
        if !self.target.delivery.notify() {
            return Ok(());
        }
        let wake = PendingWake(Some(Arc::clone(&self.target)));
        self.remote
            .push(Post::Run { site: self.site, run: SmallCall::new(move |context| wake.arrive(context)) })
    }

    /// Stops the callback until the notifier is [resumed](Notifier::resume), on any thread. Notifications are remembered
    /// meanwhile as one, also one that is on its way to the loop. A callback that runs just now on another thread runs to
    /// its end.
    ///
    /// libuv's async handle can only be closed. This is for a program that takes nothing more for a while: with a flag of its
    /// own it would have to see to it itself that no notification is lost between the threads.
    pub fn pause(&self) {
        self.target.delivery.pause();
    }

    /// Undoes [`Notifier::pause`]: the callback runs once if it was notified in between. Nothing happens if it is not paused.
    ///
    /// # Errors
    /// [`LoopGone`] when a notification was remembered and the loop was dropped.
    pub fn resume(&self) -> Result<(), LoopGone> {
        if self.target.delivery.resume() { self.notify() } else { Ok(()) }
    }

    /// Whether it was paused and not resumed yet.
    pub fn is_paused(&self) -> bool {
        self.target.delivery.is_paused()
    }
}

/// A notification on its way to the loop. If it is dropped before it arrives, the notifier can be notified again.
struct PendingWake(Option<Arc<NotifierTarget>>);

impl PendingWake {
    fn arrive(mut self, context: &mut Context) {
        let Some(target) = self.0.take() else { return };
        if !target.delivery.arrive() {
            return;
        }
        // Only the loop's thread takes this lock, and never twice, so it does not wait.
        let mut callback = target.callback.lock().unwrap_or_else(PoisonError::into_inner);
        callback(context);
    }
}

impl Drop for PendingWake {
    fn drop(&mut self) {
        if let Some(target) = &self.0 {
            target.delivery.get_lost();
        }
    }
}
