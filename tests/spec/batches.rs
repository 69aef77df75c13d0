//! Jobs that run together, by the real binary and a worker that is written with the SDK.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tests::chaos::process::cpu_time;
use tests::harness::{Daemon, private_folder, program, run, run_offload, until};

fn start(arguments: &[&str]) -> Daemon {
    let worker = program("batchworker").display().to_string();
    Daemon::start(&[&["--workers", "1", "--worker", &worker], arguments].concat())
}

/// Runs these jobs of a task, which all wait when the only worker becomes free. One JSON document for each, in their order.
fn together(daemon: &Daemon, options: &[&str], inputs: &[&str]) -> Vec<Value> {
    let busy = daemon.run(&["submit", "--detach", "lone", "3600000"]).ok().text().trim().to_owned();
    daemon.worker_running("lone");
    let submit = |input: &&str| {
        let words = [&["submit", "--json", "--client", "one"], options, &["tile", input]].concat();
        let mut submit = daemon.command(&words);
        std::thread::spawn(move || run(&mut submit, b"").json())
    };
    let jobs: Vec<_> = inputs.iter().map(submit).collect();
    let count = inputs.len() as u64;
    until("all jobs in the queue", || (daemon.status()["queue"]["jobs"] == count).then_some(()));
    daemon.run(&["cancel", &busy]).ok();
    jobs.into_iter().map(|job| job.join().expect("no panic")).collect()
}

fn outcomes(jobs: &[Value]) -> Vec<&str> {
    jobs.iter().map(|job| job["outcome"].as_str().expect("a word")).collect()
}

#[test]
fn jobs_that_wait_for_the_same_task_run_together_and_everybody_can_see_it() {
    let daemon = start(&[]);
    let jobs = together(&daemon, &[], &["x"; 8]);
    assert!(jobs.iter().all(|job| job["output"] == "8"), "{jobs:?}");
    let task = daemon.run(&["tasks", "--json", "tile"]).ok().json();
    assert_eq!(task[0]["batch"], json!({"max": 8, "wait_us": 20_000}), "{task}");
    let listed = daemon.run(&["jobs", "--json"]).ok().json();
    let batched = listed.as_array().unwrap().iter().filter(|job| job["batch"] == 8).count();
    assert_eq!(batched, 8, "{listed}");
    let workers = daemon.status()["workers"].clone();
    assert_eq!((&workers["batches"], &workers["batched_jobs"]), (&json!(1), &json!(8)));
    assert_eq!(daemon.submit(&["tile", "x"])["output"], "1", "nobody came to keep it company");
}

#[test]
fn of_jobs_that_run_together_only_the_guilty_ones_fail_each_in_its_own_way() {
    let daemon = start(&[]);
    let inputs = ["x", "crash", "x", "panic", "bad", "lose", "x", "x"];
    let jobs = together(&daemon, &["--attempts", "1"], &inputs);
    let expected = ["ok", "worker_crashed", "ok", "panic", "app_error", "app_error", "ok", "ok"];
    assert_eq!(outcomes(&jobs), expected, "{jobs:?}");
    assert!(
        jobs.iter().all(|job| job["attempts"] == 1),
        "to be with a guilty one costs no attempt: {jobs:?}"
    );
    let accused =
        |line: &str| line.contains("while it ran 8 jobs together: ") && line.ends_with(", and others");
    assert!(daemon.stderr.find(accused, Duration::from_secs(10)).is_some(), "{:#?}", daemon.stderr.all());
    daemon.wait_until_whole();
    let status = daemon.status();
    assert_eq!(status["workers"]["halved_batches"], 3, "{status}");
    assert_eq!((&status["ledger"]["balanced"], &status["state"]), (&json!(true), &json!("running")));
}

#[test]
fn two_guilty_jobs_of_many_are_found_and_become_dead_letters() {
    let daemon = start(&[]);
    let mut inputs = ["x"; 24];
    (inputs[3], inputs[17]) = ("crash", "crash");
    let jobs = together(&daemon, &[], &inputs);
    let guilty = |(index, job): (usize, &Value)| (job["outcome"] == "poison").then_some(index);
    assert_eq!(jobs.iter().enumerate().filter_map(guilty).collect::<Vec<_>>(), [3, 17], "{jobs:?}");
    assert_eq!(outcomes(&jobs).iter().filter(|outcome| **outcome == "ok").count(), 22);
    for job in &jobs {
        let is_guilty = job["outcome"] == "poison";
        assert_eq!(job["attempts"], if is_guilty { 3 } else { 1 }, "{job}");
        let message = job["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(message.contains("in attempt 3 of 3"), is_guilty, "{job}");
    }
    let letters = daemon.run(&["dead", "list", "--json"]).ok().json();
    assert_eq!(letters.as_array().map(Vec::len), Some(2), "{letters}");
}

#[test]
fn a_time_limit_that_only_several_jobs_exceed_together_hurts_none_of_them() {
    let daemon = start(&[]);
    let jobs = together(&daemon, &["--timeout", "1s"], &["x", "wait", "x", "x"]);
    assert_eq!(outcomes(&jobs), ["ok"; 4], "{jobs:?}");
    let jobs = together(&daemon, &["--timeout", "1s"], &["x", "hang"]);
    assert_eq!(outcomes(&jobs), ["ok", "timeout"], "{jobs:?}");
}

/// Without the grace, the others would wait for the time limit of a run: five minutes.
#[test]
fn a_job_that_hangs_and_is_cancelled_does_not_hold_up_those_that_run_with_it() {
    let daemon = start(&[]);
    let submit = |task: &str, input: &str| {
        let words = ["submit", "--detach", "--client", "one", task, input];
        daemon.run(&words).ok().text().trim().to_owned()
    };
    let busy = submit("lone", "3600000");
    daemon.worker_running("lone");
    let [first, hangs, second, third] = ["x", "hang", "x", "x"].map(|input| submit("tile", input));
    daemon.run(&["cancel", &busy]).ok();
    let worker = daemon.worker_running("tile");
    assert_eq!(worker["batch"], 4, "{worker}");
    daemon.run(&["cancel", &hangs]).ok();
    for innocent in [first, second, third] {
        let job = daemon.run(&["wait", "--json", &innocent]).ok().json();
        assert_eq!((&job["outcome"], &job["attempts"]), (&json!("ok"), &json!(1)), "{job}");
        assert!(["1", "2"].contains(&job["output"].as_str().unwrap_or_default()), "in halves: {job}");
    }
    assert_eq!(daemon.status()["workers"]["halved_batches"], 1);
}

#[test]
fn a_job_that_is_cancelled_does_not_have_the_cpu_time_of_those_that_run_with_it_in_its_receipt() {
    let daemon = start(&[]);
    let submit = |task: &str, input: &str| {
        let words = ["submit", "--detach", "--client", "one", task, input];
        daemon.run(&words).ok().text().trim().to_owned()
    };
    let folder = private_folder();
    let end = folder.path().join("end");
    let busy = submit("lone", "3600000");
    daemon.worker_running("lone");
    let burn = format!("burn {}", end.display());
    let jobs = [&burn, "x", "x"].map(|input| submit("tile", input));
    daemon.run(&["cancel", &busy]).ok();
    let worker = daemon.worker_running("tile");
    assert_eq!(worker["batch"], 3, "{worker}");
    let pid = worker["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process id");
    until("much CPU time", || (cpu_time(pid) > Duration::from_secs(1)).then_some(()));
    daemon.run(&["cancel", &jobs[1]]).ok();
    std::fs::write(end, "").unwrap();
    let ended =
        jobs.map(|job| serde_json::from_slice::<Value>(&daemon.run(&["wait", "--json", &job]).stdout));
    let ended = ended.map(|job| job.expect("JSON"));
    assert_eq!(outcomes(&ended), ["ok", "cancelled", "ok"]);
    let none = json!({"cpu_user_us": 0, "cpu_system_us": 0, "peak_rss_bytes": 0});
    assert_eq!(ended[1]["receipt"]["usage"], none, "{}", ended[1]);
    // If it had not returned in time, others have run the rest.
    let here = ended.iter().filter(|job| job["receipt"]["worker_pid"] == pid);
    let said = |job: &Value, what: &str| job["receipt"]["usage"][what].as_u64().expect("a number");
    let said: u64 = here.map(|job| said(job, "cpu_user_us") + said(job, "cpu_system_us")).sum();
    let used = Some(cpu_time(pid)).filter(|used| !used.is_zero());
    assert!(used.is_none_or(|used| u128::from(said) <= used.as_micros()), "{said} us of {used:?}: {ended:?}");
}

#[test]
fn the_configuration_lowers_what_a_worker_offers_and_names_what_cannot_be() {
    let daemon = start(&["--batch", "tile=2/5ms"]);
    assert!(together(&daemon, &[], &["x"; 4]).iter().all(|job| job["output"] == "2"));
    let daemon = start(&["--batch", "tile=1"]);
    assert!(together(&daemon, &[], &["x"; 4]).iter().all(|job| job["output"] == "1"));
    let task = daemon.run(&["tasks", "--json", "tile"]).ok().json();
    assert_eq!((&task[0]["task"], &task[0]["batch"]), (&json!("tile"), &Value::Null));
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    let path = file.to_str().unwrap();
    std::fs::write(
        &file,
        "[task.\"primes.batch\"]\nbatch = { max = 8, wait = \"1ms\" }\n[task.tile]\nbatch.max = 2\n",
    )
    .unwrap();
    run_offload(&["config", "check", path]).ok();
    let shown = run_offload(&["config", "show", "--config", path]).ok().text();
    assert!(shown.contains("primes.batch=8/1ms") && shown.contains("tile=2"), "{shown}");
    for (wrong, why) in [
        ("batch = { max = 99 }", "from 1 to 32 jobs, not 99"),
        ("batch = { wait = \"2min\" }", "no such time"),
        ("batch = { wait = \"2s\" }", "at most 1 s"),
        ("batch = { most = 2 }", "\"most\" is unknown"),
        ("bach = { max = 2 }", "unknown key \"bach\" in [task.tile]; did you mean \"batch\"?"),
        ("batch = 2", "must be a table"),
    ] {
        std::fs::write(&file, format!("[task.tile]\n{wrong}\n")).unwrap();
        let ran = run_offload(&["config", "check", path]);
        let told = format!("{}{}", String::from_utf8_lossy(&ran.stdout), ran.stderr);
        assert!(ran.code != 0 && told.contains(why) && told.contains(":2"), "{wrong}: {told}");
    }
}

#[test]
fn a_lone_job_of_such_a_task_runs_between_the_steps_of_a_long_one() {
    let daemon = Daemon::start(&["--workers", "1", "--batch", "primes.batch=1"]);
    daemon.run(&["submit", "--detach", "average", "4000000000"]).ok();
    daemon.worker_running("average");
    let job = daemon.submit(&["primes.batch", "1000"]);
    assert_eq!((&job["outcome"], &job["output"]["count"]), (&json!("ok"), &json!(168)), "{job}");
    daemon.worker_running("average");
}

/// With `-- --nocapture` it prints how much faster the same jobs are together.
#[test]
fn the_gain_of_running_together_is_measured_on_the_same_jobs() {
    let time = |batch: &str| {
        let daemon = Daemon::start(&["--workers", "1", "--batch", batch]);
        daemon.run(&["submit", "primes.batch", "1000"]).ok();
        let lines: String = (0..256).map(|number| format!("{}\n", 1_000_000 - number)).collect();
        let start = Instant::now();
        let ran = run(&mut daemon.command(&["map", "primes.batch"]), lines.as_bytes()).ok();
        let outputs: Vec<Value> = ran.json_lines().iter().map(|job| job["output"].clone()).collect();
        (start.elapsed(), outputs, daemon.status()["workers"]["batched_jobs"].as_u64().unwrap())
    };
    let (alone, outputs, none) = time("primes.batch=1");
    let (together, same, batched) = time("primes.batch=32/2ms");
    assert_eq!((outputs.len(), outputs == same), (256, true), "the answers are the same");
    assert!(none == 0 && batched > 0, "{none} and {batched} jobs ran together");
    let ratio = alone.as_secs_f64() / together.max(Duration::from_nanos(1)).as_secs_f64();
    println!("256 jobs of primes.batch: {alone:?} alone, {together:?} together, ratio {ratio:.1}");
}
