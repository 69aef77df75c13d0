//! What the parts that several threads share are built from. The tests put loom's versions in their place and go
//! through every order in which threads can meet.

pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
