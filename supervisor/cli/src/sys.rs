//! The only file of the binary that may use `unsafe`. It checks the standard descriptors before Rust's runtime starts,
//! and ends the process by a signal.
#![expect(
    unsafe_code,
    reason = "a function in .init_array is called by the loader, which takes our word for its type; see the other uses too"
)]

use rustix::io::fcntl_getfd;
use rustix::stdio::{stdin, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

static STDIN_IS_CLOSED: AtomicBool = AtomicBool::new(false);
static STDOUT_IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Checks the standard descriptors before Rust's runtime does. The runtime opens /dev/null for each closed one, so that
/// no later file gets its number. After that, a closed descriptor looks like one that was sent to /dev/null on purpose.
extern "C" fn check_descriptors_before_main() {
    STDIN_IS_CLOSED.store(fcntl_getfd(stdin()).is_err(), Ordering::Relaxed);
    STDOUT_IS_CLOSED.store(fcntl_getfd(stdout()).is_err(), Ordering::Relaxed);
}

// SAFETY: the loader calls each pointer of this section once, before `main`, as a function of the C calling convention.
// This one uses nothing that the runtime sets up: it asks the kernel and stores two flags.
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK_DESCRIPTORS_BEFORE_MAIN: extern "C" fn() = check_descriptors_before_main;

/// Whether this process was started without standard input (`<&-`).
pub(super) fn stdin_was_closed() -> bool {
    STDIN_IS_CLOSED.load(Ordering::Relaxed)
}

/// Whether this process was started without standard output (`>&-`).
pub(super) fn stdout_was_closed() -> bool {
    STDOUT_IS_CLOSED.load(Ordering::Relaxed)
}

/// Ends this process by `signal`, as if the signal had never been caught. Returns if the signal has no effect, as for
/// the first process of a container.
pub(super) fn end_by_default_action(signal: i32) {
    // SAFETY: no function of ours is installed, and the call has no memory of ours in it.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: the signal goes to this thread. Nothing of ours runs in its course: its action is the default one.
    unsafe { libc::raise(signal) };
}
