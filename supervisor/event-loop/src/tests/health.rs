//! What a loop knows about its own health, and who tells when it cannot.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Instant;

use super::*;

/// Keeps the loop busy for a real time.
fn burn(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

fn loop_with(on_starvation: OnStarvation, starvation_budget: Duration) -> EventLoop {
    EventLoop::with(LoopConfig { on_starvation, starvation_budget, ..LoopConfig::default() }).unwrap()
}

/// Ticks that queue ticks until told to stop; counts them.
fn tick_for_ever(context: &LoopHandle, goes_on: Rc<Cell<bool>>, count: Rc<Cell<u64>>) {
    context.next_tick(move |context| {
        count.set(count.get() + 1);
        if goes_on.get() {
            tick_for_ever(context, goes_on, count);
        }
    });
}

#[test]
fn the_watchdog_names_a_callback_while_it_still_blocks_the_loop() {
    let mut event_loop = EventLoop::new().unwrap();
    let (report, reports) = mpsc::channel();
    let report = move |blocked: &Blocked| report.send(*blocked).unwrap();
    let _watchdog = event_loop.watchdog(milliseconds(20), report).unwrap();
    let seen = Rc::new(Cell::new(None));
    let keep = Rc::clone(&seen);
    // The callback ends only when it was reported.
    let site_line = line!() + 1;
    event_loop.set_immediate(move |_| keep.set(reports.recv_timeout(Duration::from_secs(30)).ok()));
    event_loop.run().unwrap();
    let blocked = seen.get().expect("a report while the callback runs");
    assert_eq!((blocked.site.line(), blocked.phase), (site_line, Phase::Check));
    assert!(blocked.at_least >= milliseconds(20));
    assert!(blocked.to_string().contains("health.rs") && blocked.to_string().contains("check phase"));
    assert_eq!(event_loop.metrics().blocked, 1);
}

/// A library's callback that calls what its user has registered, which calls another library.
#[test]
fn the_watchdog_and_the_metrics_name_whose_part_of_a_callback_it_is() {
    fn elsewhere() -> &'static std::panic::Location<'static> {
        std::panic::Location::caller()
    }
    let mut event_loop = EventLoop::new().unwrap();
    let (report, reports) = mpsc::channel();
    let report = move |blocked: &Blocked| report.send(*blocked).unwrap();
    let _watchdog = event_loop.watchdog(milliseconds(20), report).unwrap();
    let (user, inner) = (std::panic::Location::caller(), elsewhere());
    let (handle, named) = (event_loop.handle().clone(), Rc::new(std::cell::RefCell::new(Vec::new())));
    let names = Rc::clone(&named);
    let line = line!() + 1;
    event_loop.set_immediate(move |_| {
        let next = || names.borrow_mut().extend(reports.recv_timeout(Duration::from_secs(30)).ok());
        handle.attribute(user, || {
            handle.attribute(inner, || {
                next();
                burn(milliseconds(300));
            });
            next();
        });
        // Without the panic hook: to print a backtrace may take longer than anything else here.
        let part = || handle.attribute(user, || std::panic::resume_unwind(Box::new("the user's")));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(part)).is_err());
        next();
    });
    event_loop.run().unwrap();
    let lines: Vec<u32> = named.borrow().iter().map(|blocked| blocked.site.line()).collect();
    assert_eq!(lines, [inner.line(), user.line(), line]);
    let slowest = event_loop.metrics().slowest_callback.expect("it took some time");
    assert_eq!((slowest.site, slowest.phase), (inner, Phase::Check), "without the others it is the slowest");
}

#[test]
fn the_watchdog_does_not_blame_a_loop_that_waits() {
    let mut event_loop = EventLoop::new().unwrap();
    let (report, reports) = mpsc::channel();
    // The threshold is longer than the machine takes the thread away, and the wait is longer than the threshold.
    let _watchdog =
        event_loop.watchdog(milliseconds(50), move |blocked| report.send(*blocked).unwrap()).unwrap();
    event_loop.set_timeout(milliseconds(250), |_| ());
    event_loop.run().unwrap();
    assert_eq!(event_loop.metrics().blocked, 0);
    assert!(reports.try_recv().is_err());
}

#[test]
fn a_callback_that_blocks_a_loop_which_has_slept_is_reported_too() {
    let mut event_loop = EventLoop::new().unwrap();
    let (report, reports) = mpsc::channel();
    let _watchdog =
        event_loop.watchdog(milliseconds(4), move |blocked| report.send(*blocked).unwrap()).unwrap();
    let blocked = Rc::new(Cell::new(0));
    let reports = Rc::new(reports);
    for delay in [50, 150] {
        let (count, reports) = (Rc::clone(&blocked), Rc::clone(&reports));
        event_loop.set_timeout(milliseconds(delay), move |_| {
            let report = reports.recv_timeout(Duration::from_secs(30));
            count.set(count.get() + u32::from(report.is_ok_and(|blocked| blocked.phase == Phase::Timers)));
        });
    }
    event_loop.run().unwrap();
    assert_eq!(blocked.get(), 2);
}

#[test]
fn a_watchdog_ends_with_its_guard_and_its_report() {
    let event_loop = EventLoop::new().unwrap();
    let (witness, end) = mpsc::channel::<()>();
    let watchdog = event_loop.watchdog(WATCHDOG_THRESHOLD, move |_| drop(witness.clone())).unwrap();
    drop(watchdog);
    assert_eq!(end.recv(), Err(mpsc::RecvError));
}

#[test]
fn the_metrics_tell_how_long_each_phase_took() {
    let mut event_loop = EventLoop::new().unwrap();
    event_loop.set_immediate(|context| {
        burn(milliseconds(2));
        context.next_tick(|_| burn(milliseconds(3)));
    });
    event_loop.set_timeout(Duration::ZERO, |_| burn(milliseconds(1)));
    event_loop.run().unwrap();
    let metrics = event_loop.metrics();
    let longest = |phase| metrics.phase(phase).map(|time| time.time.max_us);
    assert!(longest(Phase::Check).unwrap() >= 2_000);
    assert!(longest(Phase::Microtasks).unwrap() >= 3_000);
    assert!(longest(Phase::Timers).unwrap() >= 1_000);
    assert_eq!((longest(Phase::Poll), longest(Phase::Idle)), (None, None));
    assert!(metrics.lag.max_us >= 3_000, "also of the last turn");
    assert!(metrics.phase(Phase::Check).unwrap().total >= milliseconds(2));
    let Spread { count, total, up_to } = metrics.lag_spread;
    assert!(total >= milliseconds(6), "all turns together: {total:?}");
    assert!(up_to.is_sorted() && up_to[SPREAD_BOUNDS.len() - 1] <= count, "{up_to:?} of {count}");
    assert!(up_to[3] < count, "a turn of 3 ms is longer than {:?}", SPREAD_BOUNDS[3]);
    event_loop.reset_metrics();
    assert!(event_loop.metrics().phases.is_empty());
}

#[test]
fn the_metrics_tell_how_late_timers_and_events_were() {
    let mut event_loop = EventLoop::new().unwrap();
    event_loop.set_timeout(Duration::ZERO, |_| burn(milliseconds(5)));
    event_loop.set_timeout(Duration::ZERO, |_| ());
    for _ in 0..2 {
        event_loop.remote().post(|_| burn(milliseconds(4))).unwrap();
    }
    event_loop.run().unwrap();
    let Lateness { timers, poll } = event_loop.metrics().lateness;
    assert!(timers.max_us >= 5_000, "the second timer waited for the first: {timers:?}");
    assert!(poll.max_us >= 4_000, "the second post waited for the first: {poll:?}");
}

#[test]
fn what_wakes_the_loop_and_what_was_closed_meanwhile_wait_for_no_turn() {
    let mut event_loop = virtual_loop();
    let (_writer, reader) = readable_pair();
    let watcher = event_loop.watch(reader, Interest::READ, |_, _| unreachable!("it is closed")).unwrap();
    let take_long = move |context: &mut Context| {
        context.shared.clock.skip(5_000_000);
        context.close(watcher, |_| ()).unwrap();
    };
    event_loop.remote().post(take_long).unwrap();
    event_loop.run().unwrap();
    assert_eq!(event_loop.metrics().lateness.poll.max_us, 0, "the post was the only callback");
}

#[test]
fn s28_ticks_that_queue_ticks_starve_the_loop_and_are_counted_once() {
    let mut event_loop = loop_with(OnStarvation::Strict, milliseconds(1));
    let (goes_on, count) = (Rc::new(Cell::new(true)), Rc::default());
    tick_for_ever(&event_loop, Rc::clone(&goes_on), count);
    // Nothing but a tick can end this: the timer has no chance.
    let starved = Rc::new(Cell::new(false));
    let timer_ran = Rc::clone(&starved);
    event_loop.set_timeout(Duration::ZERO, move |_| timer_ran.set(true));
    let start = Instant::now();
    fn end_after(context: &LoopHandle, start: Instant, goes_on: Rc<Cell<bool>>, timer_ran: Rc<Cell<bool>>) {
        context.next_tick(move |context| match start.elapsed() > milliseconds(10) {
            true => {
                assert!(!timer_ran.get());
                goes_on.set(false);
            }
            false => end_after(context, start, goes_on, timer_ran),
        });
    }
    end_after(&event_loop, start, goes_on, Rc::clone(&starved));
    event_loop.run().unwrap();
    assert!(starved.get());
    assert_eq!(event_loop.metrics().starvation, Starvation { ticks: 1, ..Starvation::default() });
}

#[test]
fn within_a_budget_the_loop_goes_on_although_ticks_queue_ticks() {
    let mut event_loop = loop_with(OnStarvation::Budget, Duration::from_micros(100));
    let (goes_on, count) = (Rc::new(Cell::new(true)), Rc::<Cell<u64>>::default());
    tick_for_ever(&event_loop, Rc::clone(&goes_on), Rc::clone(&count));
    let so_far = Rc::clone(&count);
    event_loop.set_timeout(milliseconds(1), move |_| {
        assert!(so_far.get() > 0);
        goes_on.set(false);
    });
    event_loop.run().unwrap();
    assert!(event_loop.metrics().starvation.ticks >= 1);
}

#[test]
fn what_a_budget_leaves_over_keeps_its_order() {
    let mut event_loop = loop_with(OnStarvation::Budget, Duration::ZERO);
    let order = Rc::new(std::cell::RefCell::new(Vec::new()));
    for number in 0..1_000 {
        let order = Rc::clone(&order);
        event_loop.queue_microtask(move |_| order.borrow_mut().push(number));
    }
    event_loop.run().unwrap();
    assert!(order.take().into_iter().eq(0..1_000));
    assert!(event_loop.metrics().starvation.microtasks >= 1);
}

#[test]
fn within_a_budget_idle_hooks_take_turns() {
    let mut event_loop = loop_with(OnStarvation::Budget, milliseconds(1));
    let second_ran = Rc::new(Cell::new(false));
    let (first, second) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(None)));
    let ran = Rc::clone(&second_ran);
    first.set(Some(event_loop.idle(|_| burn(milliseconds(2)))));
    let both = [Rc::clone(&first), Rc::clone(&second)];
    second.set(Some(event_loop.idle(move |context| {
        ran.set(true);
        for id in both.iter().filter_map(|id| id.take()) {
            context.close(id, |_| ()).unwrap();
        }
    })));
    event_loop.run().unwrap();
    assert!(second_ran.get(), "the first hook alone spends the budget of an iteration");
    assert!(event_loop.metrics().starvation.idle >= 1);
}

#[test]
fn why_the_loop_is_alive_is_told_with_the_places_that_are_to_blame() {
    let mut event_loop = virtual_loop();
    let line = line!();
    let timer = event_loop.set_timeout(milliseconds(1), |_| ());
    let _hold = event_loop.hold();
    let request = event_loop.request(|_, ()| ());
    let hook = event_loop.prepare(|_| ());
    for _ in 0..2 {
        event_loop.set_immediate(|_| ());
    }
    let told = |event_loop: &EventLoop| -> Vec<(AliveKind, u32, usize)> {
        let reasons = event_loop.why_alive();
        reasons.iter().map(|alive| (alive.what, alive.site.line() - line, alive.count)).collect()
    };
    let expected = [
        (AliveKind::Timer, 1, 1),
        (AliveKind::Hook, 4, 1),
        (AliveKind::Request, 3, 1),
        (AliveKind::Hold, 2, 1),
        (AliveKind::Callback(Phase::Check), 6, 2),
    ];
    assert_eq!(told(&event_loop), expected);
    event_loop.run_mode(RunMode::NoWait).unwrap();
    event_loop.unref(timer);
    event_loop.unref(hook);
    drop(request);
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(told(&event_loop), [(AliveKind::Hold, 2, 1)]);
    assert!(event_loop.why_alive()[0].to_string().starts_with("1 x hold, from "));
}

#[test]
fn s71_a_step_over_its_budget_is_counted_and_its_partition_named() {
    let mut event_loop = EventLoop::new().unwrap();
    let line = line!() + 1;
    event_loop.partition(0, one_slow_step, |_, steps| assert_eq!(steps, 3));
    event_loop.partition_within(PARTITION_BUDGET, 0, |_: &mut i32| ControlFlow::Break(()), |_, ()| ());
    event_loop.run().unwrap();
    let metrics = event_loop.metrics();
    let slowest = metrics.slowest_step.expect("a step of 2 ms is over every budget here");
    assert!(metrics.steps_over_budget >= 1);
    assert_eq!(slowest.site.line(), line);
    assert!(slowest.duration >= milliseconds(2));
}

/// Asynchronous, and not bounded.
fn one_slow_step(steps: &mut i32) -> ControlFlow<i32> {
    *steps += 1;
    match *steps {
        2 => burn(milliseconds(2)),
        3 => return ControlFlow::Break(3),
        _ => {}
    }
    ControlFlow::Continue(())
}
