//! The pure core of the supervisor in a world that is made of chance: no process, no clock, no I/O.
//!
//! ```text
//!   seed ---> knobs (CoreConfig) --------------------------.
//!        ---> wishes (submit, cancel, drain ...) ---.      v
//!        ---> faults (which, how often) ---.        '--> agenda --- event, now ---> Core::handle ---> check()
//!                                          v               ^                             |
//!                                    fake processes -------'<--- Spawn, Run, Kill -------+ actions
//!                                          |                                             v
//!                                          '---- what they really did --------------> oracle: O1 ... O18
//! ```
//!
//! A run has three parts: wishes come and faults strike; then no fault strikes any more, and within 60 virtual seconds
//! each job must have ended and each worker be there; then it is drained, and nothing may be left.
//!
//! - `OFFLOAD_SIM_SEEDS=20000 cargo test --release -p simulation many_seeds` runs more seeds;
//! - `OFFLOAD_SIM_SEED=7 cargo test -p simulation one_seed -- --nocapture` runs one and prints each event.
//!
//! - `OFFLOAD_SIM_DEEPER=1 cargo test --release -p simulation exhaustive` searches one event deeper.
//!
//! New events and actions have one place each: what fake workers say in `process`, what clients and operators want in
//! `script`, what the shell does in `world` (`apply`), what it means in `oracle` (`take_note`, `judge`), and the names in
//! `coverage`.
//!
//! A seed that fails is made smaller and printed as a list of events (`shrink`). The same seed gives the same run for
//! as long as neither the core nor the simulator is changed.

mod choices;
mod coverage;
mod exhaustive;
mod faults;
mod ghost;
mod oracle;
mod planted;
mod process;
mod running;
mod script;
mod seeds;
mod shrink;
mod unwritten;
mod world;
