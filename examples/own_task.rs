//! A worker program with tasks of one's own. Start a supervisor with it:
//!
//! ```text
//! cargo build --release -p examples
//! offload serve --worker target/release/own_task &
//! until offload status >/dev/null 2>&1; do sleep 0.1; done    # a script has to wait until the supervisor listens
//! offload submit shout 'hello'
//! offload submit mix '{"red": 0.2, "blue": 0.9}'
//! ```

use offload_worker::{Output, Task, TaskError, Worker};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Colours {
    red: f64,
    blue: f64,
}

#[derive(Serialize)]
struct Mixed {
    purple: f64,
}

fn main() -> ExitCode {
    Worker::new()
        // Typed: JSON in and out. An input that does not fit is the job's error and says where.
        .with(Task::json("mix", |colours: Colours, _cx| mix(&colours)).idempotent())
        // Raw: bytes in and out. Not idempotent unless said so: it is never started twice.
        .raw("shout", |input, _cx| Ok(Output::text(String::from_utf8_lossy(&input.bytes).to_uppercase())))
        .serve()
}

fn mix(colours: &Colours) -> Result<Mixed, TaskError> {
    let all = colours.red + colours.blue;
    if all > 2.0 {
        return Err(TaskError::new("that is more paint than there is"));
    }
    Ok(Mixed { purple: all / 2.0 })
}
