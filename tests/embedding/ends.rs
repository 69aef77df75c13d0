//! The pool or its loop ends while jobs wait: each of them has its end, and nobody hangs.

use super::runtimes::block_on;
use super::{Running, config, echo, end_of, endless, outcome_of};
use offload_supervisor::event_loop::LoopHandle;
use offload_supervisor::protocol::nouns::OutcomeCode;
use offload_supervisor::{Call, ComputePool, EventLoop, HandleLimits, PoolEnded, PoolHandle};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use tests::harness::PATIENCE;

async fn until_accepted(pool: &ComputePool, jobs: u64, event_loop: &LoopHandle) {
    while pool.status().jobs["accepted"] < jobs {
        event_loop.next_iteration().await;
    }
}

/// Threads that wait for jobs which never end, and one that waits for a place. They return how that ended.
struct Waiting {
    jobs: Vec<JoinHandle<OutcomeCode>>,
    place: JoinHandle<OutcomeCode>,
}

impl Waiting {
    fn new(handle: &PoolHandle, jobs: usize) -> Waiting {
        let jobs: Vec<_> = (0..jobs).map(|_| handle.submit(endless())).collect();
        let jobs = jobs.into_iter().map(|job| std::thread::spawn(move || outcome_of(job))).collect();
        let reservation = handle.reserve();
        // A job that ends may leave its place to this one, which comes too late all the same.
        let place = std::thread::spawn(move || match block_on(reservation) {
            Ok(place) => outcome_of(place.submit(echo("too late"))),
            Err(PoolEnded) => OutcomeCode::Unavailable,
        });
        Waiting { jobs, place }
    }

    fn all_end_as(self, expected: OutcomeCode) {
        for job in self.jobs {
            assert_eq!(job.join().expect("it does not hang"), expected);
        }
        assert_eq!(self.place.join().expect("it does not hang"), OutcomeCode::Unavailable);
    }
}

fn nothing_is_taken_any_more(handle: &PoolHandle) {
    assert_eq!(outcome_of(handle.submit(echo("too late"))), OutcomeCode::Unavailable);
    assert!(block_on(handle.reserve()).is_err());
}

#[test]
fn the_loop_ends_while_jobs_run_and_wait() {
    let running = Running::with_places(2, 5);
    let all = Waiting::new(&running.handle, 5);
    running.remote.stop();
    running.thread.join().expect("the loop was stopped");
    all.all_end_as(OutcomeCode::Unavailable);
    nothing_is_taken_any_more(&running.handle);
}

/// Then the jobs are still in the hands of the pool, which nobody serves any more.
#[test]
fn the_loop_ends_before_the_pool() {
    let mut event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    let handle = pool.handle_with(HandleLimits { jobs: 10, bytes: 1000 });
    let all = Waiting::new(&handle, 5);
    let loop_handle = (*event_loop).clone();
    let others = pool.clone();
    // Once the pool has them.
    drop(event_loop.spawn(async move {
        until_accepted(&others, 5, &loop_handle).await;
        loop_handle.stop();
    }));
    event_loop.run().unwrap();
    drop(event_loop);
    all.all_end_as(OutcomeCode::Unavailable);
    nothing_is_taken_any_more(&handle);
    drop(pool);
}

/// A handle does not keep the loop of a pool alive that has ended.
#[test]
fn the_pool_is_shut_down_while_jobs_run_and_wait() {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut event_loop = EventLoop::new().unwrap();
        let pool = ComputePool::start(config(1), &event_loop).unwrap();
        let limits = HandleLimits { jobs: 10, bytes: 1000 };
        let ended = pool.clone();
        let (late_send, late) = mpsc::channel();
        send.send(pool.handle_with(limits)).unwrap();
        event_loop.set_immediate(move |cx| {
            let handle = cx.clone();
            drop(cx.spawn(async move {
                until_accepted(&ended, 5, &handle).await;
                let late = ended.clone();
                ended.shutdown(move |_| late_send.send(late.handle()).unwrap());
            }));
        });
        drop(pool);
        event_loop.run().unwrap();
        nothing_is_taken_any_more(&late.recv_timeout(PATIENCE).expect("it was shut down"));
    });
    let handle = receive.recv_timeout(PATIENCE).expect("the pool starts");
    let all = Waiting::new(&handle, 5);
    all.all_end_as(OutcomeCode::Cancelled);
    thread.join().expect("the loop has ended, and handles are left");
    nothing_is_taken_any_more(&handle);
}

#[test]
fn a_drain_finishes_what_was_accepted_and_refuses_what_comes_later() {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut event_loop = EventLoop::new().unwrap();
        let pool = ComputePool::start(config(1), &event_loop).unwrap();
        send.send(pool.handle()).unwrap();
        let loop_handle = (*event_loop).clone();
        drop(event_loop.spawn(async move {
            until_accepted(&pool, 4, &loop_handle).await;
            pool.drain(|_| {});
        }));
        event_loop.run().unwrap();
    });
    let handle = receive.recv_timeout(PATIENCE).expect("the pool starts");
    let slow = handle.submit(offload_supervisor::Job::new("sleep").input("50"));
    let waiting: Vec<_> = (0..3).map(|number| handle.submit(echo(&number.to_string()))).collect();
    assert_eq!(outcome_of(slow), OutcomeCode::Ok);
    for (number, job) in waiting.into_iter().enumerate() {
        assert_eq!(end_of(job).output, number.to_string());
    }
    thread.join().expect("the loop has ended, and a handle is left");
    nothing_is_taken_any_more(&handle);
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn unavailable(call: &mut Call, context: &mut Context<'_>) -> bool {
    match Pin::new(call).poll(context) {
        Poll::Ready(finished) => finished.report.outcome == OutcomeCode::Unavailable,
        Poll::Pending => false,
    }
}

/// Somebody else polls them, who is woken for each.
#[test]
fn calls_and_streams_end_with_the_loop_and_are_refused_after_it() {
    let mut event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let context = &mut Context::from_waker(&waker);
    let (mut call, mut stream) = (pool.call(endless()), pool.stream(endless()));
    let mut keyed = pool.call(endless().client("me").idempotency_key("key"));
    let (accepted, loop_handle) = (pool.clone(), (*event_loop).clone());
    drop(event_loop.spawn(async move {
        until_accepted(&accepted, 3, &loop_handle).await;
        loop_handle.stop();
    }));
    event_loop.run().unwrap();
    assert!(
        Pin::new(&mut call).poll(context).is_pending() && Pin::new(&mut keyed).poll(context).is_pending()
    );
    assert!(stream.poll_next(context).is_pending());
    drop(event_loop);
    assert_eq!(count.0.load(Ordering::Relaxed), 3, "each is woken");
    assert!(unavailable(&mut call, context) && unavailable(&mut keyed, context));
    let (mut late_call, mut late_stream) = (pool.call(endless()), pool.stream(endless()));
    assert!(unavailable(&mut late_call, context));
    for stream in [&mut stream, &mut late_stream] {
        assert_eq!(stream.poll_next(context), Poll::Ready(None));
        let finished = stream.finished().expect("it has ended");
        assert_eq!(finished.report.outcome, OutcomeCode::Unavailable);
    }
    assert_eq!(block_on(stream.collect()).report.outcome, OutcomeCode::Unavailable);
}

#[test]
fn a_call_that_is_awaited_again_after_its_end_is_a_panic_and_no_hang() {
    let event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    drop(event_loop);
    let mut call = pool.call(endless());
    let context = &mut Context::from_waker(Waker::noop());
    assert!(unavailable(&mut call, context));
    assert!(catch_unwind(AssertUnwindSafe(|| unavailable(&mut call, context))).is_err());
}

/// Until there is no pool any more. Says when it has had an answer.
fn ask_on(handle: &PoolHandle, answers: &mpsc::Sender<()>) {
    for number in 0_u32.. {
        let Ok(place) = block_on(handle.reserve()) else { return };
        match number % 3 {
            0 => drop(place.submit(endless())),
            1 => drop(handle.submit(echo("dropped"))),
            _ => match end_of(place.submit(echo("answered"))) {
                finished if finished.report.outcome == OutcomeCode::Ok => {
                    assert_eq!(finished.output, "answered");
                    let _ = answers.send(());
                }
                finished => assert_eq!(finished.report.outcome, OutcomeCode::Unavailable, "{finished:?}"),
            },
        }
    }
}

#[test]
fn the_loop_ends_in_the_middle_of_a_storm_and_every_thread_is_told() {
    for round in 0..5 {
        let running = Running::with_places(2, 16);
        let (send, answers) = mpsc::channel();
        let threads: Vec<_> = (0..6)
            .map(|thread| {
                let (handle, send) = (running.handle.client(&format!("client {}", thread % 2)), send.clone());
                std::thread::spawn(move || ask_on(&handle, &send))
            })
            .collect();
        for _ in 0..20 * round {
            answers.recv_timeout(PATIENCE).expect("answers come");
        }
        running.remote.stop();
        running.thread.join().expect("the loop was stopped");
        threads.into_iter().for_each(|thread| thread.join().expect("it was told"));
        nothing_is_taken_any_more(&running.handle);
    }
}
