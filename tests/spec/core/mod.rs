//! The pure core, driven by hand.

mod limits;
mod supervision;
