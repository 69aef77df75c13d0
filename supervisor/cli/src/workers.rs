//! `offload workers`: lists the slots with their workers and jobs.

use super::failure::VerbResult;
use super::flags::Globals;
use super::show::show_list;
use super::table::{Table, cell};
use super::text;
use clap::Args;
use offload_protocol::messages::View;
use offload_supervisor::views::WorkerView;

/// List the workers with the jobs that they run
#[derive(Args, Debug)]
pub(crate) struct Workers {}

impl Workers {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        show_list(
            globals,
            (View::Workers, ""),
            usize::MAX,
            |worker: &WorkerView| worker.slot.to_string(),
            render,
        )
    }
}

fn render(workers: &Vec<WorkerView>) -> String {
    let mut table = Table::new(&[
        "#SLOT",
        "STATE",
        "#PID",
        "PROGRAM",
        "TASK",
        "JOB",
        "#RUNNING",
        "#PROGRESS",
        "#DONE",
        "#MEMORY",
        "#TIER",
        "#RESTARTS",
        "RETIRES",
        "LAST EXIT",
    ]);
    for worker in workers {
        table.row([
            worker.slot.to_string(),
            worker.state.clone(),
            cell(worker.pid),
            worker.program.clone(),
            cell(worker.task.as_ref()),
            cell(worker.job.as_ref()),
            cell(worker.running_us.map(text::time)),
            cell(worker.progress.map(progress)),
            worker.jobs_done.to_string(),
            cell(worker.rss_bytes.map(text::bytes)),
            cell(worker.tier),
            worker.restarts.to_string(),
            cell(worker.retires.as_ref()),
            cell(worker.last_exit.as_ref()),
        ]);
    }
    table.render() + &hints(workers)
}

/// A line for each worker that does not say hello, below the table.
fn hints(workers: &[WorkerView]) -> String {
    let hints = workers.iter().filter_map(|worker| Some((worker.slot, worker.hint.as_ref()?)));
    hints.map(|(slot, hint)| format!("slot {slot}: {}\n", text::printable(hint))).collect()
}

/// The progress as a percentage, or as an amount if the total is unknown. A worker may report nonsense.
fn progress((done, total): (u64, u64)) -> String {
    match total {
        0 => done.to_string(),
        _ => format!("{}%", u128::from(done.min(total)) * 100 / u128::from(total)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_share_where_the_whole_is_known() {
        for (said, shown) in [
            ((0, 10), "0%"),
            ((999, 1000), "99%"),
            ((10, 10), "100%"),
            ((11, 10), "100%"),
            ((u64::MAX, u64::MAX), "100%"),
            ((123, 0), "123"),
        ] {
            assert_eq!(progress(said), shown, "{said:?}");
        }
    }

    #[test]
    fn a_worker_that_does_not_say_hello_has_a_line_below_the_table() {
        let silent =
            WorkerView { slot: 1, hint: Some("is it a\nprogram?".to_owned()), ..WorkerView::default() };
        let shown = render(&vec![WorkerView::default(), silent]);
        assert!(shown.ends_with("\nslot 1: is it a\\nprogram?\n"), "{shown}");
    }

    #[test]
    fn the_table_says_how_far_a_worker_is_how_confined_and_why_it_goes() {
        let document = r#"[{"slot":0,"program":"builtin","pid":42,"incarnation":1,"state":"busy","job":"01J",
            "task":"primes","running_us":2000000,"jobs_done":3,"rss_bytes":1048576,"restarts":0,"last_exit":null,
            "tier":0,"confinement":null,"progress":[1,4],"retires":"age"}]"#;
        let expected = "\
SLOT  STATE  PID  PROGRAM  TASK    JOB  RUNNING  PROGRESS  DONE   MEMORY  TIER  RESTARTS  RETIRES  LAST EXIT
   0  busy    42  builtin  primes  01J    2.0 s       25%     3  1.0 MiB     0         0  age      -
";
        assert_eq!(render(&serde_json::from_str(document).unwrap()), expected);
    }
}
