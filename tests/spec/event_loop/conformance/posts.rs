//! Posts: callbacks that other threads send to a loop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use offload_event_loop::{Context, LoopGone, Remote, RunMode};

use super::{milliseconds, real_loop, virtual_loop};
use crate::stage::Order;

#[test]
fn a_bell_rung_again_and_again_by_a_thread_is_answered_and_can_be_given_up() {
    let mut event_loop = real_loop();
    let answered = Arc::new(AtomicUsize::new(0));
    let (hold, counter) = (event_loop.hold(), Arc::clone(&answered));
    let bell = event_loop.remote().notifier(move |context| {
        if counter.fetch_add(1, Ordering::SeqCst) + 1 == 3 {
            context.stop();
        }
    });
    let watched = Arc::clone(&answered);
    let ringer = thread::spawn(move || {
        while watched.load(Ordering::SeqCst) < 3 {
            bell.notify().unwrap();
            thread::yield_now();
        }
    });
    assert!(event_loop.run().unwrap(), "the hold is still there");
    drop(hold);
    ringer.join().unwrap();
    event_loop.run().unwrap();
    assert!(answered.load(Ordering::SeqCst) >= 3);
}

#[test]
fn a_bell_rung_often_before_its_answer_is_answered_once() {
    let mut event_loop = virtual_loop();
    let (sender, answers) = mpsc::channel();
    let bell = event_loop.remote().notifier(move |_| sender.send(()).unwrap());
    (0..100).for_each(|_| bell.notify().unwrap());
    assert!(event_loop.is_alive());
    event_loop.run().unwrap();
    assert_eq!(answers.try_iter().count(), 1);
    bell.notify().unwrap();
    event_loop.run().unwrap();
    assert_eq!(answers.try_iter().count(), 1);
}

#[test]
fn a_bell_rung_while_it_is_answered_is_answered_again() {
    let mut event_loop = virtual_loop();
    let (sender, bells) = mpsc::channel::<offload_event_loop::Notifier>();
    let (count, answers) = mpsc::channel();
    let bell = event_loop.remote().notifier(move |_| {
        count.send(()).unwrap();
        if let Ok(bell) = bells.try_recv() {
            bell.notify().unwrap();
            bell.notify().unwrap();
        }
    });
    sender.send(bell.clone()).unwrap();
    bell.notify().unwrap();
    event_loop.run().unwrap();
    assert_eq!(answers.try_iter().count(), 2);
}

#[test]
fn two_bells_are_answered_each() {
    let mut event_loop = virtual_loop();
    let (sender, answers) = mpsc::channel();
    let bells = ["one", "other"].map(|name| {
        let sender = sender.clone();
        event_loop.remote().notifier(move |_| sender.send(name).unwrap())
    });
    bells.iter().chain(&bells).for_each(|bell| bell.notify().unwrap());
    event_loop.run().unwrap();
    assert_eq!(answers.try_iter().collect::<Vec<_>>(), ["one", "other"]);
}

/// An async handle of libuv keeps its loop alive; here that is what a hold is for.
#[test]
fn neither_a_bell_nor_a_remote_keeps_the_loop_alive() {
    let mut event_loop = real_loop();
    let remote = event_loop.remote();
    let bell = remote.notifier(|_| {});
    assert!(!event_loop.is_alive());
    assert!(!event_loop.run().unwrap());
    bell.notify().unwrap();
    assert!(event_loop.is_alive(), "but what was sent does, until it has run");
    assert!(!event_loop.run().unwrap());
}

#[test]
fn posts_run_once_each_in_the_order_of_their_sender_however_many_send() {
    const SENDERS: usize = 4;
    const POSTS: usize = 500;
    let mut event_loop = real_loop();
    let (sender, posts) = mpsc::channel();
    let start = Arc::new(Barrier::new(SENDERS));
    let threads: Vec<_> = (0..SENDERS)
        .map(|thread| {
            let (hold, remote) = (event_loop.request(|_, ()| {}), event_loop.remote());
            let (sender, start) = (sender.clone(), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                for number in 0..POSTS {
                    let sender = sender.clone();
                    remote.post(move |_| sender.send((thread, number)).unwrap()).unwrap();
                }
                hold.complete(()).unwrap();
            })
        })
        .collect();
    assert!(!event_loop.run().unwrap());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut posts: Vec<_> = posts.try_iter().collect();
    // A stable sort by sender leaves the order of each as it was.
    posts.sort_by_key(|(thread, _)| *thread);
    let expected: Vec<_> =
        (0..SENDERS).flat_map(|thread| (0..POSTS).map(move |number| (thread, number))).collect();
    assert_eq!(posts, expected);
}

#[test]
fn a_post_that_posts_itself_for_ever_starves_nobody() {
    fn again(context: &mut Context, remote: &Remote) {
        context.update_time();
        let next = remote.clone();
        // Once the loop is gone, so is the chain.
        let _ = remote.post(move |context| again(context, &next));
    }
    let mut event_loop = real_loop();
    let order = Order::new();
    let remote = event_loop.remote();
    again(&mut event_loop, &remote);
    event_loop.set_immediate(order.add("immediate"));
    let log = order.clone();
    event_loop.set_timeout(milliseconds(2), move |context| {
        log.push("timer");
        context.stop();
    });
    assert!(event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["immediate", "timer"]);
}

#[test]
fn a_post_of_a_post_waits_for_the_next_iteration() {
    let mut event_loop = virtual_loop();
    let (sender, order) = mpsc::channel();
    let remote = event_loop.remote();
    let post = move |context: &mut Context| {
        let (inner, immediate) = (sender.clone(), sender);
        remote.post(move |_| inner.send("post of a post").unwrap()).unwrap();
        context.set_immediate(move |_| immediate.send("immediate").unwrap());
    };
    event_loop.remote().post(post).unwrap();
    event_loop.run().unwrap();
    assert_eq!(order.try_iter().collect::<Vec<_>>(), ["immediate", "post of a post"]);
}

#[test]
fn a_post_runs_in_the_poll_phase_between_prepare_and_check() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    event_loop.prepare(order.add("prepare"));
    event_loop.check(order.add("check"));
    let (sender, ran) = mpsc::channel();
    event_loop
        .remote()
        .post(move |context| {
            sender.send(()).unwrap();
            context.set_immediate(|_| {});
        })
        .unwrap();
    let log = order.clone();
    event_loop.check(move |_| log.push(if ran.try_recv().is_ok() { "after the post" } else { "before" }));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["prepare", "check", "after the post"]);
}

#[test]
fn a_post_wakes_a_loop_that_waits_for_a_distant_timer() {
    let mut event_loop = real_loop();
    let timer = event_loop.set_timeout(Duration::from_secs(86_400), |_| panic!("a day has passed"));
    let remote = event_loop.remote();
    let (is_about_to_wait, wait) = mpsc::channel();
    let prepare = event_loop.prepare(move |_| is_about_to_wait.send(()).unwrap());
    let sender = thread::spawn(move || {
        wait.recv().unwrap();
        let post = move |context: &mut Context| {
            assert!(context.clear(timer));
            context.close(prepare, |_| {}).unwrap();
        };
        remote.post(post).unwrap();
    });
    assert!(!event_loop.run().unwrap());
    sender.join().unwrap();
}

#[test]
fn what_is_sent_to_a_loop_that_is_gone_is_refused_and_dropped() {
    let event_loop = real_loop();
    let remote = event_loop.remote();
    let bell = remote.notifier(|_| {});
    let request = event_loop.request(|_, ()| {});
    let owned = Arc::new(());
    let (waiting, late) = (Arc::clone(&owned), Arc::clone(&owned));
    remote.post(move |_| drop(waiting)).unwrap();
    drop(event_loop);
    assert_eq!(Arc::strong_count(&owned), 2, "what waited was dropped with the loop");
    assert_eq!(remote.post(move |_| drop(late)), Err(LoopGone));
    assert_eq!(Arc::strong_count(&owned), 1);
    assert_eq!(bell.notify(), Err(LoopGone));
    assert_eq!(request.complete(()), Err(LoopGone));
    remote.stop();
}
