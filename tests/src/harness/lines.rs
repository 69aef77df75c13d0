//! What a process prints, line by line, for whoever waits for one of them.

use super::PATIENCE;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Lines as they come, on a thread of their own.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<(Mutex<Came>, Condvar)>);

#[derive(Debug, Default)]
struct Came {
    lines: Vec<String>,
    is_whole: bool,
}

impl Lines {
    /// Those of this source, from now on.
    pub fn collect(source: impl Read + Send + 'static) -> Lines {
        let lines = Lines::default();
        let shared = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                shared.change(|came| came.lines.push(line));
            }
            shared.change(|came| came.is_whole = true);
        });
        lines
    }

    fn came(&self) -> MutexGuard<'_, Came> {
        self.0.0.lock().expect("no panic under this lock")
    }

    fn change(&self, change: impl FnOnce(&mut Came)) {
        change(&mut self.came());
        self.0.1.notify_all();
    }

    /// All lines so far. What a process has printed may come a little after its end: see [`Lines::whole`].
    pub fn all(&self) -> Vec<String> {
        self.came().lines.clone()
    }

    /// All lines, once nobody can write another.
    ///
    /// # Panics
    /// If somebody still can after a long time.
    #[track_caller]
    pub fn whole(&self) -> Vec<String> {
        let whole = self.wait(PATIENCE, |came| came.is_whole.then(|| came.lines.clone()));
        whole.unwrap_or_else(|| panic!("it has not ended: {:#?}", self.all()))
    }

    /// The first line of which this is true; none if it does not come in time.
    pub fn find(&self, mut is_it: impl FnMut(&str) -> bool, limit: Duration) -> Option<String> {
        self.wait(limit, |came| came.lines.iter().find(|line| is_it(line)).cloned())
    }

    fn wait<T>(&self, limit: Duration, mut look: impl FnMut(&Came) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut came = self.came();
        loop {
            if let Some(found) = look(&came) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            came = self.0.1.wait_timeout(came, left).expect("no panic under this lock").0;
        }
    }
}
