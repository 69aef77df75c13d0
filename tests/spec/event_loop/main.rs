//! What the event loop and the I/O pool promise as a library of their own.
//!
//! `claims` has a test for each claim of the documents that describe the system, by its number; `conformance` has the
//! behaviours that libuv and Node check in their own tests, in words of ours. The README of the tests has the tables.

mod claims;
mod conformance;
mod stage;
