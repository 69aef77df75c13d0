//! The pure core, driven by hand.

mod blame;
mod corners;
mod limits;
mod renewal;
mod scheduling;
mod silence;
mod steps;
mod supervision;
