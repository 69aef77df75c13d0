//! What has to be looked at before Rust's runtime begins. This is the only file of the binary that may use `unsafe`.
#![expect(
    unsafe_code,
    reason = "a function in .init_array is called by the loader, which takes our word for its type"
)]

use rustix::io::fcntl_getfd;
use rustix::stdio::stdout;
use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Before `main`, the runtime puts /dev/null in the place of a standard descriptor that is closed, so that no file that
/// is opened later gets its number. From then on nobody can tell it from one that was sent there on purpose.
extern "C" fn look_before_main() {
    STDOUT_IS_CLOSED.store(fcntl_getfd(stdout()).is_err(), Ordering::Relaxed);
}

// SAFETY: the loader calls each pointer of this section once, before `main`, as a function of the C calling convention.
// This one uses nothing that the runtime sets up: it asks the kernel and stores a flag.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_BEFORE_MAIN: extern "C" fn() = look_before_main;

/// Whether this process was started without standard output (`>&-`).
pub(super) fn stdout_was_closed() -> bool {
    STDOUT_IS_CLOSED.load(Ordering::Relaxed)
}
