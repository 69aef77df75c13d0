//! Answers in parts, right and wrong ones. The parts of a job are the letters of `PART`, again and again.

use crate::Then;
use crate::fault::Fault;
use crate::wire::{self, Job, Wire};
use offload_protocol::limits::{PART_MAX, PARTS_CREDIT};

/// One part.
pub(crate) const PART: [u8; 1000] = [b'p'; 1000];

/// Sends parts as ordered; None if the act is another. `parts=N` sends N parts and goes on; `parts-ACT=N` sends N parts, and ACT
/// is done next.
pub(crate) fn send(wire: &mut Wire, fault: &Fault, job: &Job) -> Option<Then> {
    let count = fault.number.unwrap_or(3);
    match fault.act.as_str() {
        "parts" => send_some(job, count),
        "endless" => send_for_ever(wire, job),
        "dust" => send_dust(wire, job, fault.number.unwrap_or(1 << 20)),
        "overdrawn" => overdraw(job),
        act if act.starts_with("parts-") => send_some(job, count),
        _ => return None,
    }
    Some(Then::GoOn)
}

fn send_some(job: &Job, count: usize) {
    (0..count).for_each(|_| wire::send(&wire::part(job.id, job.attempt, &PART)));
}

/// As long as there is credit, and somebody who gives more.
fn send_for_ever(wire: &mut Wire, job: &Job) {
    let longest = [b'p'; PART_MAX];
    let mut credit = PARTS_CREDIT;
    loop {
        while credit >= PART_MAX as u64 {
            wire::send(&wire::part(job.id, job.attempt, &longest));
            credit -= PART_MAX as u64;
        }
        match wire.wait_for_credit() {
            0 => return,
            more => credit += more,
        }
    }
}

/// Sends `count` parts of one byte each, as fast as they are taken, within the credit. Many frames are written at once.
fn send_dust(wire: &mut Wire, job: &Job, count: usize) {
    const AT_ONCE: usize = 1 << 12;
    let part = wire::part(job.id, job.attempt, b"p");
    let (mut credit, mut left) = (PARTS_CREDIT as usize, count);
    while left > 0 {
        if credit == 0 {
            match wire.wait_for_credit() {
                0 => return,
                more => credit += more as usize,
            }
        }
        let parts = left.min(credit).min(AT_ONCE);
        wire::send(&part.repeat(parts));
        (credit, left) = (credit - parts, left - parts);
    }
}

/// Whether there is credit or not. Whoever reads nothing lets this process run into its limit; and then it is killed.
fn overdraw(job: &Job) {
    let longest = [b'p'; PART_MAX];
    loop {
        wire::send(&wire::part(job.id, job.attempt, &longest));
    }
}
