//! Bytes that no worker should send, by the name of the wrong that they are.

use super::wire::{self, Job};
use offload_protocol::limits::{HEADER_MAX, PART_MAX, PAYLOAD_MAX_VARIABLE, TASKS_OFFERED_MAX};
use offload_protocol::messages::{FromWorker, VERSION_MAJOR, VERSION_MINOR, WORKER_MAGIC};
use offload_protocol::nouns::{FailureKind, MediaType, Usage};

/// Another job than any that was given.
const NOBODYS: u64 = 1 << 40;

/// The bytes of this wrong about this job, if it is one of bytes.
pub(crate) fn bytes(act: &str, number: Option<usize>, job: &Job) -> Option<Vec<u8>> {
    nonsense(act, number).or_else(|| lies(act, job))
}

/// What is no message at all.
fn nonsense(act: &str, number: Option<usize>) -> Option<Vec<u8>> {
    Some(match act {
        "garbage" => scramble(number.unwrap_or(1)),
        "http" => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        "hugelen" | "hugelength" => b"\x04\0\0\0\xff\xff\xff\xff".to_vec(),
        "hugeheader" => b"\xff\xff\xff\xff\0\0\0\0".to_vec(),
        "longheader" => prefix(HEADER_MAX as u32 + 1, 0),
        "noheader" => prefix(0, 0),
        "oversize" => prefix(52, payload_max().saturating_add(1)),
        "unknown" => headed(b"\x63\0\0\0"),
        "cut" => headed(b"\x04\0\0\0\x01"),
        "badkind" => headed(&[5u32.to_le_bytes().as_slice(), &[0; 20], &[9, 0, 0, 0], &[0; 32]].concat()),
        "badcontent" => {
            headed(&[4u32.to_le_bytes().as_slice(), &[0; 20], &3u64.to_le_bytes(), b"png", &[0; 24]].concat())
        }
        "badtext" => headed(
            &[5u32.to_le_bytes().as_slice(), &[0; 24], &2u64.to_le_bytes(), b"\xff\xfe", &[0; 24]].concat(),
        ),
        "longtext" => {
            headed(&[5u32.to_le_bytes().as_slice(), &[0; 24], &u64::MAX.to_le_bytes(), &[0; 24]].concat())
        }
        _ => return None,
    })
}

/// What is a message, at the wrong time or about the wrong thing.
fn lies(act: &str, job: &Job) -> Option<Vec<u8>> {
    let Job { id, attempt, .. } = *job;
    let finished = |id, attempt| wire::finished(id, attempt, MediaType::JSON, b"\"stolen\"");
    Some(match act {
        "wrongid" | "wrongjob" => finished(id.wrapping_add(NOBODYS), attempt),
        "wrongattempt" => finished(id, attempt + 1),
        "double" | "finished" => wire::finished(id, attempt, MediaType::JSON, attempt.to_string().as_bytes()),
        "partother" => wire::part(id.wrapping_add(NOBODYS), attempt, b"stolen"),
        "partattempt" => wire::part(id, attempt + 1, b"part"),
        "partempty" => wire::part(id, attempt, b""),
        "partlong" => wire::part(id, attempt, &[b'p'; PART_MAX + 1]),
        "partbefore" => wire::part(id, attempt, b"part"),
        "partafter" => {
            let answer = wire::finished(id, attempt, MediaType::JSON, attempt.to_string().as_bytes());
            [answer, wire::part(id, attempt, b"part")].concat()
        }
        "failed" => wire::failed(job, FailureKind::AppError, "never started"),
        "started" => wire::started(id, attempt),
        "startedother" => wire::started(id.wrapping_add(NOBODYS), 1),
        "startedattempt" => wire::started(id, attempt + 1),
        "skipped" => wire::frame(&FromWorker::Skipped { job: id }, b""),
        "skippedother" => wire::frame(&FromWorker::Skipped { job: id.wrapping_add(NOBODYS) }, b""),
        "secondhello" => wire::frame(&wire::HELLO, b""),
        "payload" => wire::frame(&FromWorker::Skipped { job: id }, b"a payload where none belongs"),
        "yielded" => {
            let yielded = FromWorker::Yielded { job: id, attempt, run_ns: 1, usage: Usage::default() };
            wire::frame(&yielded, b"state")
        }
        "outputin" => wire::frame(&FromWorker::OutputIn { job: id, segment: 1, offset: 0, length: 1 }, b""),
        "segmentready" => wire::frame(&FromWorker::SegmentReady { segment: 1 }, b""),
        "segmentleft" => wire::frame(&FromWorker::SegmentLeft { segment: 1 }, b""),
        "trailing" => {
            let mut bytes = wire::started(id, attempt);
            bytes[0] += 1; // the header's length
            bytes.push(0);
            bytes
        }
        _ => return None,
    })
}

/// An introduction that is none, if this act is one.
pub(crate) fn hello(act: &str) -> Option<Vec<u8>> {
    let (magic, major, minor) = (WORKER_MAGIC, VERSION_MAJOR, VERSION_MINOR);
    let (capabilities, sdk) = (0, "");
    Some(match act {
        "badmagic" => {
            let magic = *b"OFFLOADC";
            wire::frame(&FromWorker::Hello { magic, major, minor, capabilities, sdk }, b"")
        }
        "badversion" => wire::frame(&FromWorker::Hello { magic, major: 9, minor, capabilities, sdk }, b""),
        // A hello of version 2.1, which had its offers in the hello: none.
        "oldversion" => headed(b"\0\0\0\0OFFLOADW\x02\0\x01\0\0\0\0\0\0\0\0\0"),
        "badname" => wire::introduction(&[("not a name", false)], 0),
        "manytasks" => {
            let names: Vec<String> = (0..=TASKS_OFFERED_MAX).map(|number| format!("t{number}")).collect();
            let tasks: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), false)).collect();
            wire::introduction(&tasks, 0)
        }
        "readyonly" => wire::frame(&FromWorker::Ready, b""),
        _ => return None,
    })
}

fn prefix(header: u32, payload: u32) -> Vec<u8> {
    [header.to_le_bytes(), payload.to_le_bytes()].concat()
}

fn headed(header: &[u8]) -> Vec<u8> {
    let mut bytes = prefix(u32::try_from(header.len()).expect("short"), 0);
    bytes.extend_from_slice(header);
    bytes
}

/// Bytes that depend on nothing but the seed; the first four make a length that no header has.
fn scramble(seed: usize) -> Vec<u8> {
    let mut state = seed as u64 | 1;
    let mut bytes = vec![0xff; 4];
    bytes.extend((0..60).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    }));
    bytes
}

fn payload_max() -> u32 {
    let told = std::env::var(PAYLOAD_MAX_VARIABLE).ok();
    told.and_then(|bytes| bytes.parse().ok()).unwrap_or(u32::MAX - 1)
}
