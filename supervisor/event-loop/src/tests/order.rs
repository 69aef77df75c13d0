//! In which order callbacks run.

use super::*;

#[test]
fn s10_a_timer_is_never_early_and_runs_once() {
    let mut event_loop = real_loop();
    let (start, delay) = (Instant::now(), milliseconds(3));
    let fired = Rc::new(Cell::new(0));
    let count = Rc::clone(&fired);
    event_loop.set_timeout(delay, move |_| {
        assert!(start.elapsed() >= delay);
        count.set(count.get() + 1);
    });
    event_loop.run().unwrap();
    assert_eq!(fired.get(), 1);
}

#[test]
fn timers_run_by_due_time_and_then_by_start() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    event_loop.set_timeout(milliseconds(20), log.entry("20"));
    event_loop.set_timeout(milliseconds(10), log.entry("10 first"));
    event_loop.set_timeout(milliseconds(10), log.entry("10 second"));
    event_loop.run().unwrap();
    log.expect(&["10 first", "10 second", "20"]);
}

#[test]
fn s25_inside_an_io_callback_the_immediate_is_always_first() {
    for _ in 0..100 {
        let (mut event_loop, log) = (real_loop(), Log::default());
        let (_writer, reader) = readable_pair();
        let (inner, id) = (log.clone(), Rc::new(Cell::new(None)));
        let own_id = Rc::clone(&id);
        let watched = event_loop.watch(reader, Interest::READ, move |context, _| {
            context.set_timeout(Duration::ZERO, inner.entry("timeout"));
            context.set_immediate(inner.entry("immediate"));
            context.close(own_id.get().expect("set before the loop runs"), |_| ()).unwrap();
        });
        id.set(Some(watched.unwrap()));
        event_loop.run().unwrap();
        log.expect(&["immediate", "timeout"]);
    }
}

#[test]
fn s27_ticks_then_microtasks_run_after_every_callback() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    for name in ["first", "second"] {
        let log = log.clone();
        event_loop.set_immediate(move |context| {
            log.add(name);
            context.queue_microtask(log.entry("microtask"));
            context.next_tick(log.entry("tick"));
        });
    }
    event_loop.next_tick(log.entry("tick of the entry"));
    event_loop.run().unwrap();
    log.expect(&["tick of the entry", "first", "tick", "microtask", "second", "tick", "microtask"]);
}

#[test]
fn a_tick_queued_by_a_microtask_waits_for_all_microtasks() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    let inner = log.clone();
    event_loop.queue_microtask(move |context| {
        inner.add("microtask 1");
        context.next_tick(inner.entry("tick"));
        context.queue_microtask(inner.entry("microtask 3"));
    });
    event_loop.queue_microtask(log.entry("microtask 2"));
    event_loop.run().unwrap();
    log.expect(&["microtask 1", "microtask 2", "microtask 3", "tick"]);
}

#[test]
fn s30_a_million_chained_ticks_need_no_stack() {
    fn chain(context: &mut Context, left: u32) {
        if left > 0 {
            context.next_tick(move |context| chain(context, left - 1));
        }
    }
    let mut event_loop = virtual_loop();
    event_loop.next_tick(|context| chain(context, 1_000_000));
    event_loop.run().unwrap();
}

#[test]
fn an_immediate_set_by_an_immediate_waits_for_the_next_iteration() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    let inner = log.clone();
    event_loop.set_immediate(move |context| {
        inner.add("outer");
        context.set_immediate(inner.entry("inner"));
    });
    event_loop.check({
        let log = log.clone();
        move |_| log.add("check")
    });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    log.expect(&["check", "outer"]);
    event_loop.run_mode(RunMode::NoWait).unwrap();
    log.expect(&["check", "outer", "check", "inner"]);
}

#[test]
fn s2_the_phases_follow_each_other_in_order() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    let (_writer, reader) = readable_pair();
    event_loop.set_timeout(Duration::ZERO, log.entry("timer"));
    event_loop.set_immediate(log.entry("immediate"));
    event_loop.set_pending(log.entry("pending"));
    let closed = event_loop.idle(|_| ());
    event_loop.close(closed, log.entry("closed")).unwrap();
    for (name, add) in [
        ("check", LoopHandle::check as fn(&_, _) -> _),
        ("prepare", LoopHandle::prepare),
        ("idle", LoopHandle::idle),
    ] {
        let log = log.clone();
        let hook: Box<dyn FnMut(&mut Context)> = Box::new(move |_| log.add(name));
        add(&event_loop, hook);
    }
    let poll = log.clone();
    event_loop.watch(reader, Interest::READ, move |_, _| poll.add("poll")).unwrap();
    event_loop.run_mode(RunMode::Once).unwrap();
    log.expect(&["pending", "idle", "prepare", "poll", "check", "immediate", "closed"]);
}

#[test]
fn a_cleared_timer_or_immediate_does_not_run_and_says_so_once() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    let timer = event_loop.set_timeout(Duration::ZERO, log.entry("timer"));
    let immediate = event_loop.set_immediate(log.entry("immediate"));
    assert!(event_loop.clear(timer) && event_loop.clear(immediate));
    assert!(!event_loop.clear(timer) && !event_loop.clear(immediate));
    assert!(!event_loop.run().unwrap());
    log.expect(&[]);
}

#[test]
fn an_interval_beats_until_it_clears_itself() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    let (id, inner) = (Rc::new(Cell::new(None::<TimerId>)), log.clone());
    let own_id = Rc::clone(&id);
    let mut beats = 0;
    id.set(Some(event_loop.set_interval(milliseconds(5), move |context| {
        beats += 1;
        inner.add(format!("beat {beats}"));
        if beats == 3 {
            assert!(context.clear(own_id.get().unwrap()));
        }
    })));
    event_loop.run().unwrap();
    log.expect(&["beat 1", "beat 2", "beat 3"]);
}

#[test]
fn s53_a_partitioned_sum_equals_the_direct_one_and_others_run_in_between() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    for budget in [Duration::ZERO, milliseconds(1)] {
        let inner = log.clone();
        let step = |(next, sum): &mut (u64, u64)| {
            *sum += *next;
            *next += 1;
            if *next > 100 { ControlFlow::Break(*sum) } else { ControlFlow::Continue(()) }
        };
        event_loop.partition_within(budget, (1, 0), step, move |_, sum| inner.add(format!("sum {sum}")));
        event_loop.set_immediate(log.entry("other"));
    }
    event_loop.run().unwrap();
    assert_eq!(log.0.borrow().iter().filter(|entry| *entry == "sum 5050").count(), 2);
    assert_eq!(log.0.borrow()[0], "other");
}

#[test]
fn ticks_come_before_microtasks_whatever_ran_before() {
    for already_run in 1..100 {
        let (mut event_loop, log) = (virtual_loop(), Log::default());
        event_loop.set_immediate(move |context| {
            (0..already_run).for_each(|_| context.queue_microtask(|_| ()));
        });
        let inner = log.clone();
        event_loop.set_immediate(move |context| {
            context.queue_microtask(inner.entry("microtask"));
            context.next_tick(inner.entry("tick"));
        });
        event_loop.run().unwrap();
        log.expect(&["tick", "microtask"]);
    }
}

#[test]
fn what_is_ready_at_one_poll_is_told_before_the_next() {
    let mut event_loop = real_loop();
    let (seen, late) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(None)));
    let (first, second) = (readable_pair(), readable_pair());
    for reader in [first.1, second.1] {
        let (seen, late) = (Rc::clone(&seen), Rc::clone(&late));
        let told = move |context: &mut Context, _| {
            seen.borrow_mut().push(context.polls());
            if late.borrow().is_none() {
                // It is readable from now on, which only the next poll can tell.
                let (writer, reader) = readable_pair();
                let seen = Rc::clone(&seen);
                let told = move |context: &mut Context, _| {
                    seen.borrow_mut().push(context.polls());
                    context.stop();
                };
                context.watch(reader, Interest::READ, told).unwrap();
                late.replace(Some(writer));
            }
        };
        event_loop.watch(reader, Interest::READ, told).unwrap();
    }
    event_loop.run().unwrap();
    let seen = seen.borrow();
    assert!(seen[0] == seen[1] && seen.last() > seen.first(), "{seen:?}");
}
