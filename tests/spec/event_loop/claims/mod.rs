//! One test a claim, named after it: `s12_...` proves S12.

mod structure;
mod timers;
