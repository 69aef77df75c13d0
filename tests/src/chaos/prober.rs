//! Asks the supervisor something tiny at fixed moments, on a connection of its own, whatever became of the questions
//! before. How late an answer is, counted from the moment at which its question was due, is how long the loop was
//! kept from it, and this process too.

use bytes::Bytes;
use offload_protocol::messages::ToSupervisor;
use offload_supervisor::client::Client;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an answer may take before the prober gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// One answer.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When the question was due.
    pub due: Instant,
    /// From then to the answer.
    pub took: Duration,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Prober {
    samples: Arc<Mutex<Vec<Sample>>>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
}

impl Prober {
    /// Connects, and asks every `period` from then on.
    ///
    /// # Panics
    /// If the supervisor does not let it in.
    pub fn start(socket: &Path, period: Duration) -> Prober {
        let samples = Arc::default();
        let is_over = Arc::default();
        let client = Client::connect(socket, "prober").expect("the supervisor listens");
        let mut asking = Asking {
            client,
            asked: VecDeque::new(),
            samples: Arc::clone(&samples),
            is_over: Arc::clone(&is_over),
        };
        let thread = std::thread::spawn(move || asking.run(period).map_err(|error| error.to_string()));
        Prober { samples, is_over, thread }
    }

    /// The answers to questions that were due since then.
    pub fn since(&self, moment: Instant) -> Vec<Duration> {
        let samples = self.samples.lock().expect("no panic under this lock");
        let start = samples.partition_point(|sample| sample.due < moment);
        samples[start..].iter().map(|sample| sample.took).collect()
    }

    /// Waits for the answers that are due and returns all there were.
    ///
    /// # Errors
    /// That the supervisor went away, or did not answer.
    pub fn finish(self) -> Result<Vec<Sample>, String> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the prober panicked".to_owned())??;
        Ok(std::mem::take(&mut self.samples.lock().expect("no panic under this lock")))
    }
}

struct Asking {
    client: Client,
    /// When those were due that are not answered.
    asked: VecDeque<Instant>,
    samples: Arc<Mutex<Vec<Sample>>>,
    is_over: Arc<AtomicBool>,
}

impl Asking {
    fn run(&mut self, period: Duration) -> Result<(), Box<dyn std::error::Error>> {
        let mut due = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            self.client.queue(&ToSupervisor::Result { ticket: 0, job: "none" }, &Bytes::new())?;
            self.asked.push_back(due);
            due += period;
            self.listen_until(due)?;
        }
        let deadline = Instant::now() + PATIENCE;
        while !self.asked.is_empty() {
            let (_, _) = self.client.receive_until(deadline)?.ok_or("the supervisor does not answer")?;
            self.note();
        }
        Ok(())
    }

    fn listen_until(&mut self, moment: Instant) -> Result<(), Box<dyn std::error::Error>> {
        while let Some(_answer) = self.client.receive_until(moment)? {
            self.note();
        }
        Ok(())
    }

    /// Answers come in the order of the questions.
    fn note(&mut self) {
        let Some(due) = self.asked.pop_front() else { return };
        let took = due.elapsed();
        self.samples.lock().expect("no panic under this lock").push(Sample { due, took });
    }
}

/// The value below which this share of the durations is; zero if there are none.
pub fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
