//! A client that asks for much and reads little of it.

use super::crowd::wait;
use super::seed::Seed;
use crate::raw_client::{Heard, RawClient, Said};
use bytes::Bytes;
use offload_protocol::messages::SubmitOptions;
use offload_protocol::nouns::OutcomeCode;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What each job gives back.
const OUTPUT: usize = 1 << 20;
/// Jobs that are submitted at once.
const JOBS: u64 = 32;
/// From one read, of at most 64 KiB, to the next.
const DRIP: Duration = Duration::from_millis(300);

/// What slow readers met.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlowReading {
    /// Jobs submitted.
    pub jobs: u64,
    /// Outputs that came.
    pub outputs: u64,
    /// Outputs that were not what they had to be.
    pub wrong: u64,
    /// Jobs that were refused.
    pub refused: u64,
    /// Connections that the supervisor closed with a reason.
    pub goodbyes: u64,
    /// Connections that it closed without one that arrived: what is not read cannot be understood.
    pub closed: u64,
}

impl SlowReading {
    /// Both together.
    #[must_use]
    pub fn and(self, other: SlowReading) -> SlowReading {
        SlowReading {
            jobs: self.jobs + other.jobs,
            outputs: self.outputs + other.outputs,
            wrong: self.wrong + other.wrong,
            refused: self.refused + other.refused,
            goodbyes: self.goodbyes + other.goodbyes,
            closed: self.closed + other.closed,
        }
    }
}

/// Connects again and again until it is over. Every other connection reads nothing at all.
pub fn read(socket: &Path, number: u64, seed: u64, is_over: &AtomicBool) -> SlowReading {
    let mut seed = Seed::new(seed ^ number);
    let mut reading = SlowReading::default();
    while !is_over.load(Ordering::Relaxed) {
        let Ok(client) = RawClient::connect(socket) else {
            wait(DRIP, is_over);
            continue;
        };
        let reads = seed.below(2) == 0;
        one_connection(client, &format!("slow {number}"), reads, is_over, &mut reading);
    }
    reading
}

fn one_connection(
    mut client: RawClient,
    name: &str,
    reads: bool,
    is_over: &AtomicBool,
    reading: &mut SlowReading,
) {
    client.greet(name);
    let input = Bytes::from(vec![0x5a; OUTPUT]);
    (0..JOBS).for_each(|ticket| client.submit(ticket, "echo", &input, SubmitOptions::default()));
    reading.jobs += JOBS;
    while !is_over.load(Ordering::Relaxed) {
        if client.write(usize::MAX).is_err() {
            reading.closed += 1;
            return;
        }
        wait(DRIP, is_over);
        if !reads {
            continue;
        }
        match client.read(Instant::now()) {
            Heard::Closed => {
                reading.closed += 1;
                return;
            }
            Heard::Nothing => {}
            Heard::Messages(messages) => {
                for said in messages {
                    note(said, reading);
                }
            }
        }
    }
}

fn note(said: Said, reading: &mut SlowReading) {
    match said {
        Said::Finished { report, output, .. } => {
            reading.outputs += 1;
            let is_right = report.outcome == OutcomeCode::Ok && output.len() == OUTPUT;
            reading.wrong += u64::from(!is_right);
        }
        Said::Rejected { .. } => reading.refused += 1,
        Said::Goodbye(_) => reading.goodbyes += 1,
        Said::Accepted { .. } | Said::Other => {}
    }
}
