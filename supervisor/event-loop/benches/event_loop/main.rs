//! How fast the event loop is, beside other event loops on the same machine in the same minutes.
//!
//! `cargo bench -p offload-event-loop -- [NAME ...] [--peers] [--repeats N] [--quick]`
//!
//! Every measurement is made in a fresh process, ours too: this program starts itself with the name of a shape and
//! a size, and that process prints one line of JSON. See README.md beside the benches for what the shapes are.
//!
//! | read | for |
//! |---|---|
//! | `catalogue.rs` | which shapes there are, with their sizes, peers and targets |
//! | `shapes/` | what each one does |
//! | `measure.rs` | what is measured |
//! | `peers.rs`, `rounds.rs` | who else is measured, and in which order; their programs are in `benches/peers/` |
//! | `table.rs` | how it is printed |

mod catalogue;
mod machine;
mod measure;
mod options;
mod peers;
mod rounds;
mod shapes;
mod table;

use std::process::ExitCode;

use catalogue::{SHAPES, Shape};
use options::{Order, Plan};
use peers::Peers;

fn main() -> ExitCode {
    match options::order_of(std::env::args().skip(1)) {
        Ok(Order::Measure { shape, n }) => println!("{}", (shape.run)(n).to_json(shape.name, n)),
        Ok(Order::Nothing) => {}
        Ok(Order::Compare(plan)) => return compare(&plan),
        Err(sentence) => {
            eprintln!("{sentence}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Fails if a shape of ours does, so that `cargo test` notices.
fn compare(plan: &Plan) -> ExitCode {
    let shapes: Vec<&Shape> = SHAPES.iter().filter(|shape| plan.wants(shape)).collect();
    let peers = plan.has_peers.then(Peers::prepare);
    println!("{}", machine::describe());
    println!("{}\n", table::how_to_read(plan, peers.as_ref()));
    table::print_head();
    let mut code = ExitCode::SUCCESS;
    for shape in shapes {
        for n in plan.sizes(shape) {
            let figures = rounds::measure(shape, n, plan.repeats, peers.as_ref());
            table::print_row(shape, n, &figures, plan.is_quick);
            if figures.ours.is_err() {
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
