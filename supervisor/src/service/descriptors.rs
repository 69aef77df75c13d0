//! Shares out file descriptors before they run out: supervision gets its part first, and clients get the rest.
//!
//! ```text
//!   the limit of this process (the soft limit is raised to the hard limit)
//!     - descriptors open at the start, and OWN: the event loop, the socket, the log, threads, files read briefly
//!     - PER_PROCESS for each process that there may be, and LAUNCH for processes that are being started
//!     - connections of fronts with places of their own, such as HTTP: as many as configured, and at most half of the rest
//!     - files that clients send as inputs: what all connections leave, or one part in FILES_PART if they leave less
//!     = what is left for connections: those of clients, and those that are reserved for control verbs
//! ```
//!
//! A supervisor that no client could connect to refuses to start.

use crate::limits::{CONNECTIONS_MAX, CONTROL_CONNECTIONS, FILES_ON_THE_WAY};
use offload_core::limits::FILES_OPEN;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for this process itself. About 20 are open all the time.
const OWN: usize = 48;

/// The number that is assumed to be open at the start if it cannot be determined: the three standard descriptors.
const OPEN_USUALLY: usize = 3;

/// Descriptors for one worker: socket, pidfd, standard output, standard error, and both ends of its tray.
const PER_PROCESS: usize = 6;

/// Descriptors for starting a process: both ends of its socket and its pipes, and those by which a failure is
/// reported.
const LAUNCH: usize = 16;

/// Descriptors for the task of one thread of the I/O pool.
const PER_THREAD: usize = 2;

/// Of the descriptors that supervision leaves, one part in this many is for files, however few there are. Clients come first:
/// the bytes of a file can be sent as well.
const FILES_PART: usize = 16;

/// How many descriptors this process has and needs. See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptors {
    limit: usize,
    open: usize,
    threads: usize,
    /// For files of clients.
    files: usize,
    /// For connections of fronts that do not share the places of the local socket.
    others: usize,
}

impl Descriptors {
    /// Raises the limit as far as this process may. Workers lower their own. There may be this many worker processes at
    /// first.
    pub(super) fn raise(threads: usize, processes: usize, others: usize) -> Descriptors {
        let before = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: before.maximum, maximum: before.maximum };
        // If the kernel refuses, the old limit stays.
        let _ = setrlimit(Resource::Nofile, raised);
        let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
        let open = std::fs::read_dir("/proc/self/fd").map_or(OPEN_USUALLY, Iterator::count);
        let limit = limit.unwrap_or(usize::MAX);
        let descriptors = Descriptors { limit, open, threads, files: 0, others: 0 };
        descriptors.with_others(processes, others).with_files(processes)
    }

    fn with_files(self, processes: usize) -> Descriptors {
        let left = self.limit.saturating_sub(self.for_supervision(processes));
        let beside_connections = left.saturating_sub(CONNECTIONS_MAX + CONTROL_CONNECTIONS);
        let files = beside_connections.max(left / FILES_PART).min(FILES_OPEN + FILES_ON_THE_WAY);
        Descriptors { files, ..self }
    }

    /// Sets as many aside as were asked for, and at most half of what supervision leaves.
    fn with_others(self, processes: usize, asked: usize) -> Descriptors {
        let left = self.limit.saturating_sub(self.for_supervision(processes));
        Descriptors { others: asked.min(left / 2), ..self }
    }

    /// How many connections fronts may have beside those of the local socket.
    pub(super) fn others(self) -> usize {
        self.others
    }

    /// How many files of clients may be open, in all.
    pub(super) fn files(self) -> usize {
        self.files
    }

    /// How many of them may be those of jobs.
    pub(super) fn files_of_jobs(self) -> usize {
        self.files - FILES_ON_THE_WAY.min(self.files / 2)
    }

    /// How many connections there may be beside this many worker processes.
    pub(super) fn connections_beside(self, processes: usize) -> Connections {
        Connections::share(self.limit.saturating_sub(self.for_supervision(processes) + self.files))
    }

    /// Checks that there is room for one client and one control connection.
    ///
    /// # Errors
    /// A sentence that states the limit that is needed.
    pub(super) fn check(self, processes: usize) -> Result<(), String> {
        if self.connections_beside(processes).are_enough() {
            return Ok(());
        }
        let least = self.for_supervision(processes) + CONNECTIONS_MIN;
        let good = self.for_supervision(processes) + CONTROL_CONNECTIONS + CONNECTIONS_MAX;
        Err(format!(
            "the limit of open files is {} and leaves no room for a client: {least} are needed for up to {processes} worker \
             processes and one client, {good} for {CONNECTIONS_MAX} clients; raise the hard limit (ulimit -n {good}) or start \
             fewer workers (--workers)",
            self.limit
        ))
    }

    fn for_supervision(self, processes: usize) -> usize {
        self.open + OWN + LAUNCH + PER_THREAD * self.threads + PER_PROCESS * processes + self.others
    }
}

/// One client, and one control connection.
const CONNECTIONS_MIN: usize = 2;

/// How many connections the descriptors allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Connections of ordinary clients.
    pub clients: usize,
    /// Connections beyond these, for requests that look after the supervisor, such as a drain.
    pub control: usize,
}

impl Connections {
    /// Divides the descriptors for connections. If there are few, each side gets half.
    fn share(descriptors: usize) -> Connections {
        let control = CONTROL_CONNECTIONS.min(descriptors / 2);
        Connections { clients: CONNECTIONS_MAX.min(descriptors - control), control }
    }

    fn are_enough(self) -> bool {
        self.clients > 0 && self.control > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTORS: Descriptors = Descriptors { limit: 256, open: 3, threads: 4, files: 0, others: 0 };
    const SUPERVISION: usize = 3 + OWN + LAUNCH + 8 + 30;

    fn with_limit(limit: usize) -> Descriptors {
        Descriptors { limit, ..DESCRIPTORS }
    }

    #[test]
    fn clients_get_what_supervision_leaves() {
        let connections = |limit: usize| with_limit(limit).connections_beside(5);
        let control = CONTROL_CONNECTIONS;
        assert_eq!(connections(256), Connections { clients: 256 - SUPERVISION - control, control });
        assert_eq!(connections(usize::MAX), Connections { clients: CONNECTIONS_MAX, control });
        assert_eq!(connections(SUPERVISION + 5), Connections { clients: 3, control: 2 });
        assert_eq!(connections(0), Connections { clients: 0, control: 0 });
    }

    #[test]
    fn files_get_what_connections_leave_and_always_a_few() {
        let shares = |left: usize| {
            let descriptors = with_limit(SUPERVISION + left).with_files(5);
            let Connections { clients, control } = descriptors.connections_beside(5);
            (descriptors.files(), descriptors.files_of_jobs(), clients, control)
        };
        assert_eq!(shares(2), (0, 0, 1, 1));
        assert_eq!(shares(40), (2, 1, 22, 16));
        assert_eq!(shares(400), (25, 13, 359, 16));
        assert_eq!(shares(1140), (100, 84, CONNECTIONS_MAX, 16));
        assert_eq!(
            shares(9000),
            (FILES_OPEN + FILES_ON_THE_WAY, FILES_OPEN, CONNECTIONS_MAX, CONTROL_CONNECTIONS)
        );
    }

    #[test]
    fn other_fronts_get_what_they_ask_for_but_at_most_half() {
        let shares = |left: usize, asked: usize| {
            let descriptors = with_limit(SUPERVISION + left).with_others(5, asked);
            (descriptors.others(), descriptors.connections_beside(5).clients)
        };
        assert_eq!(shares(2000, 100), (100, CONNECTIONS_MAX));
        assert_eq!(shares(200, 100), (100, 100 - CONTROL_CONNECTIONS));
        assert_eq!(shares(100, 100), (50, 50 - CONTROL_CONNECTIONS));
    }

    #[test]
    fn without_room_for_one_client_and_one_controller_the_limit_that_is_needed_is_named() {
        for limit in 0..SUPERVISION + CONNECTIONS_MIN {
            let why = with_limit(limit).check(5).unwrap_err();
            let needed =
                format!("is {limit} and leaves no room for a client: {} are needed", SUPERVISION + 2);
            assert!(why.contains(&needed) && why.contains("ulimit -n"), "{why}");
        }
        for limit in [SUPERVISION + CONNECTIONS_MIN, 1024, usize::MAX] {
            assert_eq!(with_limit(limit).check(5), Ok(()));
        }
    }
}
