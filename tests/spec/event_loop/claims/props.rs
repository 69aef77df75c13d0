//! What tests of several claims need: loops, descriptors that are ready, pools, and work that takes time.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use offload_event_loop::io_pool::{IoError, IoPool, IoPoolConfig};
use offload_event_loop::{Context, EventLoop, HandleId, Interest, LoopConfig, LoopHandle, Time};
use offload_supervisor::{ComputePool, Level, PoolConfig, Program};
use rustix::time::{ClockId, clock_gettime};
use tests::harness::offload;

/// A loop whose time passes only where it would sleep.
pub(super) fn virtual_loop() -> EventLoop {
    loop_with(LoopConfig { time: Time::Virtual, ..LoopConfig::default() })
}

/// A loop in the time of the machine.
pub(super) fn real_loop() -> EventLoop {
    loop_with(LoopConfig::default())
}

pub(super) fn loop_with(config: LoopConfig) -> EventLoop {
    EventLoop::with(config).expect("two descriptors")
}

pub(super) fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Keeps the core busy for so long.
pub(super) fn burn(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// What this thread has computed so far. It is no longer when others take its core meanwhile.
pub(super) fn computing_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).expect("a part of a second"))
}

/// The shortest of so many measurements: what else the machine does makes them longer and never shorter.
pub(super) fn shortest<T: Ord>(count: u32, mut measure: impl FnMut() -> T) -> T {
    (0..count).map(|_| measure()).min().expect("at least one measurement")
}

/// A pair of sockets; the second one has a byte to read.
pub(super) fn readable_pair() -> (UnixStream, UnixStream) {
    let (mut writer, reader) = UnixStream::pair().expect("a pair of sockets");
    writer.write_all(b"x").expect("room for a byte");
    (writer, reader)
}

/// Calls `callback` once, in the poll phase, for a socket that is readable already.
pub(super) fn in_poll(event_loop: &LoopHandle, callback: impl FnOnce(&mut Context) + 'static) {
    let (writer, reader) = readable_pair();
    in_poll_when_readable(event_loop, reader, move |context| {
        let _open_until_now = writer;
        callback(context);
    });
}

/// Calls `callback` once, when `reader` is readable.
pub(super) fn in_poll_when_readable(
    event_loop: &LoopHandle,
    reader: UnixStream,
    callback: impl FnOnce(&mut Context) + 'static,
) {
    let id = Rc::new(Cell::new(None::<HandleId>));
    let (own_id, mut callback) = (Rc::clone(&id), Some(callback));
    let watched = event_loop.watch(reader, Interest::READ, move |context, _| {
        context.close(own_id.get().expect("set before the loop runs"), |_| ()).expect("closed once");
        if let Some(callback) = callback.take() {
            callback(context);
        }
    });
    id.set(Some(watched.expect("a socket can be watched")));
}

/// What [`LoopHandle::idle`], `prepare` and `check` have in common.
pub(super) type AddHook = fn(&LoopHandle, Box<dyn FnMut(&mut Context)>) -> HandleId;

pub(super) const IDLE: AddHook = LoopHandle::idle;
pub(super) const PREPARE: AddHook = LoopHandle::prepare;
pub(super) const CHECK: AddHook = LoopHandle::check;

/// Calls `callback` in the next iteration only: a hook would otherwise keep the loop alive.
pub(super) fn hook_once(
    event_loop: &LoopHandle,
    add: AddHook,
    callback: impl FnOnce(&mut Context) + 'static,
) {
    let id = Rc::new(Cell::new(None::<HandleId>));
    let (own_id, mut callback) = (Rc::clone(&id), Some(callback));
    let hook = move |context: &mut Context| {
        context.close(own_id.get().expect("set before the loop runs"), |_| ()).expect("closed once");
        if let Some(callback) = callback.take() {
            callback(context);
        }
    };
    id.set(Some(add(event_loop, Box::new(hook))));
}

/// A pool of so many I/O threads, none of which is ever replaced within a test.
pub(super) fn io_pool(event_loop: &mut EventLoop, threads: usize) -> IoPool {
    io_pool_with(event_loop, IoPoolConfig { threads, ..IoPoolConfig::default() })
}

pub(super) fn io_pool_with(event_loop: &mut EventLoop, config: IoPoolConfig) -> IoPool {
    IoPool::new(event_loop, config).expect("some threads")
}

/// A pool of so many worker processes with the built-in tasks.
pub(super) fn compute_pool(event_loop: &EventLoop, workers: usize) -> ComputePool {
    let words = vec![offload().to_str().expect("a path of ASCII").to_owned(), "worker".to_owned()];
    let mut config = PoolConfig { log: Level::Quiet, ..PoolConfig::with(Program::command(words)) };
    config.core.workers = workers;
    config.core.spares = 0;
    ComputePool::start(config, event_loop).expect("a valid configuration")
}

/// A task that keeps its thread until the test lets it go.
pub(super) struct Blocked {
    let_go: mpsc::Sender<()>,
}

impl Blocked {
    /// Submits the task and waits until a thread is at it.
    pub(super) fn start(
        pool: &IoPool,
        done: impl FnOnce(&mut Context, Result<(), IoError>) + 'static,
    ) -> Blocked {
        let (say_begun, begun) = mpsc::channel();
        let (let_go, wait) = mpsc::channel::<()>();
        let task = move || {
            say_begun.send(()).expect("the test listens");
            // An error means that the test is over, which is as good.
            let _ = wait.recv();
        };
        pool.submit(task, done);
        begun.recv().expect("a thread is free");
        Blocked { let_go }
    }

    pub(super) fn let_go(self) {
        self.let_go.send(()).expect("the task waits");
    }
}
