//! What happens in a pool of threads: tasks that compute, long ones, and such that never end. What it is there for is to look at files
//! quickly, so that is what each experiment measures.

use super::super::super::failure::Failure;
use super::super::super::text;
use super::super::folder::Folder;
use super::rig::{Looks, Rig, Supply, flag, micros};
use super::{Extent, Figure, Found, Verdict};
use offload_event_loop::io_pool::{IoHandle, IoPoolConfig};
use offload_supervisor::views::Percentiles;
use offload_worker::builtin::average::Average;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The threads of Node.js's pool, and ours.
const THREADS: usize = 4;

/// A difference counts if it is so many times.
const CLEARLY: u64 = 3;

/// `33 ms (at most 58 ms)`.
fn shown(times: &Percentiles) -> String {
    format!("{} (at most {})", text::time(times.p50), text::time(times.max))
}

fn threads() -> IoPoolConfig {
    IoPoolConfig { threads: THREADS, ..IoPoolConfig::default() }
}

/// Numbers that are added in about this time on one core of this machine.
fn additions(time: Duration) -> u64 {
    const SOME: u64 = 2_000_000;
    let begun = Instant::now();
    std::hint::black_box(average_of(SOME));
    let each = begun.elapsed().as_secs_f64() / SOME as f64;
    (time.as_secs_f64() / each).max(1.0) as u64
}

fn average_of(numbers: u64) -> f64 {
    Average::new(numbers).map_or(0.0, Average::finish)
}

/// Files are looked at while twice as many computing tasks as there are threads are under way, in the same pool or in processes.
pub(super) fn one_pool_for_both(extent: &Extent) -> Result<Found, Failure> {
    let time = extent.choose(Duration::from_secs(2), Duration::from_millis(100));
    let numbers = additions(extent.choose(Duration::from_millis(20), Duration::from_millis(2)));
    let together = computing_in_the_same_pool(numbers, time)?;
    let apart = computing_in_processes(extent, numbers, time)?;
    let sentence = format!(
        "a look at a file takes {} in the pool that computes, and {} if processes compute",
        shown(&together),
        shown(&apart),
    );
    let figures = vec![
        Figure { name: "look_p50_in_one_pool", value: together.p50 as f64 / 1e3, unit: "ms" },
        Figure { name: "look_max_in_one_pool", value: together.max as f64 / 1e3, unit: "ms" },
        Figure { name: "look_p50_apart", value: apart.p50 as f64 / 1e3, unit: "ms" },
        Figure { name: "look_max_apart", value: apart.max as f64 / 1e3, unit: "ms" },
    ];
    Ok(Found { figures, verdict: Verdict::of(together.p50 > apart.p50 * CLEARLY), sentence })
}

fn computing_in_the_same_pool(numbers: u64, time: Duration) -> Result<Percentiles, Failure> {
    let mut rig = Rig::new()?;
    let pool = rig.threads(threads())?;
    let (is_over, over) = flag();
    for _ in 0..THREADS * 2 {
        compute_again_and_again(pool.handle(), numbers, Rc::clone(&over));
    }
    let looks = rig.look_at_files(&pool, &over);
    rig.run_for(time)?;
    is_over.set(true);
    rig.run_until(|| looks.are_done())?;
    Ok(looks.times_us())
}

fn compute_again_and_again(pool: IoHandle, numbers: u64, is_over: Rc<Cell<bool>>) {
    pool.clone().submit(
        move || average_of(numbers),
        move |_cx, _average| {
            if !is_over.get() {
                compute_again_and_again(pool, numbers, is_over);
            }
        },
    );
}

fn computing_in_processes(extent: &Extent, numbers: u64, time: Duration) -> Result<Percentiles, Failure> {
    let mut rig = Rig::new()?;
    let pool = rig.threads(threads())?;
    let workers = rig.workers(extent.workers(extent.cores()))?;
    let (is_over, over) = flag();
    let supply = Supply::new(&workers, "average", numbers.to_string(), &over);
    (0..THREADS * 2).for_each(|_| supply.clone().go_on());
    let looks = rig.look_at_files(&pool, &over);
    rig.run_for(time)?;
    is_over.set(true);
    rig.run_until(|| looks.are_done())?;
    rig.end(&workers)?;
    Ok(looks.times_us())
}

/// Files are looked at while eight long tasks compute, whole or in a hundred parts.
pub(super) fn long_tasks(extent: &Extent) -> Result<Found, Failure> {
    let numbers = additions(extent.choose(Duration::from_millis(250), Duration::from_millis(10)));
    let (whole, whole_took) = beside_long_tasks(numbers, 1)?;
    let (in_parts, parts_took) = beside_long_tasks(numbers, 100)?;
    let sentence = format!(
        "a look at a file takes {} beside whole tasks, which are all done after {}, and {} beside tasks in 100 parts, which are done after \
         {}",
        shown(&whole),
        text::time(micros(whole_took)),
        shown(&in_parts),
        text::time(micros(parts_took)),
    );
    let figures = vec![
        Figure { name: "look_p50_beside_whole_tasks", value: whole.p50 as f64 / 1e3, unit: "ms" },
        Figure { name: "look_max_beside_whole_tasks", value: whole.max as f64 / 1e3, unit: "ms" },
        Figure { name: "whole_tasks_took", value: whole_took.as_secs_f64() * 1e3, unit: "ms" },
        Figure { name: "look_p50_beside_parts", value: in_parts.p50 as f64 / 1e3, unit: "ms" },
        Figure { name: "look_max_beside_parts", value: in_parts.max as f64 / 1e3, unit: "ms" },
        Figure { name: "tasks_in_parts_took", value: parts_took.as_secs_f64() * 1e3, unit: "ms" },
    ];
    Ok(Found { figures, verdict: Verdict::of(whole.p50 > in_parts.p50 * CLEARLY), sentence })
}

fn beside_long_tasks(numbers: u64, parts: u64) -> Result<(Percentiles, Duration), Failure> {
    let mut rig = Rig::new()?;
    let pool = rig.threads(threads())?;
    let tasks = || {
        let mut left = parts;
        move || {
            std::hint::black_box(average_of((numbers / parts).max(1)));
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    };
    beside_all_of(&mut rig, &pool, |done| {
        pool.submit_parts(tasks(), move |_cx, _| done());
    })
}

/// How long eight tasks take together, and a look at a file beside them.
fn beside_all_of(
    rig: &mut Rig,
    pool: &IoHandle,
    mut submit: impl FnMut(Box<dyn FnOnce()>),
) -> Result<(Percentiles, Duration), Failure> {
    let (left, begun) = (Rc::new(Cell::new(THREADS * 2)), Instant::now());
    let took = Rc::new(Cell::new(None));
    for _ in 0..THREADS * 2 {
        let (left, took) = (Rc::clone(&left), Rc::clone(&took));
        submit(Box::new(move || {
            left.set(left.get() - 1);
            if left.get() == 0 {
                took.set(Some(begun.elapsed()));
            }
        }));
    }
    let (is_over, over) = flag();
    let looks: Looks = rig.look_at_files(pool, &over);
    rig.run_until(|| took.get().is_some())?;
    is_over.set(true);
    rig.run_until(|| looks.are_done())?;
    Ok((looks.times_us(), took.get().unwrap_or_default()))
}

/// Files are looked at while eight large ones are read, whole or in parts.
pub(super) fn whole_files(extent: &Extent) -> Result<Found, Failure> {
    let folder = Folder::new()?;
    let length = extent.choose(48 << 20, 1 << 20);
    let file = folder.path().join("large");
    fs::write(&file, vec![7; length]).map_err(|error| Failure::writing("a large file", &error))?;
    let (whole, whole_took) = beside_readers(&file, length, length)?;
    let part = IoPoolConfig::default().part_bytes;
    let (in_parts, parts_took) = beside_readers(&file, length, part)?;
    let sentence = format!(
        "a look at a file takes {} beside readers of {} at once, which are done after {}, and {} beside readers in parts of {}, which are \
         done after {}",
        shown(&whole),
        text::bytes(length as u64),
        text::time(micros(whole_took)),
        shown(&in_parts),
        text::bytes(part as u64),
        text::time(micros(parts_took)),
    );
    let figures = vec![
        Figure { name: "look_p50_beside_whole_reads", value: whole.p50 as f64 / 1e3, unit: "ms" },
        Figure { name: "look_max_beside_whole_reads", value: whole.max as f64 / 1e3, unit: "ms" },
        Figure { name: "whole_reads_took", value: whole_took.as_secs_f64() * 1e3, unit: "ms" },
        Figure { name: "look_p50_beside_parts", value: in_parts.p50 as f64 / 1e3, unit: "ms" },
        Figure { name: "look_max_beside_parts", value: in_parts.max as f64 / 1e3, unit: "ms" },
        Figure { name: "reads_in_parts_took", value: parts_took.as_secs_f64() * 1e3, unit: "ms" },
    ];
    Ok(Found { figures, verdict: Verdict::of(whole.p50 > in_parts.p50 * CLEARLY), sentence })
}

fn beside_readers(file: &Path, length: usize, part: usize) -> Result<(Percentiles, Duration), Failure> {
    let mut rig = Rig::new()?;
    let pool = rig.threads(threads())?;
    let reading = pool.in_parts_of(part);
    beside_all_of(&mut rig, &pool, |done| {
        reading.fs_read(file, length, move |_cx, _bytes| done());
    })
}

/// Tasks that wait for a FIFO which nobody writes have all threads; then one file is looked at. The first pool has no other threads,
/// as Node.js's; the second is ours, which replaces threads that are stuck.
pub(super) fn stuck(extent: &Extent) -> Result<Found, Failure> {
    let (unlocked, deadline) = extent.choose(
        (Duration::from_secs(3), Duration::from_millis(500)),
        (Duration::from_millis(300), Duration::from_millis(50)),
    );
    let fixed = look_beside_stuck(IoPoolConfig { threads_max: THREADS, ..threads() }, unlocked, deadline)?;
    let ours = look_beside_stuck(threads(), unlocked, deadline)?;
    let sentence = format!(
        "{THREADS} tasks wait for something that comes after {}: in a pool of {THREADS} threads a look at a file takes {}; ours gives such \
         threads up after a limit of {} and replaces them, so there it takes {}",
        text::time(micros(unlocked)),
        text::time(micros(fixed)),
        text::time(micros(deadline)),
        text::time(micros(ours)),
    );
    let figures = vec![
        Figure { name: "look_in_a_fixed_pool", value: fixed.as_secs_f64() * 1e3, unit: "ms" },
        Figure { name: "look_in_ours", value: ours.as_secs_f64() * 1e3, unit: "ms" },
    ];
    // The look begins when all of these wait.
    let stops = fixed.as_secs_f64() > unlocked.as_secs_f64() * 0.8;
    Ok(Found { figures, verdict: Verdict::of(stops && ours < fixed), sentence })
}

fn look_beside_stuck(
    config: IoPoolConfig,
    unlocked: Duration,
    deadline: Duration,
) -> Result<Duration, Failure> {
    let folder = Folder::new()?;
    let fifo = folder.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .map_err(|error| Failure::internal("cannot make a FIFO", error))?;
    let mut rig = Rig::new()?;
    let pool = rig.threads(config)?;
    let (answered, begun) = (Rc::new(Cell::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut asked = 0;
    // On a busy machine the time of one may be over before a thread has begun it: then another takes its place.
    while begun.load(Relaxed) < THREADS {
        let before = (begun.load(Relaxed), answered.get());
        let (path, told, begins) = (fifo.clone(), Rc::clone(&answered), Arc::clone(&begun));
        let waits = move || {
            begins.fetch_add(1, Relaxed);
            drop(File::open(path));
        };
        pool.within(deadline).submit(waits, move |_cx, _| told.set(told.get() + 1));
        asked += 1;
        rig.run_until(|| (begun.load(Relaxed), answered.get()) != before)?;
    }
    let (took, looked_at) = (Rc::new(Cell::new(None)), Instant::now());
    let told = Rc::clone(&took);
    pool.fs_stat("/", move |_cx, _| told.set(Some(looked_at.elapsed())));
    rig.run_until(|| looked_at.elapsed() >= unlocked)?;
    // Whoever waits to read it goes on.
    let _writer = OpenOptions::new().read(true).write(true).open(&fifo);
    rig.run_until(|| took.get().is_some() && answered.get() == asked)?;
    Ok(took.get().unwrap_or_default())
}
