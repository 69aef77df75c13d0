//! The pure core, driven by hand.

mod abandoned;
mod blame;
mod corners;
mod doubt;
mod limits;
mod promises;
mod refusals;
mod renewal;
mod scheduling;
mod silence;
mod steps;
mod supervision;
