//! What other threads do to the loop.

use super::*;

#[test]
fn a_hold_keeps_the_loop_until_its_answer_has_come_from_another_thread() {
    let mut event_loop = real_loop();
    let (hold, remote) = (event_loop.hold(), event_loop.remote());
    let thread = std::thread::spawn(move || remote.post(|context| context.stop()).unwrap());
    assert!(event_loop.run().unwrap(), "stopped by the post, and still held");
    thread.join().unwrap();
    drop(hold);
    assert!(!event_loop.run().unwrap());
}

#[test]
fn posts_of_one_thread_run_once_each_in_order() {
    let mut event_loop = real_loop();
    let (remote, _hold) = (event_loop.remote(), event_loop.hold());
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sender_seen = std::sync::Arc::clone(&seen);
    let thread = std::thread::spawn(move || {
        for number in 0..10_000 {
            let seen = std::sync::Arc::clone(&sender_seen);
            remote.post(move |_| seen.lock().unwrap().push(number)).unwrap();
        }
        remote.post(|context| context.stop()).unwrap();
    });
    event_loop.run().unwrap();
    thread.join().unwrap();
    assert!(seen.lock().unwrap().iter().copied().eq(0..10_000));
}

#[test]
fn a_notifier_rung_often_is_answered_at_least_once_and_after_the_last_ring() {
    let mut event_loop = real_loop();
    let answers = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&answers);
    let notifier = event_loop.remote().notifier(move |_| {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    (0..100).for_each(|_| notifier.notify().unwrap());
    event_loop.run().unwrap();
    assert_eq!(answers.load(std::sync::atomic::Ordering::Relaxed), 1);
    drop(event_loop);
    assert_eq!(notifier.notify(), Err(LoopGone));
}

#[test]
fn a_request_keeps_the_loop_until_another_thread_completes_it() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let inner = log.clone();
    let request = event_loop.request(move |_, answer: u32| inner.add(format!("answer {answer}")));
    let thread = std::thread::spawn(move || request.complete(42).unwrap());
    assert!(!event_loop.run().unwrap());
    thread.join().unwrap();
    log.expect(&["answer 42"]);
}

#[test]
fn a_request_that_is_dropped_or_withdrawn_is_forgotten() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (first, second) = (log.clone(), log.clone());
    drop(event_loop.request(move |_, ()| first.add("dropped")));
    let withdrawn = event_loop.request(move |_, ()| second.add("withdrawn"));
    assert!(event_loop.withdraw(withdrawn.id()));
    assert!(!event_loop.withdraw(withdrawn.id()));
    withdrawn.complete(()).unwrap();
    assert!(!event_loop.run().unwrap());
    log.expect(&[]);
}
