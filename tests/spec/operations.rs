//! What an operator can do: `explain`, `dead retry`, `reload`; and how workers are replaced.

use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tests::chaos::process::cpu_time as process_cpu_time;
use tests::harness::{
    Daemon, Gate, PATIENCE, Ran, children_of, program, signal, until, wait_for_end, workspace,
};

/// Longer than any test.
const FOR_EVER: &str = "3600000";

fn faulty(arguments: &[&str]) -> Daemon {
    let worker = format!("{} boot:nothing", program("faultworker").display());
    Daemon::start(&[&["--workers", "1", "--worker", &worker], arguments].concat())
}

fn detach(daemon: &Daemon, arguments: &[&str]) -> String {
    let ran = daemon.run(&[&["submit", "--detach"], arguments].concat()).ok();
    ran.text().trim().to_owned()
}

fn explain(daemon: &Daemon, job: &str) -> Value {
    daemon.run(&["explain", "--json", job]).ok().json()
}

fn wait_until_it_runs(daemon: &Daemon, job: &str) -> Value {
    until("the job to run", || daemon.workers().into_iter().find(|worker| worker["job"] == job))
}

fn pid_of(worker: &Value) -> u32 {
    worker["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("a process id")
}

/// Those of the workers that there are: a place that is being filled again has none.
fn pids(daemon: &Daemon) -> BTreeSet<u32> {
    daemon.workers().iter().filter(|worker| !worker["pid"].is_null()).map(pid_of).collect()
}

fn reason_with(explanation: &Value, words: &str) -> bool {
    explanation["reasons"].as_array().unwrap().iter().any(|reason| reason.as_str().unwrap().contains(words))
}

#[test]
fn a_job_that_kills_every_worker_is_a_dead_letter_that_can_be_shown_retried_and_dropped() {
    let daemon = faulty(&[]);
    assert_eq!(daemon.submit(&["act", "exit7"])["outcome"], "poison");
    let letters = || daemon.run(&["dead", "list", "--json"]).ok().json();
    let letter = letters()[0].clone();
    let attempts = letter["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 3, "{letter}");
    for attempt in attempts {
        assert_eq!((&attempt["exit_code"], &attempt["blamed"]), (&json!(7), &json!(true)), "{attempt}");
        let said = attempt["last_lines"].as_array().unwrap();
        assert!(said.iter().any(|line| line == "faultworker: boot:nothing"), "{attempt}");
    }

    let id = letter["job"].as_str().unwrap();
    let shown = daemon.run(&["dead", "show", id]).ok().text();
    assert_eq!(
        daemon.run(&["dead", "show", "--json", &id[id.len() - 4..]]).ok().json()["job"],
        *id,
        "it is named as any other job"
    );
    assert!(shown.contains("attempt 3: ") && shown.contains("exit code 7"), "{shown}");
    assert!(shown.contains("    | faultworker: boot:nothing"), "{shown}");

    let again = daemon.run(&["dead", "retry", id]).ok().text().trim().to_owned();
    assert_ne!(again, id);
    assert_eq!(daemon.run(&["wait", "--json", &again]).code(125).json()["outcome"], "poison");
    assert_eq!(letters().as_array().map(|all| (all.len(), all[0]["job"] == again)), Some((1, true)));
    daemon.run(&["dead", "show", id]).code(5);

    assert_eq!(
        daemon.run(&["dead", "drop", &again[again.len() - 4..]]).ok().text(),
        format!("{again}: dropped\n")
    );
    assert_eq!(letters(), json!([]));
}

#[test]
fn explain_says_what_a_job_waits_for_where_it_runs_and_how_it_ended() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let first = detach(&daemon, &["sleep", FOR_EVER]);
    let worker = wait_until_it_runs(&daemon, &first);
    let second = detach(&daemon, &["sleep", FOR_EVER]);

    let waits = explain(&daemon, &second);
    assert_eq!(waits["state"], "queued");
    assert!(reason_with(&waits, "1 of 1 workers of its program have jobs"), "{waits}");
    let runs = explain(&daemon, &first);
    assert_eq!((&runs["state"], &runs["worker_pid"]), (&json!("running"), &worker["pid"]));
    assert!(reason_with(&runs, &format!("worker {} (slot 0)", worker["pid"])), "{runs}");

    daemon.run(&["cancel", &first]).ok();
    assert_eq!(explain(&daemon, &first)["state"], "cancelled");
    let text = daemon.run(&["explain", &second]).ok().text();
    assert!(text.starts_with(&format!("{second}: ")) && text.contains("\n- "), "{text}");
    let unknown = daemon.run(&["explain", "01J00000000000000000000000"]).code(5);
    assert!(unknown.stderr.contains("no job"), "{}", unknown.stderr);
}

#[test]
fn the_same_key_and_input_are_one_job_and_another_input_is_a_conflict() {
    let daemon = faulty(&[]);
    let submit = |input| daemon.run(&["submit", "--json", "--idempotency-key", "bill-17", "charge", input]);
    let (first, second) = (submit("nothing").ok().json(), submit("nothing").ok().json());
    assert_eq!((&first["job"], &first["output"]), (&second["job"], &second["output"]));
    assert_eq!(daemon.status()["jobs"]["ok"], 1, "it ran once");
    let other = submit("print").code(4).json();
    assert_eq!((&other["outcome"], &other["error"]["code"]), (&json!("conflict"), &json!("conflict")));
}

#[test]
fn a_later_job_of_higher_priority_runs_before_an_earlier_one() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let gate = detach(&daemon, &["sleep", FOR_EVER]);
    wait_until_it_runs(&daemon, &gate);
    let ordinary = detach(&daemon, &["--priority", "-10", "sleep", FOR_EVER]);
    let urgent = detach(&daemon, &["--priority", "10", "sleep", FOR_EVER]);
    daemon.run(&["cancel", &gate]).ok();
    wait_until_it_runs(&daemon, &urgent);
    assert_eq!(explain(&daemon, &ordinary)["state"], "queued");
    daemon.run(&["submit", "--priority", "11", "echo", "x"]).code(2);
}

#[test]
fn a_reload_replaces_every_worker_and_no_job_notices() {
    let daemon = Daemon::start(&["--workers", "2"]);
    daemon.wait_until_whole();
    let before = pids(&daemon);
    let jobs: Vec<String> = (0..12).map(|_| detach(&daemon, &["sleep", "200"])).collect();
    assert_eq!(daemon.run(&["reload"]).ok().text(), "reloaded\n");
    for job in jobs {
        let ended = daemon.run(&["wait", "--json", &job]).ok().json();
        assert_eq!((&ended["outcome"], &ended["attempts"]), (&json!("ok"), &json!(1)), "{ended}");
    }
    daemon.wait_until_whole();
    assert!(pids(&daemon).is_disjoint(&before), "a worker from before is still there");
}

fn write_config(file: &Path, command: &str, workers: usize) {
    let text = format!("[[pool]]\ncommand = {}\nworkers = {workers}\n", json!(command));
    std::fs::write(file, text).unwrap();
}

fn configured(file: &Path) -> Daemon {
    Daemon::start(&["--config", file.to_str().unwrap()])
}

#[test]
fn a_reload_to_a_program_that_does_not_start_is_taken_back_and_the_old_workers_serve() {
    let folder = tests::harness::private_folder();
    let file = folder.path().join("offload.toml");
    write_config(&file, "builtin", 2);
    let daemon = configured(&file);
    write_config(&file, "/bin/false", 2);
    let ran = daemon.run(&["reload"]).code(4);
    let why = "unavailable: the old workers stay, because the new version of `/bin/false` does not work: ";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    assert_eq!(daemon.submit(&["echo", "still here"])["output"], "still here");
}

#[test]
fn of_several_programs_a_failed_reload_names_the_one_that_does_not_work() {
    let folder = tests::harness::private_folder();
    let file = folder.path().join("offload.toml");
    let pools = |second: &str| {
        let pool = |command: &str| format!("[[pool]]\ncommand = \"{command}\"\nworkers = 1\n");
        std::fs::write(&file, pool("builtin") + &pool(second)).unwrap();
    };
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/worker.py");
    let python = format!("python3 {}", python.display());
    pools(&python);
    let daemon = configured(&file);
    daemon.wait_until_whole();
    pools("/bin/false");
    let ran = daemon.run(&["reload"]).code(4);
    assert!(ran.stderr.contains(" the new version of `/bin/false` does not work: "), "{}", ran.stderr);
    pools(&python);
    daemon.run(&["reload"]).ok();
}

#[test]
fn a_worker_that_has_done_its_share_is_replaced_and_no_job_fails() {
    let daemon = faulty(&["--max-jobs-per-worker", "5"]);
    let pid = || {
        let job = daemon.submit(&["pid"]);
        assert_eq!((&job["outcome"], &job["attempts"]), (&json!("ok"), &json!(1)), "{job}");
        job["output"].clone()
    };
    let first = pid();
    let mut done = 1;
    until("another worker", || {
        let is_another = pid() != first;
        done += u64::from(!is_another);
        is_another.then_some(())
    });
    assert!(done >= 5, "it went after {done} jobs");
}

#[test]
fn a_hangup_makes_more_workers_or_fewer_and_takes_none_that_is_busy() {
    let folder = tests::harness::private_folder();
    let file = folder.path().join("offload.toml");
    let of_slots = |daemon: &Daemon| {
        let workers = daemon.workers().into_iter();
        workers.filter(|worker| worker["state"] != "spare").collect::<Vec<_>>()
    };
    let gate = Gate::closed();
    let passes = format!("__import__('fcntl').flock(open('{}'), 1) or b'1'", gate.path().display());
    let worker = worker_that_reverses(folder.path(), &passes);
    write_config(&file, &worker, 1);
    let daemon = configured(&file);
    write_config(&file, &worker, 3);
    daemon.signal(Signal::HUP);
    daemon.stderr.find(|line| line.contains("reloaded"), PATIENCE).expect("none is on trial any more");
    until("three workers", || (daemon.status()["workers"]["ready"] == 3).then_some(()));

    let jobs: Vec<String> = (0..3).map(|_| detach(&daemon, &["reverse"])).collect();
    until("three busy workers", || (daemon.status()["workers"]["busy"] == 3).then_some(()));
    write_config(&file, &worker, 1);
    daemon.signal(Signal::HUP);
    until("two that are too many", || {
        let workers = of_slots(&daemon);
        let is_leaving = |worker: &&Value| worker["retires"] == "surplus" && worker["state"] == "busy";
        (workers.iter().filter(is_leaving).count() == 2).then_some(())
    });
    gate.open();
    for job in jobs {
        let ended = daemon.run(&["wait", "--json", &job]).ok().json();
        assert_eq!((&ended["outcome"], &ended["attempts"]), (&json!("ok"), &json!(1)), "{ended}");
    }
    until("one worker", || (of_slots(&daemon).len() == 1).then_some(()));
}

#[test]
fn a_worker_that_is_stopped_in_a_job_is_killed_and_the_job_goes_on_in_another() {
    let gate = Gate::closed();
    let daemon = Daemon::start(&["--workers", "2", "--exec-task", &gate.task()]);
    let job = detach(&daemon, &["gate"]);
    signal(pid_of(&wait_until_it_runs(&daemon, &job)), Signal::STOP);
    until("the second attempt", || (explain(&daemon, &job)["attempts"] == 2).then_some(()));
    gate.open();
    let ended = daemon.run(&["wait", "--json", &job]).ok().json();
    assert_eq!((&ended["outcome"], &ended["attempts"]), (&json!("ok"), &json!(2)), "{ended}");
    let lost = explain(&daemon, &job)["lost"].clone();
    assert_eq!(lost.as_array().map(Vec::len), Some(1), "{lost}");
}

#[test]
fn an_idle_worker_that_is_stopped_is_replaced() {
    let daemon = Daemon::start(&["--workers", "1"]);
    daemon.wait_until_whole();
    let pid = pid_of(&daemon.workers()[0]);
    signal(pid, Signal::STOP);
    // It is noticed when somebody asks, or has something to do for it.
    until("another worker", || (!pids(&daemon).contains(&pid)).then_some(()));
    assert!(wait_for_end(pid, PATIENCE), "worker {pid} stays stopped");
    daemon.wait_until_whole();
}

/// A child that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// The example, but its `reverse` leaves a process in a session of its own, and answers with its process id.
fn escaping_worker(folder: &Path) -> String {
    worker_that_reverses(
        folder,
        "str(__import__('subprocess').Popen(['sleep', '3600'], start_new_session=True, stdin=-3, stdout=-3, stderr=-3).pid).encode()",
    )
}

/// The example, but its `reverse` answers with the number that this comes to.
fn worker_that_reverses(folder: &Path, by: &str) -> String {
    let example = std::fs::read_to_string(workspace().join("examples/worker.py")).unwrap();
    let honest = "lambda data: data[::-1], True, \"turns bytes around\", \"*/*\", BYTES";
    assert!(example.contains(honest), "the example has changed");
    let file = folder.join("other.py");
    let other = format!("lambda data: {by}, True, '', '*/*', JSON");
    std::fs::write(&file, example.replace(honest, &other)).unwrap();
    format!("python3 {}", file.display())
}

#[test]
fn processes_that_a_killed_supervisor_left_behind_are_ended_by_the_next_one() {
    let folder = tests::harness::private_folder();
    let mut daemon = Daemon::start(&["--workers", "1", "--worker", &escaping_worker(folder.path())]);
    let escaped = daemon.submit(&["reverse"])["output"].as_u64().expect("a process id") as u32;
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert!(!wait_for_end(escaped, Duration::ZERO), "nobody was left to end it");

    let mut next: Command = daemon.command(&["serve", "--workers", "1"]);
    let next = next.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _next = Killed(next);
    let is_gone = wait_for_end(escaped, PATIENCE);
    signal(escaped, Signal::KILL);
    assert!(is_gone, "process {escaped} outlived the next start");
}

/// Its parent, a shell, ends at once, so it is a child of the supervisor, and nobody else collects it.
#[test]
fn what_a_living_worker_has_left_to_the_supervisor_is_no_zombie_when_it_has_ended() {
    let folder = tests::harness::private_folder();
    let double_fork =
        "__import__('subprocess').check_output(['sh', '-c', 'sleep 3600 <&- >&- 2>&- & echo $!'])";
    let daemon =
        Daemon::start(&["--workers", "1", "--worker", &worker_that_reverses(folder.path(), double_fork)]);
    daemon.wait_until_whole();
    let helper = daemon.submit(&["reverse"])["output"].as_u64().expect("a process id") as u32;
    until("a child", || children_of(daemon.pid()).contains(&helper).then_some(()));
    let workers = pids(&daemon);
    signal(helper, Signal::KILL);
    until("it is collected", || {
        daemon.submit(&["py.sum", "[1]"]);
        (!children_of(daemon.pid()).contains(&helper)).then_some(())
    });
    assert_eq!(pids(&daemon), workers, "no worker has ended");
}

#[test]
fn every_worker_can_gain_no_privileges_whoever_wrote_it() {
    let python = format!("python3 {}", workspace().join("examples/worker.py").display());
    let daemon = Daemon::start(&["--workers", "2", "--worker", "builtin", "--worker", &python]);
    daemon.wait_until_whole();
    let workers = until("what the kernel says of them", || {
        let workers = daemon.workers();
        workers.iter().all(|worker| !worker["confinement"].is_null()).then_some(workers)
    });
    assert!(workers.len() >= 2);
    for worker in workers {
        assert_eq!(
            (&worker["tier"], &worker["confinement"]["no_new_privs"]),
            (&json!(0), &json!(true)),
            "{worker}"
        );
    }
}

/// Microseconds of CPU time in user mode that the last attempt took.
fn cpu_time(job: &Value) -> u64 {
    job["receipt"]["usage"]["cpu_user_us"].as_u64().expect("a number")
}

/// The same, with that in the kernel.
fn all_cpu_time(job: &Value) -> u64 {
    cpu_time(job) + job["receipt"]["usage"]["cpu_system_us"].as_u64().expect("a number")
}

/// Submits a job that does not end well, and waits for its end.
fn in_vain(daemon: &Daemon, arguments: &[&str]) -> Value {
    end_of(daemon, &detach(daemon, arguments))
}

fn end_of(daemon: &Daemon, job: &str) -> Value {
    serde_json::from_slice(&daemon.run(&["wait", "--json", job]).stdout).expect("JSON")
}

/// `average` stops between two steps, and its worker lives on with all that it has used. That is in no receipt twice.
#[test]
fn the_receipt_of_a_late_job_says_what_it_used_and_not_what_others_did() {
    let daemon = Daemon::start(&["--workers", "1", "--spares", "0"]);
    let mut jobs = vec![daemon.submit(&["spin", "1500"])];
    assert_eq!(jobs[0]["outcome"], "ok");
    until("late jobs that have used CPU time", || {
        let limit = if jobs.len() % 2 == 0 { "--timeout" } else { "--deadline" };
        let late = in_vain(&daemon, &[limit, "600ms", "average", "4000000000"]);
        assert_eq!(late["outcome"], "timeout");
        let has_used = all_cpu_time(&late) > 0;
        assert!(!has_used || late["receipt"]["usage"]["peak_rss_bytes"].as_u64() > Some(1 << 20), "{late}");
        jobs.push(late);
        (jobs.iter().filter(|job| all_cpu_time(job) > 0).count() > 4).then_some(())
    });
    for pid in pids(&daemon) {
        let here = jobs.iter().filter(|job| job["receipt"]["worker_pid"] == pid);
        let (said, used) = (here.map(all_cpu_time).sum::<u64>(), process_cpu_time(pid).as_micros());
        assert!(u128::from(said) <= used, "{said} us of {used}: {jobs:?}");
    }
}

#[test]
fn the_receipt_of_a_cancelled_job_says_what_it_used() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let job = detach(&daemon, &["spin", "3600000"]);
    let worker = pid_of(&wait_until_it_runs(&daemon, &job));
    let burns_on = |by: Duration| {
        let before = process_cpu_time(worker);
        until("it to burn CPU", || (process_cpu_time(worker) >= before + by).then_some(()));
        explain(&daemon, &job);
    };
    burns_on(Duration::from_millis(200));
    burns_on(Duration::from_secs(1));
    daemon.run(&["cancel", &job]).ok();
    let job = end_of(&daemon, &job);
    assert!(job["outcome"] == "cancelled" && all_cpu_time(&job) >= 900_000, "{job}");
}

#[test]
fn a_late_job_between_the_steps_of_a_long_one_does_not_have_its_cpu_time_in_the_receipt() {
    let daemon = Daemon::start(&["--workers", "1"]);
    (0..20).for_each(|_| drop(daemon.submit(&["sleep", "0"])));
    let long = detach(&daemon, &["average", "10000000000"]);
    let worker = pid_of(&wait_until_it_runs(&daemon, &long));
    let before = process_cpu_time(worker);
    let much = Duration::from_millis(500);
    until("it to burn CPU", || (process_cpu_time(worker) >= before + much).then_some(()));
    let late = in_vain(&daemon, &["--timeout", "100ms", "sleep", "3600000"]);
    assert_eq!(
        (&late["outcome"], &late["receipt"]["worker_pid"]),
        (&json!("timeout"), &json!(worker)),
        "{late}"
    );
    assert_eq!(all_cpu_time(&late), 0, "{late}");
}

/// Its worker has used a second of CPU before its first job, which uses none.
#[test]
fn the_receipt_of_a_late_job_does_not_say_what_its_worker_used_before() {
    let worker = format!("{} burn", program("batchworker").display());
    let flags = ["--workers", "1", "--spares", "0", "--hello-timeout", "60s", "--worker", &worker];
    let daemon = Daemon::start(&flags);
    let late = in_vain(&daemon, &["--timeout", "300ms", "lone", "3600000"]);
    assert_eq!(late["outcome"], "timeout", "{late}");
    assert!(all_cpu_time(&late) < 500_000, "{late}");
    assert!(late["receipt"]["usage"]["peak_rss_bytes"].as_u64() > Some(1 << 18), "{late}");
}

#[test]
fn a_job_whose_worker_is_killed_goes_on_from_its_checkpoint_and_counts_right() {
    const COUNTED: &str = "1000000000";
    let daemon = Daemon::start(&["--workers", "1"]);
    let undisturbed = daemon.submit(&["primes", COUNTED]);
    assert_eq!(undisturbed["output"]["count"], 50_847_534);

    let job = detach(&daemon, &["primes", COUNTED]);
    let worker = until("a checkpoint behind the first half", || {
        let now = explain(&daemon, &job);
        let (done, total) = (now["progress"][0].as_u64()?, now["progress"][1].as_u64()?);
        (now["checkpoint_bytes"].as_u64()? > 0 && done * 2 >= total).then(|| now["worker_pid"].clone())
    });
    signal(worker.as_u64().unwrap() as u32, Signal::KILL);
    let ended = daemon.run(&["wait", "--json", &job]).ok().json();
    assert_eq!((&ended["attempts"], &ended["output"]["count"]), (&json!(2), &json!(50_847_534)), "{ended}");
    let (again, whole) = (cpu_time(&ended), cpu_time(&undisturbed));
    assert!(again * 10 < whole * 9, "the second attempt took {again} us, a whole run {whole} us");
}

#[test]
fn short_jobs_are_answered_while_a_long_one_in_steps_holds_the_only_worker() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let echo = |number: usize| -> Ran { daemon.run(&["submit", "echo", &number.to_string()]).ok() };
    (0..20).for_each(|number| drop(echo(number)));
    let long = detach(&daemon, &["average", "10000000000"]);
    let worker = wait_until_it_runs(&daemon, &long);
    for number in 0..20 {
        assert_eq!(echo(number).text(), format!("{number}\n"));
    }
    let still = explain(&daemon, &long);
    assert_eq!(
        (&still["state"], &still["worker_pid"], &still["attempts"]),
        (&json!("running"), &worker["pid"], &json!(1)),
        "{still}"
    );
    daemon.run(&["cancel", &long]).ok();
}
