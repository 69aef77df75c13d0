//! The pure core, driven by hand.

mod corners;
mod limits;
mod supervision;
