//! `offload map`: one job for each line, results in the order of the lines.

use rustix::process::Signal;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use tests::harness::{
    Daemon, Lines, PATIENCE, Terminal, command, private_folder, run, signal, until, wait_for_end, workspace,
};

#[test]
fn lines_come_out_in_the_order_in_which_they_went_in_with_their_index() {
    let input: String = (0..500).rev().map(|number| format!("{number}\n")).collect();
    let ran = run(&mut command(&["map", "primes"]), input.as_bytes()).ok();
    let lines = ran.json_lines();
    assert_eq!(lines.len(), 500);
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["index"], index);
        assert_eq!(line["outcome"], "ok");
    }
    assert_eq!(lines[0]["output"]["largest"], 499);
}

/// Every file of the sources, hashed here by another implementation and there by the task.
#[test]
fn files_are_hashed_as_sha256sum_does() {
    let mut list = String::new();
    let mut expected = Vec::new();
    for folder in ["protocol/src", "worker/src", "supervisor/core/src", "tests/spec"] {
        for entry in std::fs::read_dir(workspace().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                writeln!(list, "{}", path.display()).unwrap();
                let digest = Sha256::digest(std::fs::read(&path).unwrap());
                expected.push(digest.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")));
            }
        }
    }
    let folder = private_folder();
    let file = folder.path().join("list");
    std::fs::write(&file, list).unwrap();
    let ran = run(&mut command(&["map", "sha256", "--files", file.to_str().unwrap()]), b"").ok();
    let hashes: Vec<_> =
        ran.json_lines().iter().map(|line| line["output"].as_str().unwrap().to_owned()).collect();
    assert!(expected.len() > 20);
    assert_eq!(hashes, expected);
}

#[test]
fn some_failures_make_the_exit_code_1_and_too_many_end_it() {
    let ran = run(&mut command(&["map", "primes"]), b"10\nx\n20\n").code(1);
    let outcomes: Vec<_> = ran.json_lines().iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["ok", "app_error", "ok"]);
    let bad: String = "x\n".repeat(5000);
    let ran = run(&mut command(&["map", "primes", "--max-failures", "3"]), bad.as_bytes()).code(1);
    assert!(ran.json_lines().len() < 5000);
}

#[test]
fn a_file_that_is_not_there_fails_alone() {
    let ran = run(&mut command(&["map", "sha256", "--files"]), b"/no/such/file\n/etc/passwd\n").code(1);
    let lines = ran.json_lines();
    assert_eq!(lines[0]["outcome"], "io_error");
    assert!(lines[0]["error"]["message"].as_str().unwrap().contains("No such file"), "{}", lines[0]);
    assert_eq!(lines[1]["outcome"], "ok");
}

#[test]
fn a_small_queue_slows_it_down_and_fails_nothing() {
    let daemon = Daemon::start(&["--workers", "1", "--max-jobs", "3"]);
    let lines: String = (1..=3000).map(|number| format!("{number}\n")).collect();
    let ran = run(&mut daemon.command(&["map", "primes"]), lines.as_bytes()).ok();
    assert_eq!(ran.json_lines().len(), 3000);
}

#[test]
fn where_a_client_has_a_quota_it_waits_and_every_line_is_done_in_order() {
    let daemon = Daemon::start(&["--workers", "2", "--max-jobs", "20"]);
    let ran = run(&mut daemon.command(&["map", "sleep"]), "20\n".repeat(60).as_bytes()).ok();
    let lines = ran.json_lines();
    let done = |index: usize| lines[index]["index"] == index && lines[index]["outcome"] == "ok";
    assert!(lines.len() == 60 && (0..60).all(done), "{}", ran.text());
    assert!(daemon.status()["jobs"]["rejected"].as_u64() > Some(0), "it was put to the test");
}

#[test]
fn two_maps_at_once_get_through_a_queue_of_one() {
    let daemon = Daemon::start(&["--workers", "1", "--max-jobs", "1"]);
    let list: String = (1..=40).map(|number| format!("{number}\n")).collect();
    let maps: Vec<_> = (0..2).map(|_| daemon.command(&["map", "primes"])).collect();
    std::thread::scope(|scope| {
        let maps: Vec<_> =
            maps.into_iter().map(|map| scope.spawn(|| run(&mut { map }, list.as_bytes()))).collect();
        for map in maps {
            let lines = map.join().unwrap().ok().json_lines();
            assert!(lines.iter().enumerate().all(|(index, line)| line["index"] == index));
            assert_eq!(lines.len(), 40);
        }
    });
}

#[test]
fn a_refusal_that_no_waiting_mends_is_the_result_of_its_line() {
    let daemon = Daemon::start(&["--workers", "1", "--max-jobs", "2", "--max-payload", "8"]);
    let ran = run(&mut daemon.command(&["map", "echo"]), b"short\nlonger than that\nshort\n").code(1);
    let outcomes: Vec<_> = ran.json_lines().iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["ok", "too_large", "ok"]);
    let ran = run(&mut daemon.command(&["map", "no.such.task"]), b"a\nb\n").code(1);
    assert!(ran.json_lines().iter().all(|line| line["outcome"] == "unknown_task"), "{}", ran.text());
}

/// Counted in turns, not in time: whatever of the map is running is ended, and soon the others have had their turns.
#[test]
fn a_map_in_one_terminal_does_not_keep_those_in_others_waiting() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let list = daemon.folder().join("list");
    // Each of the first ones lets the map submit one more; they are not so short that a worker is given several at once.
    std::fs::write(&list, "30\n".repeat(50) + &"3600000\n".repeat(50)).unwrap();
    let mut map = daemon.command(&["map", "sleep", list.to_str().unwrap()]);
    let mut map = map.stdout(Stdio::null()).spawn().unwrap();
    until("the whole map to be there", || (daemon.status()["queue"]["jobs"] == 49).then_some(()));
    let detach = |_| daemon.run(&["submit", "--detach", "sleep", "1"]).ok().text().trim().to_owned();
    let others: Vec<String> = (0..3).map(detach).collect();
    let mut turns = 0;
    until("the others to be done", || {
        if daemon.status()["jobs"]["ok"] == 53 {
            return Some(());
        }
        let worker = daemon.workers().into_iter().find(|worker| worker["task"] == "sleep")?;
        let job = worker["job"].as_str()?;
        if !others.iter().any(|other| other == job) {
            daemon.run(&["cancel", job]).ok();
            turns += 1;
            assert!(turns <= 10, "ten jobs of the map went before");
        }
        None
    });
    signal(map.id(), Signal::INT);
    assert!(wait_for_end(map.id(), PATIENCE));
    map.wait().unwrap();
}

#[test]
fn a_map_that_finds_no_room_at_all_says_so_once_and_goes_on_when_there_is_some() {
    let daemon = Daemon::start(&["--workers", "1", "--max-jobs", "1"]);
    let detach = || daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok().text().trim().to_owned();
    let running = detach();
    daemon.worker_running("sleep");
    let waiting = detach();
    let mut map = daemon.command(&["map", "echo"]);
    let mut map = map.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    map.stdin.take().unwrap().write_all(b"a\nb\n").unwrap();
    let said = Lines::collect(map.stderr.take().unwrap());
    let waits = |line: &str| line.contains("waiting for room: overloaded: the queue is full");
    assert!(said.find(waits, PATIENCE).is_some(), "{:?}", said.all());
    for id in [waiting, running] {
        daemon.run(&["cancel", &id]).ok();
    }
    let ended = map.wait_with_output().unwrap();
    assert!(ended.status.success(), "{:?}", said.all());
    assert_eq!(ended.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 2);
    assert_eq!(said.all().iter().filter(|line| waits(line)).count(), 1);
}

/// Room comes when the answers of this very client are taken, of which too many are unsent for it to be read just then.
#[test]
fn a_map_goes_on_whose_inputs_and_outputs_fill_the_memory_in_turns() {
    const LINES: usize = 30;
    let daemon = Daemon::start(&["--workers", "2", "--max-bytes", "16MiB", "--max-payload", "4MiB"]);
    let input = format!("{}\n", "q".repeat(3_000_000)).repeat(LINES);
    let ran = run(&mut daemon.command(&["map", "wordcount"]), input.as_bytes()).ok();
    assert_eq!(ran.json_lines().len(), LINES);
}

#[test]
fn a_typed_name_is_one_client_and_no_name_is_none() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let client_of = |arguments: &[&str]| {
        let id = daemon.run(&[&["submit", "--detach"], arguments, &["sleep", "3600000"]].concat()).ok();
        let jobs = daemon.run(&["jobs", "--json"]).ok().json();
        let is_it = |job: &&Value| job["job"] == id.text().trim();
        jobs.as_array().unwrap().iter().find(is_it).unwrap()["client"].clone()
    };
    assert_eq!(client_of(&["--client", "me"]), "me");
    assert_ne!(client_of(&[]), "cli");
    client_of(&["--client", "me"]);
    let clients = daemon.status()["clients"].as_array().unwrap().len();
    assert_eq!(clients, 2, "{}", daemon.status());
    client_of(&[]);
    assert_eq!(daemon.status()["clients"].as_array().unwrap().len(), 3);
}

#[test]
fn flags_about_workers_are_refused_where_a_supervisor_has_its_own() {
    let daemon = Daemon::start(&["--workers", "1"]);
    for flags in
        [&["--worker", "builtin"][..], &["--workers", "2"], &["--allow-faults"], &["--max-jobs", "9"]]
    {
        let ran = daemon.run(&[&["map", "echo"], flags].concat()).code(2);
        assert!(ran.stderr.contains(flags[0]) && ran.stderr.contains("OFFLOAD_SOCKET"), "{}", ran.stderr);
    }
}

#[test]
fn the_bar_counts_jobs_that_are_done_and_not_lines_that_are_read() {
    let folder = private_folder();
    let list = folder.path().join("list");
    std::fs::write(&list, "0\n0\n0\n3600000\n").unwrap();
    let terminal = Terminal::open();
    let mut map = command(&["map", "--workers", "1", "sleep", list.to_str().unwrap()]);
    let mut map = map.stdin(Stdio::null()).stdout(Stdio::null()).stderr(terminal.side()).spawn().unwrap();
    let drawn = terminal.lines();
    let bar = drawn.find(|line| line.contains("3 of 4 done, 0 failed"), PATIENCE);
    let drawn = drawn.all();
    signal(map.id(), Signal::INT);
    map.wait().unwrap();
    assert!(bar.as_deref().is_some_and(|bar| bar.contains("75 %")), "{drawn:#?}");
    assert!(!drawn.iter().any(|line| line.contains("100 %")), "{drawn:#?}");
}

#[test]
fn an_interrupt_cancels_its_jobs_in_the_supervisor_too() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let folder = private_folder();
    let list = folder.path().join("list");
    std::fs::write(&list, "3600000\n3600000\n").unwrap();
    let mut map = daemon.command(&["map", "sleep", list.to_str().unwrap()]).spawn().unwrap();
    daemon.worker_running("sleep");
    signal(map.id(), Signal::INT);
    assert_eq!(map.wait().unwrap().signal(), Some(2));
    until("both to be cancelled", || (daemon.status()["jobs"]["cancelled"] == 2).then_some(()));
}

/// The outcomes of the lines, whose indices count from 0.
fn outcomes(stdout: &[u8]) -> Vec<String> {
    let lines = std::str::from_utf8(stdout).unwrap().lines();
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().enumerate().all(|(index, line)| line["index"] == index), "{lines:?}");
    lines.iter().map(|line| line["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_interrupted_map_delivers_what_has_ended_and_a_line_for_each_job_that_was_cancelled() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let mut map = daemon.command(&["map", "sleep"]);
    let mut map = map.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut list = map.stdin.take().unwrap();
    list.write_all(b"3600000\n1\n2\n").unwrap();
    until("two jobs to be done", || (daemon.status()["jobs"]["ok"] == 2).then_some(()));
    signal(map.id(), Signal::TERM);
    let ended = map.wait_with_output().unwrap();
    drop(list);
    assert_eq!(ended.status.signal(), Some(Signal::TERM.as_raw()));
    assert_eq!(outcomes(&ended.stdout), ["cancelled", "ok", "ok"]);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("not done: 1 job cancelled, the rest of the list not read"), "{said}");
    assert_eq!(daemon.status()["jobs"]["cancelled"], 1);
}

#[test]
fn an_interrupted_map_with_workers_of_its_own_delivers_what_has_ended_too() {
    let folder = private_folder();
    let list = folder.path().join("list");
    std::fs::write(&list, "3600000\n1\n2\n").unwrap();
    let terminal = Terminal::open();
    let mut map = command(&["map", "--workers", "2", "sleep", list.to_str().unwrap()]);
    let map = map.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(terminal.side()).spawn().unwrap();
    let drawn = terminal.lines();
    let bar = drawn.find(|line| line.contains("2 of 3 done, 0 failed"), PATIENCE);
    signal(map.id(), Signal::INT);
    let ended = map.wait_with_output().unwrap();
    assert!(bar.is_some(), "{:#?}", drawn.all());
    assert_eq!(ended.status.signal(), Some(Signal::INT.as_raw()));
    assert_eq!(outcomes(&ended.stdout), ["cancelled", "ok", "ok"]);
    let line = drawn.find(|line| line.contains("not done: 1 job cancelled"), PATIENCE);
    assert!(line.is_some(), "{:#?}", drawn.all());
}

/// `less` that shows the first page, say.
#[test]
fn a_map_whose_reader_has_stopped_saves_what_it_has_after_a_signal_and_ends_at_once_after_two() {
    for signals in [&[Signal::INT][..], &[Signal::INT, Signal::TERM]] {
        let daemon = Daemon::start(&["--workers", "1"]);
        let mut map = daemon.command(&["map", "echo"]);
        map.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(daemon.folder());
        let mut map = map.spawn().unwrap();
        let mut list = map.stdin.take().unwrap();
        let said = Lines::collect(map.stderr.take().unwrap());
        // The last ones end while the first ones fill the pipe.
        let long = "x".repeat(50_000);
        (0..5).for_each(|_| writeln!(list, "{long}").unwrap());
        until("all to be done", || (daemon.status()["jobs"]["ok"] == 5).then_some(()));
        for which in signals {
            signal(map.id(), *which);
            assert!(said.find(|line| line.contains("a second signal ends this at once"), PATIENCE).is_some());
        }
        assert!(wait_for_end(map.id(), PATIENCE), "it waits for a reader");
        assert_eq!(map.wait().unwrap().signal(), signals.last().map(|last| last.as_raw()));
        let entries = std::fs::read_dir(daemon.folder()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let saved = names.filter(|name| name.ends_with(".jsonl")).count();
        assert_eq!(saved, usize::from(signals.len() == 1), "{:?}", said.all());
    }
}

#[test]
fn a_map_that_stops_after_a_failure_says_how_many_jobs_have_no_line() {
    let daemon = Daemon::start(&["--workers", "4"]);
    let mut map = daemon.command(&["map", "primes", "--max-failures", "1"]);
    let ran = run(&mut map, b"1\nx\n2\n3\n").code(1);
    assert_eq!(outcomes(&ran.stdout), ["ok", "app_error"]);
    assert!(ran.stderr.contains("2 more jobs had been submitted and have no line"), "{}", ran.stderr);
}

#[test]
fn a_supervisor_that_runs_does_the_work_if_it_is_named() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let ran = run(&mut daemon.command(&["map", "echo"]), b"a\nb\nc\n").ok();
    assert_eq!(ran.json_lines().len(), 3);
    assert_eq!(daemon.status()["jobs"]["ok"], 3);
}
