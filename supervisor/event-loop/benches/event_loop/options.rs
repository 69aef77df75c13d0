//! What was asked for on the command line, by a person, by `cargo test`, or by this program itself.

use crate::catalogue::{SHAPES, Shape};

pub(crate) const USAGE: &str = "\
usage: cargo bench -p offload-event-loop -- [NAME ...] [--peers] [--repeats N] [--quick]
  NAME         only the shapes whose names contain this
  --peers      measure libuv, Node, tokio and others in the same rounds, as far as they are installed
  --repeats N  rounds per size, of which the median counts (default 5)
  --quick      one small round of each shape: does it still run?
  --list       print the names
  --help       print this";

const REPEATS_DEFAULT: usize = 5;

pub(crate) enum Order {
    /// One shape in this process.
    Measure {
        shape: &'static Shape,
        n: u64,
    },
    Compare(Plan),
    Nothing,
}

pub(crate) struct Plan {
    names: Vec<String>,
    pub(crate) has_peers: bool,
    pub(crate) repeats: usize,
    pub(crate) is_quick: bool,
}

impl Plan {
    pub(crate) fn wants(&self, shape: &Shape) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| shape.name.contains(name))
    }

    pub(crate) fn sizes(&self, shape: &Shape) -> Vec<u64> {
        if self.is_quick { vec![shape.quick] } else { shape.sizes.to_vec() }
    }
}

/// `cargo bench` says `--bench`. Without it `cargo test` is asking, which hands the same arguments to every test
/// program: then only the quick form runs, and what is not understood is meant for others.
pub(crate) fn order_of(arguments: impl Iterator<Item = String>) -> Result<Order, String> {
    let mut arguments: Vec<String> = arguments.collect();
    if arguments.first().is_some_and(|first| first == "--shape") {
        return measure(&arguments[1..]);
    }
    let count = arguments.len();
    arguments.retain(|argument| argument != "--bench");
    if arguments.len() == count { Ok(as_a_test(&arguments)) } else { as_a_bench(arguments) }
}

fn measure(arguments: &[String]) -> Result<Order, String> {
    let [name, n] = arguments else { return Err("--shape needs a name and a size".to_owned()) };
    let shape = SHAPES.iter().find(|shape| shape.name == name).ok_or(format!("no shape is called {name}"))?;
    Ok(Order::Measure { shape, n: number(n)? })
}

fn as_a_test(arguments: &[String]) -> Order {
    if arguments.iter().any(|argument| argument == "--list") {
        return Order::Nothing;
    }
    let names = arguments.iter().filter(|argument| !argument.starts_with('-')).cloned().collect();
    let plan = Plan { names, has_peers: false, repeats: 1, is_quick: true };
    if SHAPES.iter().any(|shape| plan.wants(shape)) { Order::Compare(plan) } else { Order::Nothing }
}

fn as_a_bench(arguments: Vec<String>) -> Result<Order, String> {
    let mut plan = Plan { names: Vec::new(), has_peers: false, repeats: REPEATS_DEFAULT, is_quick: false };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--peers" => plan.has_peers = true,
            "--repeats" => plan.repeats = usize::try_from(number(&value()?)?).unwrap_or(usize::MAX).max(1),
            "--quick" => plan.is_quick = true,
            "--list" => return Ok(list()),
            "--help" | "-h" => return Ok(help()),
            flag if flag.starts_with('-') => return Err(format!("unknown flag {flag}")),
            name => plan.names.push(name.to_owned()),
        }
    }
    if plan.is_quick {
        plan.repeats = 1;
    }
    match SHAPES.iter().any(|shape| plan.wants(shape)) {
        true => Ok(Order::Compare(plan)),
        false => Err(format!("no shape is called {}; see --list", plan.names.join(" or "))),
    }
}

fn list() -> Order {
    SHAPES.iter().for_each(|shape| println!("{:24} {}", shape.name, shape.what));
    Order::Nothing
}

fn help() -> Order {
    println!("{USAGE}");
    Order::Nothing
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}
