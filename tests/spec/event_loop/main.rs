//! What the event loop and the I/O pool promise as a library of their own.
//!
//! `claims` has a test for each numbered claim of the documents that describe the system. `conformance` has the behaviour that
//! libuv and Node check in their own tests. The tables in `tests/README.md` list both.

mod claims;
mod conformance;
mod stage;
