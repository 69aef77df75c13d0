//! Tests of the core, which is given events directly.

mod abandoned;
mod batches;
mod behind;
mod beyond;
mod blame;
mod corners;
mod crowding;
mod doubt;
mod drains;
mod files;
mod forecasts;
mod here;
mod limits;
mod parts;
mod pauses;
mod prefetch;
mod promises;
mod refusals;
mod renewal;
mod scheduling;
mod silence;
mod steps;
mod supervision;
mod time_limits;
mod trials;
mod whose_fault;
