//! What has to be looked at before Rust's runtime begins, and how a process ends by a signal. This is the only file of the
//! binary that may use `unsafe`.
#![expect(
    unsafe_code,
    reason = "a function in .init_array is called by the loader, which takes our word for its type; see the other uses too"
)]

use rustix::io::fcntl_getfd;
use rustix::stdio::{stdin, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

static STDIN_IS_CLOSED: AtomicBool = AtomicBool::new(false);
static STDOUT_IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Before `main`, the runtime puts /dev/null in the place of a standard descriptor that is closed, so that no file that
/// is opened later gets its number. From then on nobody can tell it from one that was sent there on purpose.
extern "C" fn look_before_main() {
    STDIN_IS_CLOSED.store(fcntl_getfd(stdin()).is_err(), Ordering::Relaxed);
    STDOUT_IS_CLOSED.store(fcntl_getfd(stdout()).is_err(), Ordering::Relaxed);
}

// SAFETY: the loader calls each pointer of this section once, before `main`, as a function of the C calling convention.
// This one uses nothing that the runtime sets up: it asks the kernel and stores two flags.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_BEFORE_MAIN: extern "C" fn() = look_before_main;

/// Whether this process was started without standard input (`<&-`).
pub(super) fn stdin_was_closed() -> bool {
    STDIN_IS_CLOSED.load(Ordering::Relaxed)
}

/// Whether this process was started without standard output (`>&-`).
pub(super) fn stdout_was_closed() -> bool {
    STDOUT_IS_CLOSED.load(Ordering::Relaxed)
}

/// Ends this process by `signal`, as if it had never been caught. Returns if the signal is ignored in spite of that, as it
/// is for the first process of a container.
pub(super) fn end_by_default_action(signal: i32) {
    // SAFETY: no function of ours is installed, and the call has no memory of ours in it.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: the signal goes to this thread. Nothing of ours runs in its course: its action is the default one.
    unsafe { libc::raise(signal) };
}
