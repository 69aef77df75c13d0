//! What there is in a loop, and what a timer says of itself.

use super::*;

#[test]
fn timers_handles_and_immediates_say_whether_they_are_active_and_referenced() {
    let mut event_loop = virtual_loop();
    let timer = event_loop.set_timeout(milliseconds(1), |_| ());
    let hook = event_loop.idle(|_| ());
    let immediate = event_loop.set_immediate(|_| ());
    assert!(event_loop.is_active(timer) && event_loop.is_active(hook) && event_loop.is_active(immediate));
    assert!(event_loop.is_referenced(timer) && event_loop.is_referenced(hook));
    event_loop.unref(timer);
    event_loop.unref(hook);
    event_loop.unref(immediate);
    assert!(!event_loop.is_referenced(timer) && !event_loop.is_referenced(hook));
    assert!(!event_loop.is_referenced(immediate));
    assert!(event_loop.is_active(timer) && event_loop.is_active(hook), "both are active nevertheless");
    event_loop.pause(hook).unwrap();
    assert!(!event_loop.is_active(hook));
    event_loop.ref_(timer);
    event_loop.run().unwrap();
    assert!(!event_loop.is_active(timer) && !event_loop.is_referenced(timer), "it has run");
    assert!(!event_loop.is_active(immediate));
    event_loop.resume(hook).unwrap();
    event_loop.close(hook, |_| ()).unwrap();
    assert!(!event_loop.is_active(hook) && !event_loop.is_referenced(hook));
}

#[test]
fn sources_say_whether_they_are_active_and_referenced() {
    let event_loop = real_loop();
    let (reader, _writer) = Stream::pair(&event_loop).unwrap();
    assert!(!reader.is_active() && reader.is_referenced());
    reader.read_start(|_, _, _| ()).unwrap();
    reader.unref();
    assert!(reader.is_active() && !reader.is_referenced());
    reader.close(|_| ()).unwrap();
    assert!(!reader.is_active() && !reader.is_referenced());
}

#[test]
fn all_timers_and_handles_are_listed_with_their_places() {
    let event_loop = real_loop();
    let line = line!();
    let timer = event_loop.set_timeout(milliseconds(1), |_| ());
    let hook = event_loop.idle(|_| ());
    let (listener, _) = tcp_listener(&event_loop);
    let socket = UdpSocket::bind(&event_loop, "127.0.0.1:0".parse().unwrap()).unwrap();
    socket.receive_start(|_, _, _| ()).unwrap();
    event_loop.unref(timer);
    event_loop.pause(hook).unwrap();
    let listed: Vec<_> =
        event_loop.handles().into_iter().map(|it| (it.what, it.is_active, it.is_referenced)).collect();
    let expected = [
        (AliveKind::Timer, true, false),
        (AliveKind::Hook, false, true),
        (AliveKind::Listener, false, true),
        (AliveKind::UdpSocket, true, true),
    ];
    assert_eq!(listed, expected);
    assert_eq!(event_loop.handles()[0].site.line(), line + 1);
    assert_eq!(event_loop.why_alive().len(), 1, "only the UDP socket keeps the loop alive");
    listener.close(|_| ()).unwrap();
    assert_eq!(event_loop.handles().len(), 3, "what is closed is not listed");
}

#[test]
fn a_timer_tells_how_long_it_is_until_it_is_due() {
    let mut event_loop = virtual_loop();
    let timer = event_loop.set_timeout(milliseconds(100), |_| ());
    let interval = event_loop.set_interval(milliseconds(40), |context| {
        let Some(CallbackId::Timer(own)) = context.current().id else { panic!("it has a name") };
        assert_eq!(context.due_in(own), None, "it is not armed while it runs");
    });
    let due = event_loop.due_in(timer).unwrap();
    assert!(due >= milliseconds(100) && due < milliseconds(101), "{due:?}");
    assert_eq!(event_loop.due_in(interval), Some(milliseconds(40)));
    event_loop.set_timeout(milliseconds(60), move |context| {
        let due = context.due_in(timer).unwrap();
        assert!(due > milliseconds(39) && due < milliseconds(41), "{due:?}");
        context.clear(interval);
        assert_eq!(context.due_in(interval), None);
    });
    event_loop.run().unwrap();
    assert_eq!(event_loop.due_in(timer), None);
}

#[test]
fn the_time_until_a_timer_is_due_counts_from_the_call_not_from_the_loops_time() {
    let event_loop = real_loop();
    // The loop's time stays where it was when the loop was made.
    while Instant::now() < event_loop.now() + milliseconds(2) {}
    let timer = event_loop.set_timeout(milliseconds(10), |_| ());
    assert!(event_loop.due_in(timer).unwrap() < milliseconds(11));
}

#[test]
fn a_timer_that_is_due_and_waits_for_its_turn_is_due_in_no_time() {
    let mut event_loop = virtual_loop();
    let later = Rc::new(Cell::new(None));
    let other = Rc::clone(&later);
    event_loop.set_timeout(milliseconds(1), move |context| {
        assert_eq!(context.due_in(other.get().unwrap()), Some(Duration::ZERO));
        assert!(context.is_active(other.get().unwrap()));
    });
    later.set(Some(event_loop.set_timeout(milliseconds(1), |_| ())));
    event_loop.run().unwrap();
}

/// The times of an interval's beats in milliseconds; `change` is called with the number of each beat, in its callback.
fn beats(
    catchup: Catchup,
    count: usize,
    change: impl Fn(&mut Context, TimerId, usize) + 'static,
) -> Vec<u128> {
    let mut event_loop = virtual_loop();
    let (start, times) = (event_loop.now(), Rc::new(RefCell::new(Vec::new())));
    let seen = Rc::clone(&times);
    event_loop.set_interval_with(milliseconds(100), catchup, move |context| {
        let Some(CallbackId::Timer(own)) = context.current().id else { panic!("it has a name") };
        seen.borrow_mut().push((context.now() - start).as_millis());
        let number = seen.borrow().len();
        change(context, own, number);
        if number == count {
            context.clear(own);
        }
    });
    event_loop.run().unwrap();
    times.take()
}

#[test]
fn a_new_period_set_by_the_interval_itself_counts_from_its_next_beat_on() {
    let change = |context: &mut Context, own, number| {
        if number == 1 {
            assert!(context.set_repeat(own, milliseconds(10)));
        }
    };
    assert_eq!(beats(Catchup::FixedRate, 4, change), [100, 200, 210, 220]);
    assert_eq!(beats(Catchup::Drift, 3, change)[..2], [100, 200]);
}

#[test]
fn a_new_period_leaves_the_beat_that_is_waited_for_in_its_place() {
    let mut event_loop = virtual_loop();
    let (start, log) = (event_loop.now(), Log::default());
    let seen = log.clone();
    let catchup = Catchup::FixedRate;
    let interval = event_loop.set_interval_with(milliseconds(100), catchup, move |context| {
        seen.add(format!("{}", (context.now() - start).as_millis()));
    });
    event_loop.set_timeout(milliseconds(50), move |context| {
        assert!(context.set_repeat(interval, milliseconds(30)));
    });
    event_loop.set_timeout(milliseconds(140), move |context| assert!(context.clear(interval)));
    event_loop.run().unwrap();
    log.expect(&["100", "130"]);
}

#[test]
fn a_period_of_zero_makes_the_next_beat_the_last_one() {
    let change = |context: &mut Context, own, number| {
        let changed = context.set_repeat(own, if number == 1 { Duration::ZERO } else { milliseconds(5) });
        assert!(changed);
    };
    assert_eq!(beats(Catchup::FixedRate, 9, change), [100, 200], "it was set again too late");
}

#[test]
fn a_timeout_and_what_was_cleared_have_no_period() {
    let event_loop = virtual_loop();
    let timeout = event_loop.set_timeout(milliseconds(1), |_| ());
    assert!(!event_loop.set_repeat(timeout, milliseconds(1)));
    let interval = event_loop.set_interval(milliseconds(1), |_| ());
    assert!(event_loop.set_repeat(interval, milliseconds(2)));
    event_loop.clear(interval);
    assert!(!event_loop.set_repeat(interval, milliseconds(2)));
}
