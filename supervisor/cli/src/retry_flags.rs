//! The flags that say how often a job is tried again whose task has returned an error.

use crate::batch::Retries;
use clap::Args;
use offload_supervisor::units::parse_duration;
use std::time::Duration;

/// See the module's documentation.
#[derive(Args, Debug)]
#[command(next_help_heading = "Each job")]
pub(crate) struct RetryFlags {
    /// Run a job again, up to N times, if its task returns an error (app_error); the result lists the earlier attempts
    /// ("earlier_attempts"); --timeout and --deadline hold for each run and not for all of them together [default: 0]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = clap::value_parser!(u32).range(..=100))]
    retry: u32,

    /// How long to wait before the first retry; the wait doubles with each further one, up to an hour [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "retry")]
    backoff: Option<Duration>,
}

impl RetryFlags {
    /// What the flags say.
    pub(crate) fn retries(&self) -> Retries {
        Retries { most: self.retry, pause: self.backoff.unwrap_or(Duration::from_secs(1)) }
    }
}
