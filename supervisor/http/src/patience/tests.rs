//! Each limit, in virtual time.

use super::*;
use crate::limits::{BODY_QUOTA, BODY_RATE, READ_QUOTA};
use offload_event_loop::{EventLoop, LoopConfig, LoopHandle, Time};
use offload_supervisor::pauses::RunningClock;
use offload_supervisor::service::InFlight;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::Context;
use std::time::Duration;

pub(super) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// After how many seconds of the loop's time each limit was found to have passed.
fn late_after(prepare: impl FnOnce(&Rc<Patience>, &LoopHandle)) -> Vec<(u64, Late)> {
    let config = LoopConfig { time: Time::Virtual, ..LoopConfig::default() };
    let mut event_loop = EventLoop::with(config).unwrap();
    let handle = event_loop.handle().clone();
    let patience = Patience::new(&Timekeeper::new(&handle, &RunningClock::new(&handle)));
    let (start, late) = (handle.now(), Rc::new(RefCell::new(Vec::new())));
    let (told, clock) = (Rc::clone(&late), handle.clone());
    patience.watch(move |late| told.borrow_mut().push(((clock.now() - start).as_secs(), late)));
    prepare(&patience, &handle);
    // Nothing but this keeps the loop alive.
    event_loop.set_timeout(Duration::from_secs(65), |cx| cx.stop());
    event_loop.run().unwrap();
    late.take()
}

/// After how many seconds the first of these bodies was found to be late, of which the connection is told nothing.
fn body_late_after(prepare: impl FnOnce(&Rc<Patience>, &LoopHandle) -> Rc<BodyPace>) -> Option<u64> {
    let found = Rc::new(RefCell::new(None));
    let first = Rc::clone(&found);
    let told = late_after(move |patience, handle| {
        let (body, start, clock) = (prepare(patience, handle), handle.now(), handle.clone());
        handle.set_interval(Duration::from_millis(100), move |_| {
            if body.is_late() {
                first.borrow_mut().get_or_insert((clock.now() - start).as_secs());
            }
        });
    });
    assert!(told.iter().all(|(_, late)| *late == Late::Idle), "{told:?}");
    found.take()
}

/// The context of a task that need not be woken.
const NOBODY: &Context<'static> = &Context::from_waker(Waker::noop());

fn in_order(patience: &Rc<Patience>) -> RequestMark {
    patience.head_is_there();
    patience.request_begins(InFlight::default())
}

#[test]
fn a_head_that_does_not_come_is_late() {
    assert_eq!(late_after(|_, _| ())[0], (5, Late::Head));
}

#[test]
fn a_second_head_has_its_own_time() {
    let late = late_after(|patience, handle| {
        drop(in_order(patience));
        let patience = Rc::clone(patience);
        handle.set_timeout(Duration::from_secs(30), move |_| patience.head_begins());
    });
    assert_eq!(late[0], (35, Late::Head));
}

#[test]
fn a_body_that_begins_while_the_timer_looks_for_an_idle_connection_has_no_more_time_than_others() {
    let late = body_late_after(|patience, handle| {
        drop(in_order(patience));
        let body = Rc::new(patience.body());
        let (its, patience) = (Rc::clone(&body), Rc::clone(patience));
        handle.set_timeout(Duration::from_secs(30), move |_| {
            std::mem::forget(patience.request_begins(InFlight::default()));
            its.wait(NOBODY);
        });
        body
    });
    assert_eq!(late, Some(40));
}

#[test]
fn who_is_kept_waiting_for_wrong_tokens_gives_way_like_one_that_asks_for_nothing() {
    let event_loop = EventLoop::new().unwrap();
    let handle = &event_loop.handle();
    let patience = Patience::new(&Timekeeper::new(handle, &RunningClock::new(handle)));
    let _guess = in_order(&patience);
    let waits = || patience.waits_for_a_request_since().is_some();
    assert!(!waits());
    let delayed = patience.delay();
    assert!(waits());
    let other = patience.request_begins(InFlight::default());
    assert!(!waits(), "another request is answered over the same connection");
    drop((other, delayed));
    assert!(!waits());
}

#[test]
fn who_asks_for_nothing_is_idle() {
    assert_eq!(late_after(|patience, _| drop(in_order(patience)))[0], (60, Late::Idle));
}

#[test]
fn a_request_may_take_as_long_as_it_likes() {
    let late = late_after(|patience, _| std::mem::forget(in_order(patience)));
    assert_eq!(late, []);
}

/// The client sends, or takes, so many bytes each second.
fn trickle(bytes: usize, wait: fn(&Patience), count: fn(&Patience, usize)) -> Vec<(u64, Late)> {
    late_after(move |patience, handle| {
        let mark = in_order(patience);
        wait(patience);
        handle.set_interval(Duration::from_secs(1), move |_| {
            count(mark.patience(), bytes);
            wait(mark.patience());
        });
    })
}

#[test]
fn a_body_that_trickles_is_late_and_one_that_flows_is_not() {
    let late = |bytes| {
        body_late_after(move |patience, handle| {
            let mark = in_order(patience);
            let body = Rc::new(mark.patience().body());
            body.wait(NOBODY);
            let its = Rc::clone(&body);
            handle.set_interval(Duration::from_secs(1), move |_| {
                let _under_way = &mark;
                its.came(bytes);
                its.wait(NOBODY);
            });
            body
        })
    };
    assert_eq!(late(1), Some(10));
    let enough = usize::try_from(BODY_QUOTA / 9).unwrap();
    assert_eq!(late(enough / 2), Some(10));
    assert_eq!(late(enough), Some(30), "it would hold its memory for too long");
    assert_eq!(late(usize::try_from(BODY_RATE).unwrap()), None);
}

#[test]
fn an_answer_that_is_not_taken_is_late() {
    let late = |bytes| trickle(bytes, Patience::answer_waits, Patience::answer_was_taken);
    assert_eq!(late(1)[0], (10, Late::Reader));
    assert_eq!(late(usize::try_from(READ_QUOTA / 9).unwrap()), []);
}

#[test]
fn an_answer_that_is_not_taken_is_late_whatever_else_is_taken_over_its_connection() {
    let late = late_after(|patience, handle| {
        let mark = in_order(patience);
        let stands = patience.has_unread(None);
        handle.set_interval(Duration::from_secs(2), move |_| {
            let flowing = mark.patience().has_unread(None);
            flowing.was_read(1 << 20);
            let _stands = &stands;
        });
    });
    assert_eq!(late[0], (10, Late::Reader));
}

#[test]
fn who_takes_many_answers_at_once_need_not_be_faster_than_with_one() {
    const ANSWERS: usize = 64;
    let late = late_after(|patience, handle| {
        let mark = in_order(patience);
        let answers: Vec<Unread> = (0..ANSWERS).map(|_| patience.has_unread(None)).collect();
        let each = usize::try_from(READ_QUOTA).unwrap() / ANSWERS / 9;
        handle.set_interval(Duration::from_secs(1), move |_| {
            let _under_way = &mark;
            answers.iter().for_each(|answer| answer.was_read(each));
        });
    });
    assert_eq!(late, []);
}

#[test]
fn a_head_that_is_late_hides_no_other_limit() {
    let late = late_after(|patience, handle| {
        std::mem::forget(in_order(patience));
        patience.head_begins();
        patience.much_is_ahead();
        let patience = Rc::clone(patience);
        handle.set_timeout(Duration::from_secs(2), move |_| patience.answer_waits());
    });
    let first = |wanted| late.iter().find(|(_, late)| *late == wanted).map(|(at, _)| *at);
    assert_eq!([Late::Head, Late::Ahead].map(first), [Some(5), Some(10)], "{late:?}");
    assert!(first(Late::Reader).is_some(), "{late:?}");
}

#[test]
fn much_that_was_taken_at_once_is_no_credit() {
    let late = late_after(|patience, handle| {
        let mark = in_order(patience);
        patience.answer_was_taken(100 << 20);
        patience.answer_waits();
        handle.set_timeout(Duration::from_secs(1), move |_| std::mem::forget(mark));
    });
    assert_eq!(late[0], (10, Late::Reader));
}

#[test]
fn the_time_in_which_we_kept_the_client_waiting_does_not_count() {
    let late = body_late_after(|patience, handle| {
        let mark = in_order(patience);
        let body = Rc::new(mark.patience().body());
        body.wait(NOBODY);
        let (its, clock) = (Rc::clone(&body), handle.clone());
        handle.set_timeout(Duration::from_secs(5), move |_| {
            its.came(1);
            // There is no room for more, for 30 s.
            clock.set_timeout(Duration::from_secs(30), move |_| {
                its.wait(NOBODY);
                std::mem::forget(mark);
            });
        });
        body
    });
    assert_eq!(late, Some(40), "5 s of the 10 were used up before");
}

#[test]
fn a_body_that_stops_is_late_whatever_else_comes_over_its_connection() {
    let late = body_late_after(|patience, handle| {
        let mark = in_order(patience);
        let body = Rc::new(mark.patience().body());
        body.wait(NOBODY);
        handle.set_interval(Duration::from_secs(2), move |_| {
            // Another request on the same connection, with a body that flows.
            let other = mark.patience().request_begins(InFlight::default());
            let flowing = other.patience().body();
            flowing.wait(NOBODY);
            flowing.came(1 << 20);
        });
        body
    });
    assert_eq!(late, Some(10));
}

#[test]
fn of_many_that_are_late_at_once_a_few_are_ended_in_each_millisecond() {
    let config = LoopConfig { time: Time::Virtual, ..LoopConfig::default() };
    let mut event_loop = EventLoop::with(config).unwrap();
    let handle = event_loop.handle().clone();
    let (keeper, start) = (Timekeeper::new(&handle, &RunningClock::new(&handle)), handle.now());
    let ended = Rc::new(RefCell::new(BTreeMap::<u128, usize>::new()));
    let many: Vec<Rc<Patience>> = (0..1000).map(|_| Patience::new(&keeper)).collect();
    for patience in &many {
        let (ended, handle) = (Rc::clone(&ended), handle.clone());
        patience
            .watch(move |_| *ended.borrow_mut().entry((handle.now() - start).as_millis()).or_default() += 1);
    }
    event_loop.set_timeout(Duration::from_secs(15), |cx| cx.stop());
    event_loop.run().unwrap();
    let ended = ended.take();
    assert_eq!(ended.values().sum::<usize>(), 1000);
    assert!(ended.values().all(|count| *count <= 9), "{ended:?}");
    assert!(*ended.last_key_value().unwrap().0 < 10_500, "{ended:?}");
}

#[test]
fn reading_the_rest_of_a_body_and_lingering_have_one_time_behind_the_answer() {
    let late = late_after(|patience, handle| {
        let mark = in_order(patience);
        mark.leave(Left::Little);
        let patience = Rc::clone(patience);
        handle.set_timeout(seconds(1), move |handle| {
            drop(mark);
            patience.nothing_is_left();
            handle.set_timeout(seconds(1), move |_| patience.lingers());
        });
    });
    assert_eq!(late[0], (3, Late::Linger));
}

#[test]
fn a_rest_that_came_to_its_end_takes_nothing_from_the_time_to_linger() {
    let late = late_after(|patience, handle| {
        let mark = in_order(patience);
        mark.leave(Left::Little);
        drop(mark);
        patience.nothing_is_left();
        patience.rest_was_read(patience.last_request());
        let patience = Rc::clone(patience);
        handle.set_timeout(seconds(1), move |_| patience.lingers());
    });
    assert_eq!(late[0], (3, Late::Linger));
}

#[test]
fn when_the_server_ends_the_rest_of_a_body_is_given_up_if_its_request_is_answered() {
    for is_answered in [false, true] {
        let (rest, found) = (Rc::new(()), Rc::new(Cell::new(None)));
        let (its, told) = (Rc::clone(&rest), Rc::clone(&found));
        late_after(move |patience, handle| {
            let mark = in_order(patience);
            mark.leave(Left::Little);
            patience.reads_rest(handle.spawn(async move {
                let _its = its;
                std::future::pending::<()>().await;
            }));
            let mark = (!is_answered).then_some(mark);
            let patience = Rc::clone(patience);
            handle.set_timeout(seconds(1), move |handle| {
                patience.begins_to_end();
                handle.set_timeout(seconds(1), move |_| {
                    told.set(Some(Rc::strong_count(&rest) == 1));
                    drop((mark, patience));
                });
            });
        });
        assert_eq!(found.get(), Some(is_answered));
    }
}
