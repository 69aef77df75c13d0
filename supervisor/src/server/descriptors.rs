//! Descriptors are shared out before they are short: supervision has its part, clients get what is left.
//!
//! ```text
//!   the limit of this process (the soft one is raised to the hard one)
//!     - what is open at the start, and OWN: the loop, the socket, the log, threads, files that are read for a moment
//!     - PER_PROCESS for each process that there may be, and LAUNCH for those that are just being started
//!     = what is left for clients
//! ```

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For this process itself: about 20 are open all the time.
const OWN: usize = 48;

/// As many as are open at the start if that cannot be known: the standard ones.
const OPEN_USUALLY: usize = 3;

/// Socket, pidfd, standard output and standard error of a worker.
const PER_PROCESS: usize = 4;

/// For starting a process: both ends of its socket and its pipes, and those by which a failure is told.
const LAUNCH: usize = 16;

/// For tasks of the I/O pool.
const PER_THREAD: usize = 2;

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptors {
    limit: usize,
    open: usize,
    threads: usize,
}

impl Descriptors {
    /// Raises the limit as far as this process may. Workers lower their own.
    pub(super) fn raise(threads: usize) -> Descriptors {
        let before = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: before.maximum, maximum: before.maximum };
        // Where that is refused, the limit is what it was.
        let _ = setrlimit(Resource::Nofile, raised);
        let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
        let open = std::fs::read_dir("/proc/self/fd").map_or(OPEN_USUALLY, Iterator::count);
        Descriptors { limit: limit.unwrap_or(usize::MAX), open, threads }
    }

    /// How many clients there may be beside so many processes.
    pub(super) fn left_for_clients(self, processes: usize) -> usize {
        let supervision = self.open + OWN + LAUNCH + PER_THREAD * self.threads + PER_PROCESS * processes;
        self.limit.saturating_sub(supervision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_supervision_leaves() {
        let descriptors = Descriptors { limit: 256, open: 3, threads: 4 };
        assert_eq!(descriptors.left_for_clients(5), 256 - 3 - 48 - 16 - 8 - 20);
        assert_eq!(descriptors.left_for_clients(1000), 0);
        let unlimited = Descriptors { limit: usize::MAX, ..descriptors };
        assert_eq!(unlimited.left_for_clients(5), usize::MAX - 95);
    }
}
