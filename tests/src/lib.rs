//! What the tests share: a harness around the real binary, and a hand on the core.

pub mod harness;
pub mod pool_under_test;
