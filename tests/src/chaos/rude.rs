//! A client that behaves badly in ways that are nobody's job: it says half of what it has to say, or nothing, stops
//! sending, or hangs up in the middle.

use super::crowd::wait;
use super::seed::Seed;
use crate::raw_client::RawClient;
use bytes::Bytes;
use offload_protocol::messages::{SubmitOptions, ToSupervisor, View};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a connection is kept at most.
const KEPT: Duration = Duration::from_millis(500);
/// Questions that are asked at once and whose answers nobody reads.
const QUESTIONS: u64 = 64;
/// A payload of which only the first bytes are sent.
const BODY: usize = 4 << 20;

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct RudeDeeds {
    /// Connections that said nothing.
    pub silent: u64,
    /// Connections that sent a part of a message.
    pub half: u64,
    /// Connections that sent no more after their jobs.
    pub half_closed: u64,
    /// Connections that were closed with jobs under way.
    pub gone: u64,
    /// Connections that asked much and read nothing.
    pub curious: u64,
}

impl RudeDeeds {
    /// Both together.
    #[must_use]
    pub fn and(self, other: RudeDeeds) -> RudeDeeds {
        RudeDeeds {
            silent: self.silent + other.silent,
            half: self.half + other.half,
            half_closed: self.half_closed + other.half_closed,
            gone: self.gone + other.gone,
            curious: self.curious + other.curious,
        }
    }
}

/// Goes on until it is over.
pub fn behave(socket: &Path, number: u64, seed: u64, is_over: &AtomicBool) -> RudeDeeds {
    let mut seed = Seed::new(seed ^ number);
    let mut deeds = RudeDeeds::default();
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut client) = RawClient::connect(socket) else {
            wait(KEPT, is_over);
            continue;
        };
        let kept = KEPT.mul_f64(seed.below(1000) as f64 / 1000.0);
        match seed.below(5) {
            0 => deeds.silent += 1,
            1 => {
                deeds.half += 1;
                say_half(&mut client, seed.below(BODY));
            }
            2 => {
                deeds.half_closed += 1;
                submit(&mut client, &mut seed);
                let _ = client.half_close();
            }
            3 => {
                deeds.gone += 1;
                submit(&mut client, &mut seed);
            }
            _ => {
                deeds.curious += 1;
                ask(&mut client, &mut seed);
            }
        }
        wait(kept, is_over);
        // What has come until then is looked at, or not.
        if seed.below(2) == 0 {
            let _ = client.read(Instant::now());
        }
    }
    deeds
}

fn say_half(client: &mut RawClient, most: usize) {
    client.greet("half");
    client.submit(1, "echo", &Bytes::from(vec![1; BODY]), SubmitOptions::default());
    let _ = client.write(most);
}

fn submit(client: &mut RawClient, seed: &mut Seed) {
    client.greet("rude");
    for ticket in 0..seed.below(40) as u64 {
        client.submit(ticket, "average", &Bytes::from_static(b"100000"), SubmitOptions::default());
    }
    let _ = client.write(usize::MAX);
}

fn ask(client: &mut RawClient, seed: &mut Seed) {
    client.greet("curious");
    let view = [View::Jobs, View::Dead, View::Status, View::Workers][seed.below(4)];
    (0..QUESTIONS).for_each(|ticket| client.queue(&ToSupervisor::Show { ticket, view }, &Bytes::new()));
    let _ = client.write(usize::MAX);
}
