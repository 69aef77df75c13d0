//! Applications that end between two jobs: the next job, which waits in their backlog, has not begun.

use super::{Application, message};
use serde_json::json;

/// As many jobs, one right behind the other, each of which finds an application that is about to go. Four
/// times as many applications have to start within a minute, also on a busy machine.
const ROUNDS: usize = 8;

fn costs_no_job(application: &Application) {
    let inputs: Vec<String> = (0..=ROUNDS).map(|number| number.to_string()).collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    // Most of the time is spent waiting for applications to start.
    std::thread::scope(|scope| {
        for (place, task) in [("{socket}", "t"), ("{socket}", "again"), ("{port}", "t"), ("{port}", "again")]
        {
            let words = [&[task], &inputs[..]].concat();
            scope.spawn(move || expect_one_attempt_each(application, place, &words));
        }
    });
}

fn expect_one_attempt_each(application: &Application, place: &str, words: &[&str]) {
    let jobs = application.run_at(place, words).ok().json_lines();
    assert_eq!(jobs.len(), words.len() - 1);
    for (number, job) in jobs.iter().enumerate() {
        assert_eq!((&job["output"], &job["attempts"]), (&json!(number), &json!(1)), "{place}: {job}");
    }
}

#[test]
fn an_application_that_exits_after_its_answer_costs_the_next_job_nothing() {
    costs_no_job(&Application::new(
        "answer(json.dumps(json.loads(whole()))); connection.close(); os._exit(3)",
    ));
}

#[test]
fn an_application_that_closes_its_listener_after_its_answer_costs_the_next_job_nothing() {
    costs_no_job(&Application::new(
        "answer(json.dumps(json.loads(whole()))); connection.close(); listener.close(); time.sleep(600)",
    ));
}

/// The time of a job that has not begun does not count: it would be blamed for what the application does after the job before.
#[test]
fn a_job_that_an_application_never_accepts_is_given_back_whatever_its_time_limit() {
    let application = Application::new(
        "x = json.loads(whole()); answer(json.dumps(x)); connection.close()\n\
         if x == 0: time.sleep(600)",
    );
    std::thread::scope(|scope| {
        for (place, task) in [("{socket}", "t"), ("{port}", "t"), ("{port}", "again")] {
            let application = &application;
            scope.spawn(move || {
                let words = ["--timeout", "4s", task, "0", "1"];
                let jobs = application.run_at(place, &words).ok().json_lines();
                assert_eq!((&jobs[1]["output"], &jobs[1]["attempts"]), (&json!(1), &json!(1)), "{jobs:?}");
            });
        }
    });
}

/// It waits until the next job is in its backlog, for sure.
#[test]
fn a_job_in_the_backlog_of_an_application_that_dies_is_given_back() {
    for then in ["os._exit(3)", "os.abort()", "listener.close(); time.sleep(600)"] {
        let application = Application::new(&format!(
            "answer(json.dumps(json.loads(whole()))); connection.close()\n\
             import select; select.select([listener], [], [], 2); time.sleep(0.05)\n{then}"
        ));
        for place in ["{socket}", "{port}"] {
            expect_one_attempt_each(&application, place, &["t", "0", "1", "2"]);
        }
    }
}

#[test]
fn a_job_that_was_read_is_blamed_with_the_signal_however_long_it_is() {
    let application = Application::new("whole(); os.kill(os.getpid(), signal.SIGSEGV)");
    let large = application.folder.path().join("large");
    std::fs::write(&large, vec![b'x'; 3_000_000]).unwrap();
    let large = format!("@{}", large.display());
    for place in ["{socket}", "{port}"] {
        for input in ["1", large.as_str()] {
            let job = application.run_at(place, &["t", input]).code(125).json();
            assert_eq!((&job["outcome"], &job["attempts"]), (&json!("worker_crashed"), &json!(1)), "{job}");
            assert!(job["error"].to_string().contains("signal 11"), "{place}: {job}");
        }
        let job = application.run_at(place, &["again", "1"]).code(125).json();
        assert_eq!((&job["outcome"], &job["attempts"]), (&json!("poison"), &json!(3)), "{job}");
    }
}

/// Whether this job is the reason, nobody can know: it may have been a thread that the job before has left.
#[test]
fn a_job_that_was_read_in_part_is_not_blamed_and_not_run_twice() {
    for then in ["os._exit(3)", "connection.close(); time.sleep(600)"] {
        let application = Application::new(&format!(
            "with open(sys.argv[0] + '.begun', 'a') as begun: begun.write('x')\n{then}"
        ));
        for (round, place) in ["{socket}", "{port}"].into_iter().enumerate() {
            let job = application.run_at(place, &["t", "[1, 2, 3]"]).code(125).json();
            assert_eq!(job["outcome"], "indeterminate", "{then} at {place}: {job}");
            assert!(!message(&job).contains("in attempt"), "{job}");
            let begun = std::fs::read_to_string(application.path().with_extension("py.begun")).unwrap();
            assert_eq!(begun.len(), round + 1, "{then} at {place}");
        }
    }
}
