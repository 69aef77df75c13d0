//! `offload tasks`: lists the tasks that can be submitted, or shows what one takes and gives. With `--worker`, or its variable, it shows
//! those of any program of workers. Without a supervisor it shows those of the programs that the configuration names, or else those
//! of the built-in worker.

use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, NAMELESS, ProgramFlags};
use super::introduced::introduced_tasks;
use super::output::{print, print_line, say};
use super::show::fetch_list;
use super::table::Table;
use super::text;
use crate::configuration::table::BUILTIN;
use clap::Args;
use offload_protocol::messages::View;
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::views::TaskView;

/// What stands in the place of the program of a task that needs no worker.
const NEEDS_IO_ROOT: &str = "needs --io-root";

/// List the available tasks, or show what one takes and gives
#[derive(Args, Debug)]
pub(crate) struct Tasks {
    /// Show this task alone, with its example and its schema
    name: Option<String>,

    #[command(flatten)]
    programs: ProgramFlags,
}

impl Tasks {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let mut tasks = match self.programs.pool(globals)? {
            Some(pool) => introduced_tasks(pool)?,
            None => offered_tasks(globals)?,
        };
        if let Some(name) = &self.name {
            tasks.retain(|task| task.task == *name);
            if tasks.is_empty() {
                let message = format!("no worker offers a task {name:?} (`offload tasks` lists them)");
                return Err(Failure::Outcome {
                    code: OutcomeCode::UnknownTask,
                    message,
                    retry_after_ms: None,
                });
            }
        }
        if globals.json {
            print_line(serde_json::to_string(&tasks).expect("views are JSON"))?;
        } else if self.name.is_some() {
            print(tasks.iter().map(details).collect::<String>().as_bytes())?;
        } else {
            print(render(&tasks).as_bytes())?;
        }
        Ok(OK)
    }
}

/// The tasks of the supervisor at the socket. If there is none, those of the configured programs, or else of the built-in worker.
fn offered_tasks(globals: &Globals) -> Result<Vec<TaskView>, Failure> {
    match globals.connect(NAMELESS) {
        Ok(mut client) => {
            let name = |task: &TaskView| task.task.clone();
            Ok(fetch_list(&mut client, (View::Tasks, ""), usize::MAX, name)?.rows)
        }
        Err(Failure::NoSupervisor(_)) => {
            if let Some(pool) = ProgramFlags::pool_of_the_file(globals)? {
                say(
                    "no supervisor runs here: these are the tasks of the programs that the configuration names",
                );
                return introduced_tasks(pool);
            }
            say(
                "no supervisor runs here: these are the tasks of the built-in worker, and those that a supervisor with --io-root does itself",
            );
            Ok([builtin(), done_by_supervisors()].concat())
        }
        Err(other) => Err(other),
    }
}

/// The tasks of the built-in worker.
pub(crate) fn builtin() -> Vec<TaskView> {
    let tasks = offload_worker::builtin::tasks(false);
    tasks.iter().map(|task| TaskView::new(&task.offer(), task.described(), BUILTIN)).collect()
}

fn done_by_supervisors() -> Vec<TaskView> {
    let tasks = offload_supervisor::io_task_offers();
    tasks.iter().map(|(offer, described)| TaskView::new(offer, described, NEEDS_IO_ROOT)).collect()
}

fn render(tasks: &[TaskView]) -> String {
    let mut table = Table::new(&["TASK", "LANE", "IDEMPOTENT", "PROGRAM", "DESCRIPTION"]);
    for task in tasks {
        let idempotent = if task.idempotent { "yes" } else { "no" };
        table.row([
            task.task.clone(),
            task.lane.clone(),
            idempotent.to_owned(),
            task.program.clone(),
            text::printable(&task.description).into_owned(),
        ]);
    }
    table.render()
}

/// All that a task says of itself, a line for each thing that it says.
fn details(task: &TaskView) -> String {
    let yes = |is: bool, what: &str| is.then(|| what.to_owned());
    let accepts: Vec<&str> = task.accepts.iter().map(MediaType::as_str).collect();
    let promises = [
        yes(task.idempotent, "idempotent"),
        yes(task.steps, "in steps"),
        yes(task.checkpoints, "with checkpoints"),
        yes(task.streams, "output in parts (--stream)"),
        task.batch.map(|batch| format!("up to {} jobs at once", batch.max)),
    ];
    let needs = [
        (task.memory_bytes > 0).then(|| text::bytes(task.memory_bytes)),
        yes(task.exclusive, "a machine to itself"),
    ];
    let list = |words: &[Option<String>]| words.iter().flatten().cloned().collect::<Vec<_>>().join(", ");
    let example = task.example.clone().or_else(|| {
        let binary = task.example_base64.as_ref()?;
        Some(format!("in base64, {binary}"))
    });
    let schema = task.schema.as_ref().map(ToString::to_string).unwrap_or_default();
    let lines = [
        ("takes", accepts.join(", ")),
        ("returns", task.produces.to_string()),
        ("promises", list(&promises)),
        ("needs", list(&needs)),
        ("example", example.unwrap_or_default()),
        ("schema", schema),
        ("program", task.program.clone()),
    ];
    let said = lines.iter().filter(|(_, what)| !what.is_empty());
    let head = format!("{}: {}\n", task.task, text::printable(&task.description));
    head + &said.map(|(word, what)| format!("  {word:<9} {}\n", text::printable(what))).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_shown_with_what_it_takes_and_gives() {
        let tasks = builtin();
        let shown = details(tasks.iter().find(|task| task.task == "pbkdf2").unwrap());
        let expected = "pbkdf2: PBKDF2 with HMAC-SHA256, in hexadecimal; iterations <= 10^7, length <= 1024\n  \
                        takes     application/json\n  returns   text/plain; charset=utf-8\n  promises  idempotent\n  \
                        example   {\"password\":\"secret\",\"salt\":\"salt\",\"iterations\":1000,\"length\":32}\n  \
                        schema    {\"type\":\"object\",";
        assert!(shown.starts_with(expected) && shown.ends_with("\n  program   builtin\n"), "{shown}");
    }

    #[test]
    fn it_is_shown_which_tasks_send_their_output_in_parts() {
        let tasks = builtin();
        let streaming: Vec<&str> = tasks.iter().filter(|task| task.streams).map(|task| &*task.task).collect();
        assert_eq!(streaming, ["count"]);
        let shown = details(tasks.iter().find(|task| task.task == "count").unwrap());
        assert!(shown.contains("output in parts (--stream)\n"), "{shown}");
        assert!(serde_json::to_string(&tasks).unwrap().contains("\"streams\":true"));
    }

    #[test]
    fn it_is_shown_which_tasks_take_several_jobs_at_once() {
        let tasks = builtin();
        let batched: Vec<&TaskView> = tasks.iter().filter(|task| task.batch.is_some()).collect();
        assert_eq!(batched.iter().map(|task| &*task.task).collect::<Vec<_>>(), ["primes.batch"]);
        assert!(details(batched[0]).contains("  promises  idempotent, up to 32 jobs at once\n"));
    }

    /// Each built-in task has a row of its own in the table of README.md, or shares one.
    #[test]
    fn the_table_of_built_in_tasks_names_those_that_there_are() {
        let readme = include_str!("../../../README.md");
        let table = readme
            .split_once("| `primes` |")
            .map(|(before, after)| (before.lines().last(), after))
            .unwrap()
            .1;
        let rows: Vec<&str> = std::iter::once("`primes` ")
            .chain(table.lines().skip(1).take_while(|line| line.starts_with('|')))
            .map(|line| line.trim_start_matches('|').split('|').next().unwrap())
            .collect();
        let mut named: Vec<&str> = rows.iter().flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
        named.sort_unstable();
        let tasks = builtin();
        let mut offered: Vec<&str> = tasks.iter().map(|task| &*task.task).collect();
        offered.sort_unstable();
        assert_eq!(named, offered);
    }
}
