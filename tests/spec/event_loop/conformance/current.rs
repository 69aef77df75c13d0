//! What a callback can find out about itself: where it was registered, and in which phase it runs.

use std::cell::Cell;
use std::rc::Rc;

use offload_event_loop::{CallbackId, Context, EventLoop, Interest, Phase};
use signal_hook::consts::SIGUSR2;

use super::{connection, connection_with_a_byte, milliseconds, real_loop, virtual_loop};
use crate::stage::Order;

/// A callback that writes down what it learns, and the name that it was told.
fn learn(told: &Order<(Phase, Option<CallbackId>)>) -> impl FnMut(&mut Context) + 'static {
    let told = told.clone();
    move |context| told.push((context.current().phase, context.current().id))
}

#[test]
fn timers_and_immediates_learn_their_own_names() {
    let mut event_loop = virtual_loop();
    let told = Order::new();
    let timeout = event_loop.set_timeout(milliseconds(1), learn(&told));
    let immediate = event_loop.set_immediate(learn(&told));
    let mut learn_and_stop = learn(&told);
    let interval = event_loop.set_interval(milliseconds(2), move |context| {
        learn_and_stop(context);
        let Some(CallbackId::Timer(own)) = context.current().id else { panic!("it is a timer") };
        assert!(context.clear(own));
    });
    assert!(!event_loop.run().unwrap(), "the interval has cleared itself");
    let expected = [
        (Phase::Check, Some(CallbackId::Immediate(immediate))),
        (Phase::Timers, Some(CallbackId::Timer(timeout))),
        (Phase::Timers, Some(CallbackId::Timer(interval))),
    ];
    assert_eq!(told.so_far(), expected);
}

fn close_itself(context: &mut Context) {
    let Some(CallbackId::Handle(own)) = context.current().id else { panic!("it has a handle") };
    context.close(own, |_| ()).unwrap();
}

#[test]
fn hooks_watchers_and_signal_handlers_learn_their_own_names_and_can_close_themselves() {
    let mut event_loop = real_loop();
    let told = Order::new();
    let learn_and_close = || {
        let mut learn = learn(&told);
        move |context: &mut Context| {
            learn(context);
            close_itself(context);
        }
    };
    let (_peer, stream) = connection_with_a_byte();
    let (mut of_watcher, mut of_signal) = (learn_and_close(), learn_and_close());
    let handles = [
        (Phase::Idle, event_loop.idle(learn_and_close())),
        (Phase::Prepare, event_loop.prepare(learn_and_close())),
        (
            Phase::Poll,
            event_loop.watch(stream, Interest::READ, move |context, _| of_watcher(context)).unwrap(),
        ),
        (Phase::Check, event_loop.check(learn_and_close())),
    ];
    let signal = event_loop.on_signal(&[SIGUSR2], move |context, _| of_signal(context)).unwrap();
    event_loop.set_immediate(|_| signal_hook::low_level::raise(SIGUSR2).unwrap());
    assert!(!event_loop.run().unwrap(), "all have closed themselves");
    let mut expected: Vec<_> =
        handles.into_iter().map(|(phase, handle)| (phase, Some(CallbackId::Handle(handle)))).collect();
    expected.push((Phase::Poll, Some(CallbackId::Handle(signal))));
    assert_eq!(told.so_far(), expected);
}

#[test]
fn what_has_no_name_learns_its_phase_also_right_after_a_callback_that_has_one() {
    let mut event_loop = real_loop();
    let told = Order::new();
    let (mut tick, mut microtask) = (learn(&told), learn(&told));
    event_loop.set_immediate(move |context| {
        context.next_tick(move |context| tick(context));
        context.queue_microtask(move |context| microtask(context));
    });
    event_loop.set_pending(learn(&told));
    let closed = event_loop.watch(connection().1, Interest::READ, |_, _| ()).unwrap();
    event_loop.close(closed, learn(&told)).unwrap();
    let (sender, posted) = std::sync::mpsc::channel();
    event_loop.remote().post(move |context| sender.send(context.current()).unwrap()).unwrap();
    event_loop.run().unwrap();
    let phases = [Phase::Pending, Phase::Microtasks, Phase::Microtasks, Phase::Closing];
    assert_eq!(told.so_far(), phases.map(|phase| (phase, None)));
    let posted = posted.recv().unwrap();
    assert_eq!((posted.phase, posted.id, posted.site.file()), (Phase::Poll, None, file!()));
}

#[test]
fn the_code_outside_of_run_is_in_the_entry_phase_before_and_after() {
    let mut event_loop = virtual_loop();
    let is_entry = |event_loop: &EventLoop| {
        let current = event_loop.current();
        current.phase == Phase::Entry && current.id.is_none()
    };
    assert!(is_entry(&event_loop));
    event_loop.set_timeout(milliseconds(1), |_| ());
    event_loop.run().unwrap();
    assert!(is_entry(&event_loop));
}

#[test]
fn a_callback_learns_where_it_was_registered_and_so_does_the_panic_handler() {
    let mut event_loop = virtual_loop();
    let line = Rc::new(Cell::new(0));
    let seen = Rc::clone(&line);
    event_loop.set_panic_handler(move |context, panic| {
        assert_eq!(context.current().site, panic.site);
        seen.set(panic.site.line());
    });
    event_loop.set_immediate(|context| panic!("{}", context.current().site));
    let expected = line!() - 1;
    event_loop.run().unwrap();
    assert_eq!(line.get(), expected);
}
