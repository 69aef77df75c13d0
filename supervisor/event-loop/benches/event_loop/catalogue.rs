//! The shapes: what each one measures, at which sizes, beside whom, and what is expected of it.

use serde_json::Value;

use crate::measure::Measured;
use crate::peers::Program::{self, Crates, Libuv, Node, NodeLongWork};
use crate::shapes::{long_work, loops, sockets, threads, timers};
use crate::table::short;

pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) run: fn(u64) -> Measured,
    pub(crate) sizes: [u64; 3],
    /// The size at which it only shows that it runs.
    pub(crate) quick: u64,
    pub(crate) figure: Figure,
    pub(crate) target: Option<f64>,
    /// From which size on the target counts.
    pub(crate) target_from: u64,
    pub(crate) peers: &'static [Peer],
}

/// A bench of another program that does the same, or the nearest thing that it can do.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    pub(crate) bench: &'static str,
    pub(crate) n_max: u64,
}

/// Which figure of a result counts.
#[derive(Clone, Copy)]
pub(crate) enum Figure {
    /// For what one thread does by itself: other programs on the machine change it least.
    PerProcessorSecond,
    /// For what waits for other threads or processes, whose waiting is part of it.
    PerSecond,
    /// Processor seconds for a million of them: for what takes a given time on the wall.
    ProcessorSecondsAMillion,
    /// A figure of the shape's own, in this field, of which less is better.
    Least { field: &'static str, unit: &'static str },
}

impl Figure {
    pub(crate) fn of(self, result: &Value) -> Option<f64> {
        let field = |name: &str| result.get(name).and_then(Value::as_f64);
        match self {
            Figure::PerProcessorSecond => field("per_cpu_s"),
            Figure::PerSecond => field("per_s"),
            Figure::ProcessorSecondsAMillion => Some(field("cpu_s")? / field("n")? * 1e6),
            Figure::Least { field: name, .. } => field(name),
        }
    }

    fn more_is_better(self) -> bool {
        matches!(self, Figure::PerProcessorSecond | Figure::PerSecond)
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Figure::PerProcessorSecond => "/ CPU s",
            Figure::PerSecond => "/ s",
            Figure::ProcessorSecondsAMillion => "CPU s / M",
            Figure::Least { unit, .. } => unit,
        }
    }

    pub(crate) fn times_better(self, ours: f64, theirs: f64) -> f64 {
        if self.more_is_better() { ours / theirs } else { theirs / ours }
    }

    pub(crate) fn bound(self, target: f64) -> String {
        format!("{} {}", if self.more_is_better() { ">=" } else { "<=" }, short(target))
    }

    pub(crate) fn verdict(self, ours: f64, target: f64) -> String {
        match self.times_better(ours, target) {
            better if better >= 1.0 => format!("met ({better:.2})"),
            worse => format!("MISSED ({worse:.2})"),
        }
    }
}

const PER_CPU: Figure = Figure::PerProcessorSecond;
const LONGEST_STAT: Figure = Figure::Least { field: "stat_max_ms", unit: "ms, longest stat" };
const TIMES_DIRECT: Figure = Figure::Least { field: "ratio", unit: "x direct loop" };

const K: u64 = 1_000;
const M: u64 = 1_000 * K;

const fn peer(name: &'static str, program: Program, bench: &'static str) -> Peer {
    Peer { name, program, bench, n_max: u64::MAX }
}

const fn shape(name: &'static str, what: &'static str, run: fn(u64) -> Measured) -> Shape {
    let sizes = [10 * K, 100 * K, M];
    Shape { name, what, run, sizes, quick: K, figure: PER_CPU, target: None, target_from: 0, peers: &[] }
}

/// A timer of calloop costs the more the more there are: 100,000 of them take 5 processor seconds, almost all to start.
const CALLOOP_TIMERS_MAX: u64 = 10 * K;

pub(crate) static SHAPES: &[Shape] = &[
    Shape {
        sizes: [50 * K, 500 * K, 5 * M],
        target: Some(3.5e6),
        peers: &[
            peer("libuv", Libuv, "idle"),
            peer("Node", Node, "immediate_chain"),
            peer("tokio", Crates, "tokio_yield"),
            peer("calloop", Crates, "calloop_idle"),
        ],
        ..shape("iterations", "the loop goes around with an idle hook", loops::iterations)
    },
    Shape {
        peers: &[peer("libuv", Libuv, "check")],
        ..shape(
            "iterations_polling",
            "the same with a check hook and a watched pipe",
            loops::iterations_polling,
        )
    },
    Shape {
        sizes: [20 * K, 200 * K, 2 * M],
        peers: &[peer("libuv", Libuv, "check"), peer("Node", Node, "immediate_chain")],
        ..shape("immediate_chain", "an immediate that sets the next one", loops::immediate_chain)
    },
    Shape {
        target: Some(15e6),
        peers: &[peer("Node", Node, "immediate_batch")],
        ..shape("immediate_batch", "immediates set at once, then run", loops::immediate_batch)
    },
    Shape {
        sizes: [50 * K, 500 * K, 5 * M],
        target: Some(25e6),
        peers: &[peer("Node", Node, "nexttick_chain")],
        ..shape("tick_chain", "a tick that queues the next one", loops::tick_chain)
    },
    Shape {
        sizes: [50 * K, 500 * K, 5 * M],
        peers: &[peer("Node", Node, "microtask_chain")],
        ..shape("microtask_chain", "a microtask that queues the next one", loops::microtask_chain)
    },
    Shape {
        target: Some(4.5e6),
        peers: &[peer("tokio", Crates, "tokio_spawn_local"), peer("smol", Crates, "smol_local")],
        ..shape("tasks", "futures spawned on the loop, then run", loops::tasks)
    },
    Shape {
        sizes: [50 * K, 500 * K, 5 * M],
        peers: &[peer("Node", Node, "await_chain"), peer("tokio", Crates, "tokio_yield")],
        ..shape("yields", "one future that yields again and again", loops::yields)
    },
    Shape {
        target: Some(5e6),
        peers: &[
            peer("libuv", Libuv, "timers_same"),
            peer("Node", Node, "timers_same"),
            peer("tokio", Crates, "tokio_timers_same"),
            Peer { n_max: CALLOOP_TIMERS_MAX, ..peer("calloop", Crates, "calloop_timers_same") },
        ],
        ..shape("timers_same", "timers of 1 ms, started at once", timers::same)
    },
    Shape {
        figure: Figure::ProcessorSecondsAMillion,
        target: Some(0.35),
        // With fewer, the wake-ups of one second are most of it.
        target_from: M,
        peers: &[
            peer("libuv", Libuv, "timers_spread"),
            peer("Node", Node, "timers_spread"),
            peer("tokio", Crates, "tokio_timers_spread"),
            Peer { n_max: CALLOOP_TIMERS_MAX, ..peer("calloop", Crates, "calloop_timers_spread") },
        ],
        ..shape("timers_spread", "timers of 1 to 1000 ms, started at once", timers::spread)
    },
    Shape {
        target: Some(10e6),
        peers: &[peer("libuv", Libuv, "timers_cancel"), peer("Node", Node, "timers_cancel")],
        ..shape("timers_cancel", "timers of 1 to 61 s, all started, then all cleared", timers::cancel)
    },
    Shape {
        target: Some(10e6),
        ..shape("timers_cancel_each", "each timer cleared before the next is started", timers::cancel_each)
    },
    Shape {
        sizes: [20 * K, 200 * K, 2 * M],
        figure: Figure::PerSecond,
        target: Some(20e6),
        peers: &[peer("epoll by hand", Crates, "flood")],
        ..shape("posts_empty", "callbacks without a capture posted by another thread", threads::posts_empty)
    },
    Shape {
        sizes: [20 * K, 200 * K, 2 * M],
        figure: Figure::PerSecond,
        target: Some(20e6),
        peers: &[peer("epoll by hand", Crates, "flood_capturing")],
        ..shape("posts_capturing", "the same with a capture of 16 bytes", threads::posts_capturing)
    },
    Shape {
        sizes: [K, 10 * K, 100 * K],
        quick: 100,
        figure: Figure::PerSecond,
        peers: &[
            peer("libuv", Libuv, "async_xthread"),
            peer("Node", Node, "messageport_pingpong"),
            peer("tokio", Crates, "tokio_xthread"),
            peer("epoll by hand", Crates, "xthread_eventfd"),
        ],
        ..shape(
            "posts_pingpong",
            "two loops on two threads post to each other in turn",
            threads::posts_pingpong,
        )
    },
    Shape {
        peers: &[
            peer("libuv", Libuv, "async_self"),
            peer("calloop", Crates, "calloop_ping"),
            peer("mio", Crates, "mio_wake"),
        ],
        ..shape("notify_self", "a notifier whose callback rings it again", threads::notify_self)
    },
    Shape {
        sizes: [20 * K, 200 * K, 2 * M],
        figure: Figure::PerSecond,
        ..shape("notify_flood", "another thread rings a notifier as fast as it can", threads::notify_flood)
    },
    Shape {
        sizes: [2 * K, 20 * K, 200 * K],
        figure: Figure::PerSecond,
        target: Some(650e3),
        peers: &[
            peer("libuv", Libuv, "pool_stat_64"),
            peer("Node", Node, "pool_stat_64"),
            peer("tokio", Crates, "tokio_blocking_64"),
        ],
        ..shape("pool_stat_64", "file stats on 4 threads, 64 in flight", threads::pool_stat_64)
    },
    Shape {
        sizes: [500, 5 * K, 50 * K],
        quick: 100,
        figure: Figure::PerSecond,
        peers: &[
            peer("libuv", Libuv, "pool_stat_1"),
            peer("Node", Node, "pool_stat_1"),
            peer("tokio", Crates, "tokio_blocking_1"),
        ],
        ..shape("pool_stat_1", "file stats on 4 threads, one after another", threads::pool_stat_1)
    },
    Shape {
        sizes: [K, 10 * K, 100 * K],
        quick: 100,
        figure: Figure::PerSecond,
        target: Some(70e3),
        peers: &[
            peer("libuv", Libuv, "tcp"),
            peer("Node", Node, "tcp_pingpong"),
            peer("tokio", Crates, "tokio_tcp"),
            peer("mio", Crates, "mio_tcp"),
        ],
        ..shape("tcp_pingpong", "a byte there and back, both ends on one loop", sockets::tcp_pingpong)
    },
    Shape {
        sizes: [K, 10 * K, 100 * K],
        figure: Figure::PerSecond,
        ..shape(
            "tcp_pingpong_watch",
            "the same with watchers on sockets of the standard library",
            sockets::tcp_pingpong_watch,
        )
    },
    Shape {
        sizes: [30, 100, 300],
        quick: 3,
        figure: Figure::PerSecond,
        peers: &[
            peer("libuv", Libuv, "spawn"),
            peer("Node", Node, "spawn_true"),
            peer("tokio", Crates, "tokio_spawn_true"),
            peer("std", Crates, "std_spawn_true"),
        ],
        ..shape("spawn_true", "children started and awaited, one after another", sockets::spawn_true)
    },
    Shape {
        sizes: [100 * K, M, 10 * M],
        quick: 10 * K,
        figure: TIMES_DIRECT,
        target: Some(1.3),
        ..shape(
            "average_budgeted",
            "S53: average of 1..n, as many steps as fit into 1 ms",
            long_work::budgeted,
        )
    },
    Shape {
        sizes: [10 * K, 100 * K, M],
        figure: TIMES_DIRECT,
        peers: &[peer("Node", NodeLongWork, "average_immediates")],
        ..shape("average_immediates", "S53: average of 1..n, one step an immediate", long_work::one_step_each)
    },
    Shape {
        sizes: [50, 100, 200],
        quick: 2,
        figure: LONGEST_STAT,
        peers: &[peer("Node", NodeLongWork, "long_whole")],
        ..shape("long_whole", "S62: 8 tasks of n ms on 4 threads, and file stats meanwhile", long_work::whole)
    },
    Shape {
        sizes: [50, 100, 200],
        quick: 2,
        figure: LONGEST_STAT,
        peers: &[peer("Node", NodeLongWork, "long_in_parts")],
        ..shape("long_in_parts", "S68: the same, each task in 100 parts", long_work::in_parts)
    },
];
