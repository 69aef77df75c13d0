//! What the tests share: a harness around the real binary, canaries, chaos, and a hand on the core.

pub mod canary;
pub mod chaos;
pub mod harness;
pub mod http;
pub mod pool_under_test;
pub mod raw_client;
