//! The events of a job, for clients that come back.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use tempfile::TempDir;
use tests::harness::private_folder;
use tests::http::{HttpConnection, HttpDaemon};

/// A program whose only task goes one step further with each byte that comes through its gate. Reports of progress that follow too
/// soon are dropped, so it repeats its own.
const IN_STEPS: &str = r#"
import json, os, select
gate = os.open(os.path.dirname(__file__) + '/gate', os.O_RDONLY)
jobs, answers = open(3), open(4, 'w', buffering=1)
def send(line): answers.write(json.dumps(line) + '\n')
send({'hello': {'tasks': [{'name': 'steps'}]}})
for line in jobs:
    number, step = json.loads(line)['job'], 0
    while step < 4:
        if step > 0:
            send({'job': number, 'progress': [step, 4]})
        if select.select([gate], [], [], 0.02)[0]:
            step += len(os.read(gate, 1))
    send({'job': number, 'output': 'done'})
"#;

/// A supervisor with that program, and the job that it runs.
struct Stepping {
    http: HttpDaemon,
    gate: File,
    events: String,
    _folder: TempDir,
}

impl Stepping {
    fn start() -> Stepping {
        let folder = private_folder();
        let (gate, program) = (folder.path().join("gate"), folder.path().join("program.py"));
        std::fs::write(&program, IN_STEPS).unwrap();
        mknodat(CWD, &gate, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("our own folder");
        // Open at both ends, so that nobody waits for the other end.
        let gate = File::options().read(true).write(true).open(&gate).expect("our own");
        let program = format!("python3 {}", program.display());
        let http = HttpDaemon::start(&["--workers", "1", "--worker-jsonl", &program]);
        let fields = [("Prefer", "respond-async"), ("Content-Type", "application/json")];
        let accepted = http.call("steps", &fields, "1").json();
        let events = accepted["events"].as_str().expect("where its events are").to_owned();
        http.daemon.worker_running("steps");
        Stepping { http, gate, events, _folder: folder }
    }

    fn step(&mut self) {
        self.gate.write_all(b"\n").expect("a pipe takes a line");
    }

    /// Follows the job behind this event; from its beginning, if there is none.
    fn follow(&self, last: Option<&Event>) -> Following {
        let mut connection = self.http.connect();
        let fields: Vec<_> = last.iter().map(|event| ("Last-Event-ID", &*event.id)).collect();
        connection.send("GET", &self.events, &fields, b"");
        let (status, fields) = connection.head_of_answer().expect("a head");
        let has_events =
            |(name, value): &(String, String)| name == "content-type" && value == "text/event-stream";
        assert!(status == 200 && fields.iter().any(has_events), "{status} {fields:?}");
        Following(connection)
    }
}

/// A client that reads the events of a job. To drop it is to go away.
struct Following(HttpConnection);

#[derive(Debug)]
struct Event {
    name: String,
    id: String,
    data: Value,
}

impl Event {
    fn progress(&self) -> (&str, &Value) {
        (&self.name, &self.data["progress"])
    }
}

impl Following {
    /// The next event; None at the end of the stream.
    fn next(&mut self) -> Option<Event> {
        let mut event = Event { name: String::new(), id: String::new(), data: Value::Null };
        // Between the lines of events are those of the chunks.
        loop {
            let line = self.0.line().expect("the stream has a proper end");
            match line.split_once(": ") {
                Some(("event", name)) => name.clone_into(&mut event.name),
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("data", data)) => {
                    event.data = serde_json::from_str(data).expect("JSON on one line");
                    return Some(event);
                }
                _ if line == "0" => return None,
                _ => {}
            }
        }
    }
}

#[test]
fn a_client_that_comes_back_is_told_what_it_does_not_know_and_nothing_twice() {
    let mut job = Stepping::start();
    let mut first = job.follow(None);
    let begun = first.next().expect("it runs");
    assert_eq!((&*begun.name, &begun.data["state"]), ("state", &json!("running")));
    job.step();
    let one = first.next().expect("the first step");
    assert_eq!(one.progress(), ("progress", &json!([1, 4])));
    drop(first);
    // What it knows is not told again: the next event is the next step.
    let mut second = job.follow(Some(&one));
    job.step();
    let two = second.next().expect("the second step");
    assert_eq!(two.progress(), ("progress", &json!([2, 4])));
    drop(second);
    // What has happened meanwhile is told at once, to whoever knows less, and in full to whoever knows nothing.
    for last in [Some(&begun), Some(&one), None] {
        let told = job.follow(last).next().expect("the second step");
        assert_eq!((told.progress(), &told.id), (two.progress(), &two.id), "{last:?}");
    }
    let mut third = job.follow(Some(&two));
    job.step();
    let three = third.next().expect("the third step");
    assert_eq!(three.progress(), ("progress", &json!([3, 4])));
    job.step();
    let end = third.next().expect("the end");
    assert_eq!(
        (&*end.name, &end.data["outcome"], &end.data["output"]),
        ("end", &json!("ok"), &json!("done"))
    );
    assert!(third.next().is_none(), "nothing comes behind the end");
    let ids = [&begun.id, &one.id, &two.id, &three.id, &end.id];
    assert!(ids.iter().enumerate().all(|(at, id)| !id.is_empty() && !ids[..at].contains(id)), "{ids:?}");
    // Whoever lost the connection before the end gets the end alone.
    let mut late = job.follow(Some(&two));
    let told = late.next().expect("the end");
    assert_eq!((&told.name, &told.id, &told.data), (&end.name, &end.id, &end.data));
    assert!(late.next().is_none());
    let again = job.http.ask("GET", &job.events, &[("Last-Event-ID", &end.id)], b"");
    assert_eq!((again.status, again.text()), (204, String::new()));
}
