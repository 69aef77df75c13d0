//! A lost attempt as text for people. `explain` and `dead show` print it.

use super::text;
use offload_supervisor::views::{AttemptView, UsageView};

/// Several lines: what happened, where and why; indented below them, the last output of the process.
pub(crate) fn render(attempt: &AttemptView) -> String {
    let head = match attempt.attempt {
        0 => "before an attempt".to_owned(),
        number => format!("attempt {number}"),
    };
    let line = format!("{head}: {}, {}: {}: {}", place(attempt), ran(attempt), attempt.code, end(attempt));
    let said = attempt.last_lines.iter().map(|line| format!("    | {line}"));
    let before = (!attempt.previous_jobs.is_empty())
        .then(|| format!("    jobs before it: {}", attempt.previous_jobs.join(", ")));
    let details = attempt.usage.as_ref().map(usage).into_iter().chain(before).chain(said);
    std::iter::once(line).chain(details).map(|line| format!("{}\n", text::printable(&line))).collect()
}

fn place(attempt: &AttemptView) -> String {
    let worker = match attempt.worker_pid {
        0 => "a worker".to_owned(),
        pid => format!("worker {pid}"),
    };
    attempt.slot.map_or_else(|| worker.clone(), |slot| format!("{worker} (slot {slot})"))
}

fn ran(attempt: &AttemptView) -> String {
    let blame = if attempt.blamed { "" } else { ", not to blame" };
    format!("ran {}{blame}", text::time(attempt.ran_us))
}

/// The sentence; and how the process ended, if the sentence does not say it.
fn end(attempt: &AttemptView) -> String {
    let ending = match (attempt.signal, attempt.exit_code) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => return attempt.what.clone(),
    };
    if attempt.what.contains(&ending) { attempt.what.clone() } else { format!("{} ({ending})", attempt.what) }
}

fn usage(usage: &UsageView) -> String {
    let peak = match usage.peak_rss_bytes {
        0 => "not known".to_owned(),
        bytes => text::bytes(bytes),
    };
    format!(
        "    the process used CPU {} user, {} system, peak memory {peak}",
        text::time(usage.cpu_user_us),
        text::time(usage.cpu_system_us)
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One that has everything there can be.
    pub(in super::super) fn an_attempt() -> AttemptView {
        AttemptView {
            attempt: 1,
            worker_pid: 42,
            slot: Some(0),
            ran_us: 12_000,
            code: "worker_crashed".to_owned(),
            what: "signal 11 (SIGSEGV)".to_owned(),
            signal: Some(11),
            exit_code: None,
            last_lines: vec!["about to\u{1b}[31m fall".to_owned()],
            usage: Some(UsageView { cpu_user_us: 5000, cpu_system_us: 200, peak_rss_bytes: 2048 }),
            previous_jobs: vec!["01A".to_owned()],
            blamed: true,
        }
    }

    #[test]
    fn an_attempt_tells_where_it_ended_and_how_and_what_was_said_last() {
        let expected = "\
attempt 1: worker 42 (slot 0), ran 12.0 ms: worker_crashed: signal 11 (SIGSEGV)
    the process used CPU 5.0 ms user, 200 us system, peak memory 2.0 KiB
    jobs before it: 01A
    | about to\\u{1b}[31m fall
";
        assert_eq!(render(&an_attempt()), expected);
    }

    #[test]
    fn how_the_process_ended_is_said_where_the_sentence_leaves_it_out() {
        let exited = AttemptView { signal: None, exit_code: Some(7), ..an_attempt() };
        assert_eq!(end(&exited), "signal 11 (SIGSEGV) (exit code 7)");
        let unknown = AttemptView { signal: None, exit_code: None, ..an_attempt() };
        assert_eq!(end(&unknown), "signal 11 (SIGSEGV)");
    }

    #[test]
    fn a_job_that_was_not_started_is_not_blamed() {
        let given = AttemptView { attempt: 0, worker_pid: 0, slot: None, blamed: false, ..an_attempt() };
        let text = render(&given);
        assert!(text.starts_with("before an attempt: a worker, ran 12.0 ms, not to blame: "), "{text}");
    }
}
