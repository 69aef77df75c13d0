//! `offload status`: shows the state of the whole supervisor.

use super::failure::VerbResult;
use super::flags::Globals;
use super::pause::describe;
use super::show::show;
use super::text;
use clap::Args;
use offload_protocol::messages::View;
use offload_supervisor::views;

/// Show the status of the supervisor
#[derive(Args, Debug)]
pub(crate) struct Status {}

impl Status {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        show(globals, View::Status, render)
    }
}

/// Counters of [`views::Status::jobs`] that are not outcomes.
const NOT_OUTCOMES: [&str; 4] = ["accepted", "rejected", "queued", "running"];

fn render(status: &views::Status) -> String {
    let lines = [
        ("offload", process(status)),
        ("workers", workers(&status.workers)),
        ("queue", queue(&status.queue)),
        ("jobs", jobs(status)),
        ("outcomes", outcomes(status)),
        ("ledger", if status.ledger.balanced { "balanced" } else { "NOT BALANCED" }.to_owned()),
        ("event loop", event_loop(&status.event_loop)),
        ("I/O pool", io_pool(&status.io_pool)),
    ];
    let troubles = status.programs.iter().filter_map(trouble);
    let programs = troubles.chain(status.programs.iter().filter_map(silence)).map(|line| ("program", line));
    let is_paused = status.paused != views::PausedView::default();
    let paused = is_paused.then(|| ("paused", describe(&status.paused)));
    let lines = lines.into_iter().chain(paused).chain(programs);
    lines.map(|(name, line)| format!("{name:<10}  {}\n", text::printable(&line))).collect()
}

fn process(status: &views::Status) -> String {
    let views::Status { version, pid, uptime_s, state, reason, programs, .. } = status;
    // If the supervisor lists its programs, the reason is in that list.
    let reason = reason
        .as_ref()
        .filter(|_| programs.is_empty())
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let uptime = text::time((uptime_s.max(0.0) * 1e6) as u64);
    format!("{version}, pid {pid}, up {uptime}, {state}{reason}")
}

/// What is wrong with a program, if anything is.
fn trouble(program: &views::ProgramView) -> Option<String> {
    let views::ProgramView { program, state, failed_starts, reason, refuses, hint: _ } = program;
    let reason = reason.as_ref()?;
    let refused = if *refuses { "; its jobs are refused" } else { "" };
    let starts = text::count(u64::from(*failed_starts), "failed start");
    Some(format!("`{program}` is {state}: {reason} ({starts} in a row{refused})"))
}

/// What is known of a program whose worker does not say hello.
fn silence(program: &views::ProgramView) -> Option<String> {
    let hint = program.hint.as_ref()?;
    Some(format!("`{}` has a worker that does not say hello: {hint}", program.program))
}

fn workers(workers: &views::WorkerCounts) -> String {
    let views::WorkerCounts { configured, ready, busy, spares, restarts, .. } = workers;
    let (spares, restarts) = (text::count(*spares as u64, "spare"), text::count(*restarts, "restart"));
    format!("{configured} configured, {ready} ready, {busy} busy, {spares}, {restarts}")
}

fn queue(queue: &views::QueueCounts) -> String {
    let views::QueueCounts { jobs, bytes, max_jobs, max_bytes, segment_bytes, files } = queue;
    let shared = match segment_bytes {
        0 => String::new(),
        bytes => format!("; {} shared with workers", text::bytes(*bytes)),
    };
    let open = match files {
        0 => String::new(),
        files => format!("; {} open", text::count(*files as u64, "file")),
    };
    format!("{jobs} of {max_jobs} jobs, {} of {}{shared}{open}", text::bytes(*bytes), text::bytes(*max_bytes))
}

fn jobs(status: &views::Status) -> String {
    let counted = |name: &str| format!("{} {name}", status.jobs.get(name).copied().unwrap_or(0));
    let rejections = status.rejections.iter().map(|(code, count)| format!("{count} {code}"));
    let why = rejections.collect::<Vec<_>>().join(", ");
    let why = if why.is_empty() { why } else { format!(" ({why})") };
    NOT_OUTCOMES.map(|name| counted(name) + if name == "rejected" { &why } else { "" }).join(", ")
}

fn outcomes(status: &views::Status) -> String {
    let happened =
        status.jobs.iter().filter(|(name, count)| **count > 0 && !NOT_OUTCOMES.contains(&name.as_str()));
    let outcomes: Vec<String> = happened.map(|(name, count)| format!("{count} {name}")).collect();
    if outcomes.is_empty() { "none yet".to_owned() } else { outcomes.join(", ") }
}

fn event_loop(event_loop: &views::LoopView) -> String {
    let views::LoopView { iterations, lag_us, slowest_callback } = event_loop;
    let [p50, p99, max] = [lag_us.p50, lag_us.p99, lag_us.max].map(text::time);
    let slowest = slowest_callback.as_ref().map(|slowest| {
        format!("; slowest callback {}, registered at {}", text::time(slowest.us), slowest.site)
    });
    format!("{iterations} turns, lag p50 {p50}, p99 {p99}, max {max}{}", slowest.unwrap_or_default())
}

fn io_pool(io_pool: &views::IoPoolView) -> String {
    let views::IoPoolView { threads, busy, queued, stuck } = io_pool;
    format!("{threads} threads, {busy} busy, {queued} queued, {stuck} stuck")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_fits_on_one_screen() {
        let document = r#"{"version":"0.1.0","pid":1,"uptime_s":12.3,"state":"running",
            "workers":{"configured":2,"ready":2,"busy":1,"spares":1,"restarts":0},
            "queue":{"jobs":0,"bytes":0,"max_jobs":10000,"max_bytes":268435456,"segment_bytes":2097152,"files":1},
            "jobs":{"accepted":10,"rejected":0,"queued":0,"running":1,"ok":8,"app_error":1,"timeout":0},
            "ledger":{"balanced":true},
            "event_loop":{"iterations":1234,"lag_us":{"p50":20,"p99":180,"max":900},
                          "slowest_callback":{"site":"supervisor/src/x.rs:1:2","us":900}},
            "io_pool":{"threads":4,"busy":0,"queued":0,"stuck":0}}"#;
        let expected = "\
offload     0.1.0, pid 1, up 12.3 s, running
workers     2 configured, 2 ready, 1 busy, 1 spare, 0 restarts
queue       0 of 10000 jobs, 0 B of 256.0 MiB; 2.0 MiB shared with workers; 1 file open
jobs        10 accepted, 0 rejected, 0 queued, 1 running
outcomes    1 app_error, 8 ok
ledger      balanced
event loop  1234 turns, lag p50 20 us, p99 180 us, max 900 us; slowest callback 900 us, registered at supervisor/src/x.rs:1:2
I/O pool    4 threads, 0 busy, 0 queued, 0 stuck
";
        let status: views::Status = serde_json::from_str(document).unwrap();
        assert_eq!(render(&status), expected);
        let paused = views::PausedView { all: false, tasks: vec!["echo".to_owned()] };
        let rejections = [("overloaded".to_owned(), 2), ("quota".to_owned(), 1)].into();
        let rendered = render(&views::Status { paused, rejections, ..status });
        assert!(rendered.contains("10 accepted, 0 rejected (2 overloaded, 1 quota), 0 queued"), "{rendered}");
        assert!(rendered.ends_with("paused      the task echo is paused\n"), "{rendered}");
    }
}
