//! What a worker is asked: what the supervisor does to workers, and what happens to it when it runs.

use super::candidate::{Candidate, PAYLOAD_MAX, Subject};
use super::offered::Offered;
use super::said::Said;
use bytes::Bytes;
use offload_protocol::limits::{PART_MAX, PARTS_CREDIT};
use offload_protocol::messages::{BATCHES, PARTS, ToWorker};
use offload_protocol::nouns::{MediaType, Metadata};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How a question was answered, if it was not answered wrongly.
#[derive(Debug)]
pub(super) enum Kept {
    Yes,
    /// It could not be asked, and why.
    NotAsked(&'static str),
}

/// Why the order of several jobs is not asked for.
const INTERRUPTED: Kept = Kept::NotAsked("a stepped task may be interrupted by the next job");

/// The errors of `ask` are sentences about the worker.
pub(super) struct Question {
    pub(super) name: &'static str,
    pub(super) ask: fn(&Subject, &Offered) -> Result<Kept, String>,
}

/// In the order in which they are asked.
pub(super) const QUESTIONS: [Question; 22] = [
    Question { name: "it answers an example of each task", ask: examples },
    Question { name: "it repeats the number of the attempt", ask: attempts },
    Question { name: "it runs several jobs that come at once, in their order", ask: in_order },
    Question { name: "it takes an empty input", ask: empty },
    Question { name: "it takes the longest input", ask: longest },
    Question { name: "it takes any media type, metadata and time limits", ask: described },
    Question { name: "it takes a message that comes a byte at a time", ask: in_bytes },
    Question { name: "it goes on when its answers are not read for a while", ask: slow_reader },
    Question { name: "it skips, or runs, a job that was cancelled before its turn", ask: cancelled_before },
    Question { name: "it answers once a job that is cancelled while it runs", ask: cancelled_while },
    Question { name: "it ignores a Cancel that comes too late", ask: cancelled_after },
    Question { name: "it exits with 0 on Drain", ask: drain_idle },
    Question { name: "it finishes what it was given before it exits on Drain", ask: drain_busy },
    Question { name: "it exits when the supervisor is gone", ask: gone_idle },
    Question { name: "it exits when the supervisor is gone while a job runs", ask: gone_busy },
    Question { name: "nothing that it started keeps its socket when it is killed", ask: killed },
    Question { name: "several of them run side by side", ask: side_by_side },
    Question { name: "it reports its progress as often as it promised", ask: progress },
    Question { name: "it goes on from what it gave back", ask: yielded },
    Question { name: "it sends no more parts than it has credit for", ask: credit },
    Question { name: "it answers each job of a batch once", ask: batch },
    Question { name: "it does without capabilities", ask: without_capabilities },
];

/// How long the jobs of [`slow_reader`] take at most, if each takes as long as the first.
const SLOW_READER_TIME: Duration = Duration::from_secs(3);

/// The longest payload in MiB.
const PAYLOAD_MIB: u32 = (PAYLOAD_MAX >> 20) as u32;

fn answered(subject: &Subject, offered: &Offered, run: &ToWorker<'_>, input: &Bytes) -> Result<Kept, String> {
    let mut candidate = subject.start(PARTS)?;
    let ToWorker::Run { job, attempt, .. } = *run else { return Ok(Kept::NotAsked("no Run")) };
    candidate.send(run, input)?;
    candidate.answer(job, attempt, offered)?;
    candidate.drain()?;
    Ok(Kept::Yes)
}

fn examples(subject: &Subject, _: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(PARTS)?;
    let with_example = |offered: &&Offered| !offered.described.example.is_empty();
    let offers: Vec<Offered> = candidate.offers.iter().filter(with_example).cloned().collect();
    for (job, offered) in (1..).zip(&offers) {
        candidate.send(&Candidate::run(job, 1, offered), &offered.example())?;
        let end =
            candidate.answer(job, 1, offered).map_err(|wrong| format!("{}: {wrong}", offered.task.name))?;
        if let Some(why) = end.failed {
            return Err(format!("{} fails with its own example: {why}", offered.task.name));
        }
    }
    candidate.drain()?;
    Ok(if offers.is_empty() { Kept::NotAsked("no task has an example") } else { Kept::Yes })
}

fn attempts(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    answered(subject, offered, &Candidate::run(u64::MAX - 1, 7, offered), &offered.example())
}

fn in_order(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    if offered.task.stepped {
        return Ok(INTERRUPTED);
    }
    let mut candidate = subject.start(PARTS)?;
    for job in 1..=20 {
        candidate.add(&Candidate::run(job, 1, offered), &offered.example())?;
    }
    candidate.flush()?;
    for job in 1..=20 {
        candidate.answer(job, 1, offered)?;
    }
    candidate.drain()?;
    Ok(Kept::Yes)
}

fn empty(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    answered(subject, offered, &Candidate::run(1, 1, offered), &Bytes::new())
}

/// It may take its time for each MiB. The input is a string in JSON: some parsers, Python's for one, take no number of so many
/// digits, and that is no fault of the worker.
fn longest(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    let patience = subject.patience * PAYLOAD_MIB;
    let subject = Subject { patience, ..subject.clone() };
    let text = [b"\"", &*vec![b'7'; PAYLOAD_MAX - 2], b"\""].concat();
    answered(&subject, offered, &Candidate::run(1, 1, offered), &Bytes::from(text))
}

fn described(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    let pairs = (0..16).map(|number| (format!("{number:064}"), "\u{fc}".repeat(128)));
    let metadata = Metadata::new(&pairs.collect::<Vec<_>>()).map_err(|error| error.to_string())?;
    let media_type: MediaType =
        format!("application/x-{}", "a".repeat(113)).parse().unwrap_or(MediaType::OCTET_STREAM);
    let run = ToWorker::Run {
        job: 1,
        attempt: 1,
        task: &offered.task.name,
        media_type,
        timeout_ms: 86_400_000,
        deadline_ms: 86_400_000,
        metadata,
    };
    answered(subject, offered, &run, &offered.example())
}

fn in_bytes(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(PARTS)?;
    candidate.send_in_bytes(&Candidate::run(1, 1, offered), &offered.example())?;
    candidate.answer(1, 1, offered)?;
    candidate.drain()?;
    Ok(Kept::Yes)
}

/// Its answers fill the socket while more jobs come than it takes.
fn slow_reader(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    if offered.task.stepped {
        return Ok(INTERRUPTED);
    }
    let mut candidate = subject.start(PARTS)?;
    let begun = Instant::now();
    candidate.send(&Candidate::run(1, 1, offered), &offered.example())?;
    candidate.answer(1, 1, offered)?;
    let one = begun.elapsed().max(Duration::from_micros(10));
    let time = (subject.patience / 4).min(SLOW_READER_TIME);
    let jobs = (time.as_micros() / one.as_micros()).clamp(1, 5000) as u64;
    let mut all = Vec::new();
    for job in 2..2 + jobs {
        let example = offered.example();
        offload_protocol::codec::encode(&Candidate::run(job, 1, offered), example.len(), &mut all)
            .map_err(|error| error.to_string())?;
        all.extend_from_slice(&example);
    }
    let (mut writer, sent) = (candidate.writer()?, Arc::new(AtomicUsize::new(0)));
    let its = Arc::clone(&sent);
    let writing = thread::spawn(move || {
        all.chunks(4096).all(|chunk| {
            its.fetch_add(chunk.len(), Ordering::Relaxed);
            writer.write_all(chunk).is_ok()
        })
    });
    wait_until_nothing_moves(&sent);
    for job in 2..2 + jobs {
        candidate.answer(job, 1, offered)?;
    }
    if !writing.join().unwrap_or(false) {
        return Err("it stopped reading".to_owned());
    }
    candidate.drain()?;
    Ok(Kept::Yes)
}

fn wait_until_nothing_moves(sent: &AtomicUsize) {
    let mut before = usize::MAX;
    while before != sent.load(Ordering::Relaxed) {
        before = sent.load(Ordering::Relaxed);
        thread::sleep(Duration::from_millis(200));
    }
}

fn cancelled_before(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    if offered.task.stepped {
        return Ok(INTERRUPTED);
    }
    let mut candidate = subject.start(PARTS)?;
    candidate.add(&Candidate::run(1, 1, offered), &offered.example())?;
    candidate.add(&Candidate::run(2, 1, offered), &offered.example())?;
    candidate.add(&ToWorker::Cancel { job: 2 }, &Bytes::new())?;
    candidate.flush()?;
    candidate.answer(1, 1, offered)?;
    match candidate.hear()? {
        Said::Skipped { job: 2 } => {}
        Said::Started { job: 2, attempt: 1 } => drop(candidate.end(2, 1, offered)?),
        other => return Err(format!("to a job that was cancelled before its turn it answered {other}")),
    }
    candidate.drain()?;
    Ok(Kept::Yes)
}

fn cancelled_while(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(PARTS)?;
    candidate.send(&Candidate::run(1, 1, offered), &offered.example())?;
    candidate.started(1, 1)?;
    candidate.send(&ToWorker::Cancel { job: 1 }, &Bytes::new())?;
    candidate.end(1, 1, offered)?;
    candidate.drain()?;
    Ok(Kept::Yes)
}

fn cancelled_after(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(PARTS)?;
    candidate.send(&Candidate::run(1, 1, offered), &offered.example())?;
    candidate.answer(1, 1, offered)?;
    candidate.add(&ToWorker::Cancel { job: 1 }, &Bytes::new())?;
    candidate.add(&ToWorker::Cancel { job: 99 }, &Bytes::new())?;
    candidate.add(&ToWorker::Yield { job: 1 }, &Bytes::new())?;
    candidate.add(&Candidate::run(2, 1, offered), &offered.example())?;
    candidate.flush()?;
    candidate.answer(2, 1, offered)?;
    candidate.drain()?;
    Ok(Kept::Yes)
}

fn drain_idle(subject: &Subject, _: &Offered) -> Result<Kept, String> {
    subject.start(0)?.drain()?;
    Ok(Kept::Yes)
}

fn drain_busy(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    if offered.task.stepped {
        return Ok(INTERRUPTED);
    }
    let mut candidate = subject.start(PARTS)?;
    for job in 1..=3 {
        candidate.add(&Candidate::run(job, 1, offered), &offered.example())?;
    }
    candidate.add(&ToWorker::Drain, &Bytes::new())?;
    candidate.flush()?;
    for job in 1..=3 {
        candidate.answer(job, 1, offered)?;
    }
    candidate.ends_well()?;
    Ok(Kept::Yes)
}

fn gone_idle(subject: &Subject, _: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(0)?;
    candidate.hang_up();
    must_end(&mut candidate, subject)
}

fn gone_busy(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(PARTS)?;
    candidate.send(&Candidate::run(1, 1, offered), &offered.example())?;
    candidate.started(1, 1)?;
    candidate.hang_up();
    must_end(&mut candidate, subject)
}

fn must_end(candidate: &mut Candidate, subject: &Subject) -> Result<Kept, String> {
    match candidate.exit_within(subject.patience) {
        Some(_) => Ok(Kept::Yes),
        None => Err(format!("it went on for {:?} when its socket was closed", subject.patience)),
    }
}

fn killed(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(PARTS)?;
    candidate.send(&Candidate::run(1, 1, offered), &offered.example())?;
    candidate.started(1, 1)?;
    candidate.kill()?;
    match candidate.is_closed_within(subject.patience) {
        true => Ok(Kept::Yes),
        false => {
            Err("a process that it started holds its socket (descriptor 0), so its death is not seen"
                .to_owned())
        }
    }
}

fn side_by_side(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(subject.start(PARTS).map_err(|wrong| format!("beside others of its kind: {wrong}"))?);
    }
    for candidate in &mut all {
        candidate.send(&Candidate::run(1, 1, offered), &offered.example())?;
    }
    for candidate in &mut all {
        candidate.answer(1, 1, offered)?;
    }
    Ok(Kept::Yes)
}

fn progress(subject: &Subject, _: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(PARTS)?;
    let promising: Vec<Offered> =
        candidate.offers.iter().filter(|offered| offered.task.progress_ms > 0).cloned().collect();
    for (job, offered) in (1..).zip(&promising) {
        candidate.send(&Candidate::run(job, 1, offered), &offered.example())?;
        let most = Duration::from_millis(offered.task.progress_ms.into()) + Duration::from_secs(1);
        loop {
            let late = |wrong| format!("{} promised progress every {:?}: {wrong}", offered.task.name, most);
            match candidate.hear_until(Instant::now() + most).map_err(late)? {
                Said::Ended(_) => break,
                said if said.about() == Some((job, 1)) => {}
                other => return Err(format!("while job {job} ran it sent {other}")),
            }
        }
    }
    Ok(if promising.is_empty() { Kept::NotAsked("no task promises any") } else { Kept::Yes })
}

fn yielded(subject: &Subject, _: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(PARTS)?;
    let Some(offered) = candidate.offers.iter().find(|offered| offered.task.checkpoints).cloned() else {
        return Ok(Kept::NotAsked("no task gives checkpoints"));
    };
    candidate.add(&Candidate::run(1, 1, &offered), &offered.example())?;
    candidate.add(&ToWorker::Yield { job: 1 }, &Bytes::new())?;
    candidate.flush()?;
    let state = loop {
        match candidate.hear()? {
            Said::Yielded { job: 1, attempt: 1, state } => break state,
            Said::Ended(end) if (end.job, end.attempt) == (1, 1) => {
                return Ok(Kept::NotAsked("the job was over before it could be given back"));
            }
            said if said.about() == Some((1, 1)) => {}
            other => return Err(format!("while job 1 ran it sent {other}")),
        }
    };
    candidate.add(&ToWorker::Resume { job: 1 }, &Bytes::from(state))?;
    candidate.add(&Candidate::run(1, 2, &offered), &offered.example())?;
    candidate.flush()?;
    match candidate.answer(1, 2, &offered)?.failed {
        Some(why) => {
            Err(format!("{} fails when it goes on from its own checkpoint: {why}", offered.task.name))
        }
        None => Ok(Kept::Yes),
    }
}

/// It gets no credit until it has used up what it had, so it has to wait.
fn credit(subject: &Subject, _: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(PARTS)?;
    if candidate.capabilities & PARTS == 0 {
        return Ok(Kept::NotAsked("it has not the capability `parts`"));
    }
    let Some(offered) = candidate.offers.iter().find(|offered| offered.described.about.streams).cloned()
    else {
        return Ok(Kept::NotAsked("no task sends its output in parts"));
    };
    candidate.send(&Candidate::run(1, 1, &offered), &offered.example())?;
    let (mut credit, mut streamed) = (PARTS_CREDIT, 0);
    loop {
        // It may be waiting for credit if there is none for a whole part.
        if credit < PART_MAX as u64 && candidate.is_silent_for(Duration::from_millis(200)) {
            candidate.send(&ToWorker::Credit { job: 1, bytes: PARTS_CREDIT }, &Bytes::new())?;
            credit += PARTS_CREDIT;
        }
        match candidate.hear()? {
            Said::Ended(end) if (end.job, end.attempt) == (1, 1) => break,
            Said::Part { job: 1, attempt: 1, bytes } => {
                let what = || format!("it sent a part of {bytes} bytes with credit for {credit}");
                credit = credit.checked_sub(bytes as u64).ok_or_else(what)?;
                streamed += bytes;
            }
            said if said.about() == Some((1, 1)) => {}
            other => return Err(format!("while job 1 ran it sent {other}")),
        }
    }
    candidate.drain()?;
    match streamed {
        0 => Ok(Kept::NotAsked("its example has no parts")),
        _ => Ok(Kept::Yes),
    }
}

fn batch(subject: &Subject, _: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(BATCHES)?;
    let batched = |offered: &&Offered| offered.task.batching.is_some();
    let Some(offered) = candidate.offers.iter().find(batched).cloned() else {
        return Ok(Kept::NotAsked("no task takes several jobs at once"));
    };
    let jobs = offered.task.batching.map_or(2, |batching| batching.max);
    candidate.add(&ToWorker::Batch { jobs }, &Bytes::new())?;
    for job in 1..=u64::from(jobs) {
        candidate.add(&Candidate::run(job, 1, &offered), &offered.example())?;
    }
    candidate.flush()?;
    candidate.started(1, 1)?;
    let mut open: Vec<u64> = (1..=u64::from(jobs)).collect();
    while !open.is_empty() {
        match candidate.hear()? {
            Said::Ended(end) if end.attempt == 1 && open.contains(&end.job) => {
                open.retain(|job| *job != end.job);
            }
            other => return Err(format!("in a batch it sent {other}, which is not open there")),
        }
    }
    candidate.drain()?;
    Ok(Kept::Yes)
}

fn without_capabilities(subject: &Subject, offered: &Offered) -> Result<Kept, String> {
    let mut candidate = subject.start(0)?;
    candidate.send(&Candidate::run(1, 1, offered), &offered.example())?;
    candidate.answer(1, 1, offered)?;
    candidate.drain()?;
    Ok(Kept::Yes)
}
