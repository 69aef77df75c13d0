//! The only file of the binary that may use `unsafe`. It checks the standard descriptors before Rust's runtime starts,
//! takes over
//! descriptors that it was started with, and ends the process by a signal.
#![expect(
    unsafe_code,
    reason = "a function in .init_array is called by the loader, which takes our word for its type; see the other uses too"
)]

use rustix::io::fcntl_getfd;
use rustix::stdio::{stdin, stdout};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

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

/// Takes over a descriptor that this process was started with: a socket that listens. Workers do not inherit it.
///
/// # Errors
/// A sentence: it is not open, is no socket, does not listen, takes messages in place of a stream, or has been taken over before.
pub(super) fn take_descriptor(number: i32) -> Result<OwnedFd, String> {
    static TAKEN: Mutex<Vec<i32>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if number < 3 {
        return Err(format!("descriptor {number} is one of the standard ones"));
    }
    if taken.contains(&number) {
        return Err(format!(
            "descriptor {number} is there twice: LISTEN_FDS passes it already, so leave out fd:{number}"
        ));
    }
    let no_socket = |error| format!("descriptor {number} is no socket: {}", io::Error::from(error));
    // SAFETY: it is borrowed for the next lines only, in which nothing closes a descriptor.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if !rustix::net::sockopt::socket_acceptconn(borrowed).map_err(no_socket)? {
        return Err(format!("descriptor {number} is a socket that does not listen"));
    }
    if rustix::net::sockopt::socket_type(borrowed).map_err(no_socket)? != rustix::net::SocketType::STREAM {
        return Err(format!("descriptor {number} takes messages, and no stream of bytes"));
    }
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).map_err(no_socket)?;
    taken.push(number);
    // SAFETY: whoever started this process has handed the socket to it, and this is the only place where such a descriptor is
    // taken, once for each number. What this process itself opens listens nowhere but in types that own it, and later.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Ends this process by `signal`, as if the signal had never been caught. Returns if the signal has no effect, as for
/// the first process of a container.
pub(super) fn end_by_default_action(signal: i32) {
    // SAFETY: no function of ours is installed, and the call has no memory of ours in it.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: the signal goes to this thread. Nothing of ours runs in its course: its action is the default one.
    unsafe { libc::raise(signal) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn only_a_socket_that_listens_is_taken_over_and_only_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap().into_raw_fd();
        let taken = take_descriptor(listener).unwrap();
        assert_eq!(taken.as_raw_fd(), listener);
        let refused = |number| take_descriptor(number).unwrap_err();
        assert!(refused(listener).contains("is there twice"), "it has an owner");
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(refused(file.as_raw_fd()).contains("no socket: Socket operation on non-socket"));
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(refused(datagrams.as_raw_fd()).contains("does not listen"));
        assert!(refused(1).contains("standard"));
        assert!(refused(100_000).contains("Bad file descriptor"));
    }
}
