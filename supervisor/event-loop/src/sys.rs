//! The system calls that no library wraps safely, and callbacks that are kept without an allocation. This is the only file of
//! the crate that may use `unsafe`.
#![expect(unsafe_code, reason = "see each use")]

use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll;
use rustix::net::SendFlags;
use signal_hook::SigId;

use super::Context;
use super::origin::Origin;

/// A counter in the processor that goes on at a steady pace of at least one step a nanosecond or so, and costs less than half
/// of what reading the clock costs. Its steps have no fixed length and it may differ between cores, so it can say only
/// that hardly any time has passed. `None` on a processor for which nobody has looked yet.
#[inline]
pub(crate) fn processor_count() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instruction. It reads a register and touches no memory.
    return Some(unsafe { std::arch::x86_64::_rdtsc() });
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Appends the events that are there to `events`, as far as it has room, without waiting.
///
/// With the general call, which counts in nanoseconds, a look took 110 ns instead of 90: for it the kernel copies the
/// timeout from the memory of the process, even if it is zero.
///
/// # Errors
/// As `epoll_wait(2)`.
pub(crate) fn look_for_events(epoll: BorrowedFd<'_>, events: &mut Vec<epoll::Event>) -> io::Result<()> {
    const { assert!(size_of::<epoll::Event>() == size_of::<libc::epoll_event>()) };
    const { assert!(align_of::<epoll::Event>() == align_of::<libc::epoll_event>()) };
    let room = events.spare_capacity_mut();
    let count = libc::c_int::try_from(room.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: both types are the kernel's structure, and the kernel writes at most as many as there is room for.
    let found = unsafe { libc::epoll_wait(epoll.as_raw_fd(), room.as_mut_ptr().cast(), count, 0) };
    let Ok(found) = usize::try_from(found) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel has written so many events behind those that were there.
    unsafe { events.set_len(events.len() + found) };
    Ok(())
}

/// How many words a [`SmallCall`] has for what its callback has captured. With three instead of two, each post took 5 ns more:
/// memory that is touched for the first time costs 2 us a page.
const CAPTURED_WORDS: usize = 2;

type Captured = [MaybeUninit<usize>; CAPTURED_WORDS];

/// A callback that runs once and may be sent to another thread: a `Box<dyn FnOnce(&mut Context) + Send>` without the box.
///
/// What the callback has captured lies in this very place if it is not larger than two words, and is allocated otherwise. An
/// allocation that one thread makes and another one frees costs both of them more than all the rest of a post: with a box, two
/// threads that ran at once needed 400 ns of processor time for a post, and without it 60.
pub(crate) struct SmallCall {
    captured: Captured,
    /// Takes the callback out of `captured`, and calls it, or drops it if there is no context.
    finish: unsafe fn(*mut Captured, Option<&mut Context>),
}

// SAFETY: whatever lies in `captured` was `Send` when it was put there.
unsafe impl Send for SmallCall {}

impl SmallCall {
    pub(crate) fn new<F: FnOnce(&mut Context) + Send + 'static>(callback: F) -> SmallCall {
        if SmallCall::has_room_for::<F>() {
            SmallCall::in_place(callback)
        } else {
            let allocated = Box::new(callback);
            SmallCall::in_place(move |context: &mut Context| allocated(context))
        }
    }

    const fn has_room_for<F>() -> bool {
        size_of::<F>() <= size_of::<Captured>() && align_of::<F>() <= align_of::<Captured>()
    }

    fn in_place<F: FnOnce(&mut Context) + Send + 'static>(callback: F) -> SmallCall {
        /// # Safety
        /// An `F` lies in the place, and nobody uses it after this.
        unsafe fn finish<F: FnOnce(&mut Context)>(place: *mut Captured, context: Option<&mut Context>) {
            // SAFETY: the caller's promise.
            let callback = unsafe { place.cast::<F>().read() };
            match context {
                Some(context) => callback(context),
                None => drop(callback),
            }
        }
        assert!(SmallCall::has_room_for::<F>(), "it would lie beyond its place");
        let mut captured: Captured = [MaybeUninit::uninit(); CAPTURED_WORDS];
        // SAFETY: size and alignment fit, as was just made sure of.
        unsafe { captured.as_mut_ptr().cast::<F>().write(callback) };
        SmallCall { captured, finish: finish::<F> }
    }

    pub(crate) fn run(self, context: &mut Context) {
        let mut call = ManuallyDrop::new(self);
        // SAFETY: `finish` belongs to what lies in `captured`, and is called once: it is not dropped as well.
        unsafe { (call.finish)(&raw mut call.captured, Some(context)) };
    }
}

impl Drop for SmallCall {
    fn drop(&mut self) {
        // SAFETY: as in `run`, which lets nothing be dropped.
        unsafe { (self.finish)(&raw mut self.captured, None) };
    }
}

/// Whether a handler can be asked for, or set, for a signal of this number. The C library keeps some for itself.
pub(crate) fn signal_exists(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call changes nothing, and it writes no more than the present one.
    unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0 }
}

/// Registers a handler that writes a byte to `end` when the signal comes to the process `origin`. A forked child has the handler
/// and the other end too, and a signal to the child is none to its parent.
///
/// # Errors
/// What the system says.
///
/// # Panics
/// For a signal that signal-hook forbids.
pub(crate) fn write_at_signal(signal: i32, end: UnixStream, origin: Origin) -> io::Result<SigId> {
    let write = move || {
        if origin.is_here() {
            // Without room there are bytes enough to be heard.
            let _ = rustix::net::send(&end, b"x", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    };
    // SAFETY: as signal-hook's own handlers, it makes system calls and nothing else: it takes no lock, allocates nothing and does
    // not panic.
    unsafe { signal_hook::low_level::register(signal, write) }
}

/// Starts `command` with the default action for every signal and none blocked, as libuv does. What this process ignores
/// or blocks would go on to the child otherwise: one that is started while SIGTERM is ignored would survive SIGTERM.
///
/// # Errors
/// As [`Command::spawn`].
pub(crate) fn spawn_with_default_signals(command: &mut Command) -> io::Result<Child> {
    // SAFETY: what runs between fork and exec makes system calls only. It takes no lock and allocates nothing.
    unsafe { command.pre_exec(default_all_signals) };
    // Until the child has done so, no handler of this process may run in it: it would write to pipes that both share.
    let blocked = AllSignalsBlocked::begin();
    let child = command.spawn();
    drop(blocked);
    child
}

/// Runs in the child.
fn default_all_signals() -> io::Result<()> {
    /// Set in the memory of the child only. A command that is started again has this function once for each start.
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: no function of ours is installed. What cannot be changed is refused: SIGKILL, SIGSTOP, and
        // the C library's own.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is written before it is read, and outlives both calls.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
    Ok(())
}

/// As long as it exists, this thread takes no signals. Those of the process go to its other threads, or wait.
struct AllSignalsBlocked {
    before: libc::sigset_t,
}

impl AllSignalsBlocked {
    fn begin() -> AllSignalsBlocked {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the first set is written before it is read. The second one is written by the call, which cannot fail with
        // these arguments, and is a value, the empty set, even if it did.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        AllSignalsBlocked { before }
    }
}

impl Drop for AllSignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is one that the kernel has given.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}
