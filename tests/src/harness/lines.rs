//! What a process prints, line by line, for whoever waits for one of them.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Lines as they come, on a thread of their own.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<(Mutex<Vec<String>>, Condvar)>);

impl Lines {
    /// Those of this source, from now on.
    pub fn collect(source: impl Read + Send + 'static) -> Lines {
        let lines = Lines::default();
        let shared = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                shared.0.0.lock().expect("no panic under this lock").push(line);
                shared.0.1.notify_all();
            }
        });
        lines
    }

    /// All lines so far.
    pub fn all(&self) -> Vec<String> {
        self.0.0.lock().expect("no panic under this lock").clone()
    }

    /// The first line of which this is true; none if it does not come in time.
    pub fn find(&self, mut is_it: impl FnMut(&str) -> bool, limit: Duration) -> Option<String> {
        let deadline = Instant::now() + limit;
        let mut lines = self.0.0.lock().expect("no panic under this lock");
        loop {
            if let Some(line) = lines.iter().find(|line| is_it(line)) {
                return Some(line.clone());
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            lines = self.0.1.wait_timeout(lines, left).expect("no panic under this lock").0;
        }
    }
}
