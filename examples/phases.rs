//! The classic puzzle: in which order do all these callbacks run? The program prints them as they run, each with the
//! reason why it is its turn.
//!
//! `cargo run -p examples --bin phases`

use offload_event_loop::{Context, HandleId, Interest};
use offload_supervisor::EventLoop;
use std::cell::Cell;
use std::error::Error;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

fn say(what: &str, why: &str) {
    println!("{what:<29}{why}");
}

/// A callback that does nothing but be seen.
fn line(what: &'static str, why: &'static str) -> impl FnOnce(&mut Context) {
    move |_cx| say(what, why)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut event_loop = EventLoop::new()?;
    say("main script: first line", "the script runs wholly before the loop does");

    event_loop
        .set_timeout(Duration::ZERO, line("timeout 0", "due now or at the clock's next step: may change"));
    event_loop.set_immediate(line("immediate", "the check phase comes right after the poll"));
    event_loop.queue_microtask(line("microtask", "after all ticks, in the order of queueing"));
    event_loop.spawn(async { say("future", "its first part is a microtask, too") });
    let handle = event_loop.handle();
    event_loop.next_tick(move |cx| {
        say("tick", "after the script, before anything of the loop");
        cx.next_tick(line("tick of the tick", "before the loop goes on, however many there are"));
    });
    event_loop.spawn(async move {
        handle.yield_now().await;
        say("future, after yielding", "behind all microtasks, still before the loop goes on");
    });

    let (mut writer, reader) = UnixStream::pair()?;
    writer.write_all(b"!")?;
    let id = Rc::new(Cell::new(None::<HandleId>));
    let own_id = Rc::clone(&id);
    let watcher = event_loop.watch(reader, Interest::READ, move |cx, _readiness| {
        on_readable(cx);
        if let Some(id) = own_id.get() {
            let closed = line("close", "the closing phase is the last but the timers");
            cx.close(id, closed).unwrap_or_else(|error| eprintln!("{error}"));
        }
    })?;
    id.set(Some(watcher));

    say("main script: last line", "everything above was only registered");
    event_loop.run()?; // returns when nothing is left to wait for
    Ok(())
}

fn on_readable(cx: &mut Context) {
    say("I/O callback", "the poll phase found the socket readable");
    cx.set_timeout(Duration::ZERO, line("I/O: timeout 0", "always after the immediate: timers come last"));
    cx.set_immediate(line("I/O: immediate", "the very next phase, behind older immediates"));
    cx.queue_microtask(line("I/O: microtask", "after the tick, whatever was queued first"));
    cx.next_tick(line("I/O: tick", "right after the callback that queued it"));
}
