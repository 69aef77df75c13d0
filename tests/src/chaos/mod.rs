//! Faults as users meet them, in numbers: workers that are killed all the time, workers that never start, and very
//! many jobs. What is here is run by the program `chaos` for minutes and by tests for seconds.

pub mod prober;
