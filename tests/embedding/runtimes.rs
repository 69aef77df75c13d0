//! One pool for several runtimes at once, and among the services of tower.

use super::{Running, echo, end_of, endless, fault, outcome_of};
use offload_supervisor::protocol::nouns::OutcomeCode;
use offload_supervisor::{EventLoop, Finished, HandleLimits, Job, PoolHandle, ServiceError};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;
use tests::harness::PATIENCE;
use tower::{Service, ServiceBuilder, ServiceExt};

/// All the runtime that a future of a handle needs: a thread that sleeps until it is woken.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    let latest = Instant::now() + PATIENCE;
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park_timeout(latest.saturating_duration_since(Instant::now())),
        }
        assert!(Instant::now() < latest, "it ends in time");
    }
}

pub(crate) fn tokio_threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A client with jobs of all kinds, which waits for a place before each.
async fn mixed_client(handle: PoolHandle) {
    for number in 0..20 {
        let place = handle.reserve().await.expect("the pool is there");
        match number % 5 {
            0 => assert_eq!(place.submit(fault("kill")).await.report.outcome, OutcomeCode::WorkerCrashed),
            1 => drop(place.submit(endless())),
            2 => drop(place),
            _ => assert_eq!(place.submit(echo(&number.to_string())).await.output, number.to_string()),
        }
    }
}

/// With room for two jobs of a client at most, and less when all of them have some.
#[test]
fn several_runtimes_share_a_handle_with_tight_limits() {
    let running = Running::with_places(2, 2);
    let client = |name: &str| mixed_client(running.handle.client(name));
    std::thread::scope(|scope| {
        let [tokio, single, bare, ours] = ["tokio", "one thread", "no runtime", "our loop"].map(client);
        scope.spawn(|| tokio_threads().block_on(async { tokio::spawn(tokio).await.expect("all is right") }));
        scope.spawn(|| tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(single));
        scope.spawn(|| block_on(bare));
        scope.spawn(|| {
            let mut event_loop = EventLoop::new().unwrap();
            let hold = event_loop.hold();
            let task = event_loop.spawn(async move {
                ours.await;
                drop(hold);
            });
            event_loop.run().unwrap();
            assert!(matches!(task.take_result(), Some(Ok(()))));
        });
    });
    running.ends_by_itself();
}

#[test]
fn jobs_are_awaited_in_tokio_and_those_that_lose_a_race_are_cancelled() {
    let running = Running::with_workers(1);
    let handle = &running.handle;
    tokio_threads().block_on(async {
        let jobs: Vec<_> = (0..100)
            .map(|number| {
                let handle = handle.clone();
                tokio::spawn(async move { handle.submit(echo(&number.to_string())).await.output })
            })
            .collect();
        for (number, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.await.unwrap(), number.to_string());
        }
        tokio::select! {
            biased;
            finished = handle.submit(endless()) => panic!("it has ended: {finished:?}"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(handle.submit(echo("the only worker is free")).await.output, "the only worker is free");
    });
    running.ends_by_itself();
}

#[test]
fn a_service_of_tower_works_in_a_stack_of_others_and_fails_like_its_jobs() {
    let running = Running::with_workers(1);
    block_on(async {
        let service = running.handle.service();
        let mut stack =
            ServiceBuilder::new().concurrency_limit(2).map_result(output).service(service.clone());
        assert_eq!(stack.ready().await.unwrap().call(echo("hello")).await.unwrap(), "hello");
        let failed = service.oneshot(Job::new("primes").input("none")).await.unwrap_err();
        assert!(failed.to_string().starts_with("app_error: "), "{failed}");
    });
    running.ends_by_itself();
}

fn output(finished: Result<Finished, ServiceError>) -> Result<bytes::Bytes, ServiceError> {
    finished.map(|finished| finished.output)
}

fn is_ready(service: &mut impl Service<Job, Error = ServiceError>) -> bool {
    match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ready) => ready.map(|()| true).expect("the pool is there"),
        Poll::Pending => false,
    }
}

#[test]
fn a_service_is_ready_only_when_there_is_room_for_its_next_call() {
    let running = Running::with_places(1, 2);
    let mut services = [(); 3].map(|()| running.handle.service());
    assert_eq!(services.each_mut().map(is_ready), [true, true, false]);
    let mut clone = services[0].clone();
    assert!(!is_ready(&mut clone), "the room is not the clone's");
    assert!(is_ready(&mut running.handle.client("polite").service()), "another client has its own share");
    let first = services[0].call(endless());
    let second = services[1].call(echo("behind it"));
    assert!(!is_ready(&mut services[0]), "it has used what it had");
    drop(first);
    block_on(async {
        assert_eq!(second.await.expect("the worker is free").output, "behind it");
        // They have waited for longest, in this order.
        for service in [&mut services[2], &mut clone] {
            let call = service.ready().await.expect("the pool is there").call(echo("next"));
            assert_eq!(call.await.unwrap().output, "next");
        }
    });
    drop((services, clone));
    running.ends_by_itself();
}

#[test]
fn a_call_of_a_ready_service_whose_input_has_no_room_says_so() {
    let limits = HandleLimits { jobs: 10, bytes: 1 << 20 };
    let running = Running::with(super::config(1), Some(limits));
    let mut services = [(); 3].map(|()| running.handle.service());
    assert_eq!(services.each_mut().map(is_ready), [true, true, true]);
    // Its output has the same size, and keeps the room until it is taken.
    let large = || Job::new("echo").input(vec![7; 1 << 20]);
    let [first, second, third] = &mut services;
    let first = first.call(large());
    assert!(is_ready(&mut running.handle.client("other").service()), "a place needs no bytes");
    let error = block_on(second.call(large())).unwrap_err();
    assert!(
        matches!(&error, ServiceError::Job(refused) if refused.report.outcome == OutcomeCode::Overloaded),
        "{error}"
    );
    assert!(block_on(first).is_ok());
    assert!(block_on(third.call(large())).is_ok(), "there is room again");
    drop(services);
    running.ends_by_itself();
}

#[test]
fn a_service_of_a_pool_that_has_ended_is_never_ready_and_says_so() {
    let running = Running::with_places(1, 1);
    let (mut first, mut second) = (running.handle.service(), running.handle.service());
    assert_eq!((is_ready(&mut first), is_ready(&mut second)), (true, false));
    running.remote.stop();
    running.thread.join().expect("the loop was stopped");
    let error = block_on(async { second.ready().await.err() });
    assert_eq!(error, Some(ServiceError::PoolEnded));
    let ended = block_on(first.call(echo("too late"))).unwrap_err();
    assert!(
        matches!(ended, ServiceError::Job(finished) if finished.report.outcome == OutcomeCode::Unavailable)
    );
}

#[test]
fn a_job_that_was_refused_can_be_told_from_one_that_was_done() {
    let running = Running::with_places(1, 1);
    let busy = running.handle.submit(endless());
    assert_eq!(outcome_of(running.handle.submit(echo("x"))), OutcomeCode::Quota);
    drop(busy);
    let place = block_on(running.handle.reserve()).expect("the pool is there");
    assert_eq!(end_of(place.submit(echo("x"))).output, "x");
    running.ends_by_itself();
}
