//! What the test suites of libuv and Node check, as far as it applies here. Which of their tests is covered by which
//! of these is told in the README of the tests.

mod closing;
mod embedding;
mod futures;
mod hooks;
mod immediates;
mod life;
mod microtasks;
mod misuse;
mod panics;
mod pool;
mod posts;
mod references;
mod run_modes;
mod signals;
mod ticks;
mod timer_order;
mod timers;
mod watchers;

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use offload_supervisor::event_loop::{EventLoop, LoopConfig, Time};

/// The name of a timer or handle, for its own callback, which is made before it has one.
type OwnName<T> = Rc<Cell<Option<T>>>;

/// The same name twice: one for who gives it, one for the callback.
fn own_name<T>() -> (OwnName<T>, OwnName<T>) {
    let name = Rc::new(Cell::new(None));
    (Rc::clone(&name), name)
}

/// A loop whose time jumps to the next timer, so that a test of an order takes no time.
fn virtual_loop() -> EventLoop {
    EventLoop::with(LoopConfig { time: Time::Virtual, ..LoopConfig::default() }).unwrap()
}

fn real_loop() -> EventLoop {
    EventLoop::new().unwrap()
}

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Keeps the thread busy, as a callback does that computes for too long.
fn compute_for(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// Two ends of a connection that never block.
fn connection() -> (Rc<UnixStream>, Rc<UnixStream>) {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (Rc::new(one), Rc::new(other))
}

/// As [`connection`], with a byte to be read at the second end.
fn connection_with_a_byte() -> (Rc<UnixStream>, Rc<UnixStream>) {
    let (writer, reader) = connection();
    send_a_byte(&writer);
    (writer, reader)
}

fn send_a_byte(mut stream: &UnixStream) {
    stream.write_all(b"x").unwrap();
}

/// The bytes that are there now.
fn receive(mut stream: &UnixStream) -> usize {
    stream.read(&mut [0; 64]).unwrap()
}

/// The tables are long, and tests get new names.
#[test]
fn every_test_that_the_readme_names_exists() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let (_, tables) = readme.split_once("## Conformance").unwrap();
    let words = tables.split("\n## ").next().unwrap().split('`');
    let names: Vec<_> = words.filter_map(|word| word.split_once("::")).collect();
    assert!(names.len() > 100, "the tables are not where they are looked for");
    for (file, test) in names.into_iter().filter(|(file, _)| *file != "io_pool" && *file != "conformance") {
        let path = folder.join(format!("spec/event_loop/conformance/{file}.rs"));
        let source = std::fs::read_to_string(&path).unwrap();
        assert!(source.contains(&format!("fn {test}()")), "{file}::{test} does not exist");
    }
}
