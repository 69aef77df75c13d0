//! S27 to S35: ticks.

use std::cell::Cell;
use std::fmt;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use offload_event_loop::{Context, Interest, LoopHandle, RunMode};
use tests::harness::run;

use super::props::{
    CHECK, IDLE, PREPARE, burn, hook_once, in_poll, milliseconds, readable_pair, real_loop, virtual_loop,
};
use crate::stage::{Order, beside_others};

#[test]
fn s27_ticks_run_after_the_current_callback_of_whatever_phase_and_before_the_next_one() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let ticking = |name: &'static str| {
        let order = order.clone();
        move |context: &mut Context| {
            context.next_tick(order.add((name, "tick")));
            order.push((name, "callback"));
        }
    };
    for _ in 0..2 {
        event_loop.set_pending(ticking("pending"));
        hook_once(&event_loop, IDLE, ticking("idle"));
        hook_once(&event_loop, PREPARE, ticking("prepare"));
        in_poll(&event_loop, ticking("poll"));
        hook_once(&event_loop, CHECK, ticking("check"));
        event_loop.set_immediate(ticking("immediate"));
        let closed = event_loop.idle(|_| ());
        event_loop.close(closed, ticking("closing")).unwrap();
        event_loop.set_timeout(milliseconds(1), ticking("timer"));
    }
    event_loop.run().unwrap();
    let phases = ["pending", "idle", "prepare", "poll", "check", "immediate", "closing", "timer"];
    let twice = |name| [(name, "callback"), (name, "tick"), (name, "callback"), (name, "tick")];
    assert_eq!(order.so_far(), phases.map(twice).concat());
}

/// Queues itself as a tick again and again.
fn tick_on(context: &mut Context, left: u32, end: impl FnOnce(&mut Context) + 'static) {
    match left {
        0 => end(context),
        _ => context.next_tick(move |context| tick_on(context, left - 1, end)),
    }
}

#[test]
fn s28_ticks_that_queue_ticks_starve_every_phase_until_they_end() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    event_loop.set_immediate(order.add("immediate"));
    event_loop.set_timeout(milliseconds(1), order.add("timer"));
    event_loop.set_pending(order.add("pending"));
    in_poll(&event_loop, order.add("event"));
    let end = order.clone();
    // A hundred thousand ticks take longer than the timer of 1 ms, and nothing of it all is waited for.
    event_loop.next_tick(move |context| {
        tick_on(context, 100_000, move |context| {
            burn(milliseconds(2));
            assert_eq!(context.metrics().iterations, 0, "the loop has not even begun");
            end.push("end of the ticks");
        });
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["end of the ticks", "timer", "pending", "event", "immediate"]);
}

#[derive(Debug, PartialEq, Eq)]
struct TypeError(&'static str);

impl fmt::Display for TypeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TypeError: {}", self.0)
    }
}

/// What the seed hands to its API.
enum Argument {
    String(&'static str),
    NoString,
}

/// An API that is asynchronous even where it has nothing to wait for.
fn api_call(
    event_loop: &LoopHandle,
    argument: &Argument,
    callback: impl FnOnce(Result<&'static str, TypeError>) + 'static,
) {
    let result = match argument {
        Argument::String(string) => Ok(*string),
        Argument::NoString => Err(TypeError("argument should be string")),
    };
    event_loop.next_tick(move |_| callback(result));
}

#[test]
fn s29_an_api_tells_its_error_after_the_callers_code_and_before_the_loop_goes_on() {
    let (mut event_loop, order) = (virtual_loop(), Order::<String>::new());
    let inner = order.clone();
    event_loop.set_immediate(move |context| {
        let (failed, worked) = (inner.clone(), inner.clone());
        api_call(context, &Argument::NoString, move |result| failed.push(result.unwrap_err().to_string()));
        api_call(context, &Argument::String("seven"), move |result| worked.push(result.unwrap().to_owned()));
        inner.push("the caller goes on".to_owned());
    });
    event_loop.set_immediate(order.add("the loop goes on".to_owned()));
    event_loop.run().unwrap();
    let expected =
        ["the caller goes on", "TypeError: argument should be string", "seven", "the loop goes on"];
    assert_eq!(order.so_far(), expected);
}

/// Memory of this process that is in use, in pages of at least 4 KiB.
fn resident_pages() -> u64 {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    sizes.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Resident memory after the first thousand of the chained ticks, and at their end.
fn memory_of_chained_ticks(count: u32) -> (u64, u64) {
    let mut event_loop = virtual_loop();
    let (before, after) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (seen_before, seen_after) = (Rc::clone(&before), Rc::clone(&after));
    event_loop.next_tick(move |context| {
        tick_on(context, 1_000, move |context| {
            seen_before.set(resident_pages());
            tick_on(context, count, move |_| seen_after.set(resident_pages()));
        });
    });
    event_loop.run().unwrap();
    (before.get(), after.get())
}

/// Runs one test of this file in a process of its own, where no other test needs memory meanwhile. True there.
fn is_alone_in_its_process(test: &str) -> bool {
    let mark = "OFFLOAD_TEST_ALONE";
    if std::env::var_os(mark).is_some() {
        return true;
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture"]).arg(format!("{module}::{test}")).env(mark, "1");
    let ran = run(&mut command, b"").ok();
    assert!(ran.text().contains("1 passed"), "{ran:?}");
    false
}

#[test]
fn s30_ten_million_chained_ticks_run_in_a_flat_stack_and_flat_memory() {
    let _beside = beside_others();
    if is_alone_in_its_process("s30_ten_million_chained_ticks_run_in_a_flat_stack_and_flat_memory") {
        // A frame a tick would fill this stack ten thousand times.
        let small_stack = std::thread::Builder::new().stack_size(128 * 1_024);
        let thread = small_stack.spawn(|| memory_of_chained_ticks(10_000_000)).unwrap();
        let (before, after) = thread.join().unwrap();
        // A single byte a tick would be 2,442 pages.
        assert!(after < before + 200, "{before} pages became {after}");
    }
}

/// The assignment of the seed: `bar = 1` right after the call that was given a callback.
fn what_the_callback_sees(some_async_api_call: fn(&LoopHandle, Box<dyn FnOnce()>)) -> Option<u32> {
    let mut event_loop = virtual_loop();
    let (bar, seen) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(None)));
    let (looked_at, sees) = (Rc::clone(&bar), Rc::clone(&seen));
    some_async_api_call(&event_loop, Box::new(move || sees.set(looked_at.get())));
    bar.set(Some(1));
    event_loop.run().unwrap();
    seen.get()
}

#[test]
fn s31_a_callback_that_is_called_synchronously_sees_bar_undefined() {
    assert_eq!(what_the_callback_sees(|_, callback| callback()), None);
}

#[test]
fn s32_a_callback_that_is_called_by_a_tick_sees_bar_assigned() {
    let by_a_tick =
        |event_loop: &LoopHandle, callback: Box<dyn FnOnce()>| event_loop.next_tick(|_| callback());
    assert_eq!(what_the_callback_sees(by_a_tick), Some(1));
}

#[test]
fn s33_a_tick_comes_at_once_and_an_immediate_in_the_next_check_phase() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let inner = order.clone();
    event_loop.set_timeout(milliseconds(1), move |context| {
        context.set_immediate(inner.add("immediate"));
        context.next_tick(inner.add("tick"));
        inner.push("timer");
    });
    event_loop.set_timeout(milliseconds(1), order.add("next timer"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["timer", "tick", "next timer", "immediate"]);
}

#[test]
fn s33_an_immediate_that_an_immediate_sets_waits_for_the_next_iteration() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    event_loop.check(order.add("check phase"));
    let inner = order.clone();
    event_loop.set_immediate(move |context| {
        inner.push("immediate");
        context.set_immediate(inner.add("immediate of the immediate"));
    });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["check phase", "immediate", "check phase", "immediate of the immediate"]);
}

/// Sets itself as an immediate again and again, and does what a tick must not: it lets the others have their turn.
fn immediate_on(context: &mut Context, is_over: Rc<Cell<bool>>) {
    if !is_over.get() {
        context.set_immediate(move |context| immediate_on(context, is_over));
    }
}

#[test]
fn s34_immediates_that_set_immediates_starve_nobody() {
    let (mut event_loop, order) = (real_loop(), Order::new());
    let is_over = Rc::new(Cell::new(false));
    immediate_on(&mut event_loop, Rc::clone(&is_over));
    in_poll(&event_loop, order.add("event"));
    let last = order.clone();
    event_loop.set_timeout(milliseconds(2), move |_| {
        last.push("timer");
        is_over.set(true);
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["event", "timer"]);
}

#[test]
fn s35_a_tick_frees_resources_and_tries_again_before_the_loop_goes_on() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let (_writer, reader) = readable_pair();
    let needless = Rc::new(Cell::new(None));
    let (freed, inner) = (Rc::clone(&needless), order.clone());
    in_poll(&event_loop, move |context| {
        inner.push("failed");
        context.next_tick(move |context| {
            context.close(freed.get().unwrap(), |_| ()).unwrap();
            inner.push("freed");
            context.next_tick(inner.add("tried again"));
        });
    });
    let watched = event_loop.watch(reader, Interest::READ, {
        let order = order.clone();
        move |_, _| order.push("event of what was freed")
    });
    needless.set(Some(watched.unwrap()));
    event_loop.set_immediate(order.add("the loop goes on"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["failed", "freed", "tried again", "the loop goes on"]);
}

type Listener = Box<dyn FnOnce()>;

/// The emitter of the seed: it emits in its constructor, when nobody can have subscribed yet.
#[derive(Clone, Default)]
struct Emitter(Rc<Cell<Option<Listener>>>);

impl Emitter {
    fn new(event_loop: &LoopHandle) -> Emitter {
        let emitter = Emitter::default();
        let emitting = emitter.clone();
        event_loop.next_tick(move |_| emitting.emit());
        emitter
    }

    fn on(&self, listener: impl FnOnce() + 'static) {
        self.0.set(Some(Box::new(listener)));
    }

    fn emit(&self) {
        if let Some(listener) = self.0.take() {
            listener();
        }
    }
}

#[test]
fn s35_an_event_emitted_in_a_constructor_by_a_tick_finds_its_listener() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let heard = order.clone();
    event_loop.set_timeout(Duration::ZERO, order.add("the loop goes on"));
    let emitter = Emitter::new(&event_loop);
    emitter.on(move || heard.push("an event occurred"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["an event occurred", "the loop goes on"]);
}
