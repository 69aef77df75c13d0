//! Faults as users meet them, in numbers: workers that are killed all the time, workers that never start, and very
//! many jobs. What is here is run by the program `chaos` for minutes and by tests for seconds.

pub mod client;
pub mod crowd;
pub mod flood;
pub mod guilty;
pub mod jobs;
pub mod killer;
pub mod prober;
pub mod process;
pub mod rude;
pub mod run;
pub mod seed;
pub mod sleeper;
pub mod slow;
pub mod soak;
pub mod storm;
