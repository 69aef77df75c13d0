//! What a supervisor needs before its service starts: room for descriptors, a log, and a generation, the name by which
//! the next supervisor finds processes that outlive this one.
//!
//! ```text
//!   prepare ---> the front takes its place ---> take_over ---> Service::start_with
//!                (a socket with its lock)       processes that earlier supervisors of the place left are killed
//! ```

use super::descriptors::Descriptors;
use super::{ServiceConfig, ServiceStartError};
use crate::log::Log;
use crate::workers::orphans::{self, Killed};
use std::io;
use std::rc::Rc;

/// What a service needs that exists before it starts. See the module's documentation.
pub struct Prerequisites {
    pub(super) config: ServiceConfig,
    pub(super) descriptors: Descriptors,
    /// None if the kernel provides no random numbers: then left-over processes cannot be recognized.
    pub(super) generation: Option<String>,
    pub(super) log: Rc<Log>,
}

/// Where the generations of a place are written down, such as the lock file of a socket. It outlives the supervisor.
pub trait Generations {
    /// The generations that are written down: of supervisors that may have left processes behind.
    fn written(&self) -> Vec<String>;

    /// Writes down these generations instead.
    ///
    /// # Errors
    /// If they cannot be written. The next supervisor may not find what outlives this one.
    fn write(&mut self, generations: Vec<String>) -> io::Result<()>;
}

impl Prerequisites {
    /// Raises the limit of open files as far as this process may, and opens the log. No worker is started.
    ///
    /// # Errors
    /// [`ServiceStartError::Descriptors`], and [`ServiceStartError::Pool`] if this process is a worker itself.
    pub fn prepare(mut config: ServiceConfig) -> Result<Prerequisites, ServiceStartError> {
        config.pool.check_process()?;
        let processes = config.pool.core().processes_max();
        let descriptors = Descriptors::raise(config.io_threads, processes, config.other_connections);
        descriptors.check(processes).map_err(ServiceStartError::Descriptors)?;
        let max_files = &mut config.pool.core.max_files;
        *max_files = (*max_files).min(descriptors.files_of_jobs());
        let log = Rc::new(Log::new(config.pool.log, config.pool.log_format));
        Ok(Prerequisites { config, descriptors, generation: orphans::new_generation(), log })
    }

    /// Kills the processes that earlier supervisors of this place left behind. Before that, the old generations and the
    /// new one are written down, and an old one is removed only when none of its processes is left. So if this start
    /// fails, the next supervisor still knows all of them.
    ///
    /// Only whoever owns the place may call this: the processes of a living supervisor would be killed as well. It looks
    /// at every process of the system and waits for those that it kills, at most 4 seconds for each generation.
    pub fn take_over(&self, place: &mut impl Generations) {
        let Some(generation) = &self.generation else { return };
        let before = place.written();
        self.write(place, before.iter().chain([generation]).cloned().collect());
        let mut killed = 0;
        let mut left: Vec<String> = Vec::new();
        for previous in before {
            let Killed { count, is_all } = orphans::kill_generation(&previous);
            killed += count;
            left.extend((!is_all).then_some(previous));
        }
        if killed > 0 {
            let processes = if killed == 1 { "process" } else { "processes" };
            self.log
                .warn(format_args!("ended {killed} {processes} that a killed supervisor had left behind"));
        }
        left.push(generation.clone());
        self.write(place, left);
    }

    fn write(&self, place: &mut impl Generations, generations: Vec<String>) {
        if let Err(error) = place.write(generations) {
            self.log
                .warn(format_args!("what outlives this process if it is killed will not be found: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::PoolConfig;
    use crate::workers::Program;

    /// A place that remembers everything that was written.
    #[derive(Default)]
    struct Notebook(Vec<Vec<String>>);

    impl Generations for Notebook {
        fn written(&self) -> Vec<String> {
            self.0.last().cloned().unwrap_or_default()
        }

        fn write(&mut self, generations: Vec<String>) -> io::Result<()> {
            self.0.push(generations);
            Ok(())
        }
    }

    fn prerequisites() -> Prerequisites {
        let mut pool = PoolConfig::with(Program::command(vec!["nothing".to_owned()]));
        pool.core.workers = 1;
        Prerequisites::prepare(ServiceConfig { io_threads: 1, ..ServiceConfig::with(pool) }).unwrap()
    }

    #[test]
    fn while_it_takes_over_old_generations_stay_written_and_afterwards_only_its_own() {
        let mut place = Notebook(vec![vec!["no generation".to_owned()]]);
        let prerequisites = prerequisites();
        let own = prerequisites.generation.clone().unwrap();
        prerequisites.take_over(&mut place);
        assert_eq!(place.0[1..], [vec!["no generation".to_owned(), own.clone()], vec![own]]);
    }
}
