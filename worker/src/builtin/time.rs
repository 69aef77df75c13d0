//! `sleep` occupies its worker without using CPU time; `spin` uses one core. Both are for trying things out.

use super::whole::Whole;
use crate::limits::TIME_MS_MAX;
use crate::task::{Task, TaskError};
use nix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

/// Rounds between two looks at the clock.
const ROUNDS_AT_ONCE: u64 = 1000;

pub(super) fn sleep_task() -> Task {
    Task::json("sleep", |Whole(ms), _| duration(ms).map(std::thread::sleep))
}

pub(super) fn spin_task() -> Task {
    Task::json("spin", |Whole(ms), _| spin(duration(ms)?))
}

fn duration(ms: u64) -> Result<Duration, TaskError> {
    if ms > TIME_MS_MAX {
        return Err(TaskError::new(format_args!("{ms} ms is too long, at most {TIME_MS_MAX} are taken")));
    }
    Ok(Duration::from_millis(ms))
}

/// Computes until this thread has used `duration` of CPU time, and returns how many rounds that took.
fn spin(duration: Duration) -> Result<u64, TaskError> {
    let end = cpu_time()? + duration;
    let mut rounds = 0;
    while cpu_time()? < end {
        for _ in 0..ROUNDS_AT_ONCE {
            rounds = black_box(rounds + 1);
        }
    }
    Ok(rounds)
}

fn cpu_time() -> Result<Duration, TaskError> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_supervisor::answer;
    use serde_json::json;
    use std::time::Instant;

    #[test]
    fn sleep_lasts_as_long_as_told_at_least_and_answers_null() {
        let start = Instant::now();
        assert_eq!(answer("sleep", "20"), Ok(json!(null)));
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn spin_uses_as_much_cpu_time_as_told_at_least() {
        let start = cpu_time().unwrap();
        assert!(spin(Duration::from_millis(20)).unwrap() > 0);
        assert!(cpu_time().unwrap() - start >= Duration::from_millis(20));
        assert_eq!(answer("spin", "0"), Ok(json!(0)));
    }

    #[test]
    fn an_hour_is_the_longest() {
        for task in ["sleep", "spin"] {
            assert_eq!(
                answer(task, "3600001"),
                Err("3600001 ms is too long, at most 3600000 are taken".into())
            );
        }
    }
}
