//! Many clients, of whom some want more than there is: what each is told, and that the others do not suffer.

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tests::harness::{descriptors_of, until};
use tests::http::{Answer, HttpConnection, HttpDaemon};

/// A refusal says when it is worth trying again, in seconds for everybody and in milliseconds for who can wait as long.
fn assert_says_when(answer: &Answer) {
    let number = |name: &str| answer.field(name).and_then(|text| text.parse::<u64>().ok());
    let (seconds, millis) = (number("retry-after"), number("offload-retry-after-ms"));
    let (Some(seconds), Some(millis)) = (seconds, millis) else { panic!("when? {answer:?}") };
    assert!(
        millis > 0 && seconds * 1000 >= millis && seconds < millis / 1000 + 2,
        "{seconds} s, {millis} ms"
    );
}

/// A request that nobody has read yet is a request. While the supervisor is stopped, all of them come in one turn.
#[test]
fn who_has_sent_a_request_is_answered_however_many_come_at_once() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-connections", "8"]);
    let idle = http.connect();
    http.daemon.signal(Signal::STOP);
    let mut asking: Vec<HttpConnection> = (0..40).map(|_| http.connect()).collect();
    asking.iter_mut().for_each(|it| it.send("POST", "/v1/tasks/sleep", &[], b"1"));
    http.daemon.signal(Signal::CONT);
    let answers = asking.iter_mut().map(|it| it.answer().map(|answer| answer.status));
    let statuses: Vec<Option<u16>> = answers.collect();
    assert!(statuses.iter().all(|status| matches!(status, Some(200 | 503))), "{statuses:?}");
    assert!(statuses.contains(&Some(200)) && statuses.contains(&Some(503)), "{statuses:?}");
    drop(idle);
}

#[test]
fn ten_times_as_much_as_can_be_done_is_refused_and_what_is_taken_is_done() {
    const CLIENTS: usize = 20;
    const REQUESTS: usize = 100;
    let http = HttpDaemon::start(&["--workers", "2", "--max-jobs", "4"]);
    let (done, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (http, done, refused) = (&http, &done, &refused);
            scope.spawn(move || {
                let mut connection = http.connect();
                let name = format!("client-{}", client % 5);
                for _ in 0..REQUESTS {
                    connection.send("POST", "/v1/tasks/sleep", &[("Offload-Client", &name)], b"2");
                    let answer = connection.answer().expect("an answer to each");
                    match answer.status {
                        200 => done.fetch_add(1, Ordering::Relaxed),
                        429 | 503 => {
                            assert_says_when(&answer);
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                        _ => panic!("{answer:?}"),
                    };
                }
            });
        }
    });
    let (done, refused, status) = (done.into_inner(), refused.into_inner(), http.daemon.status());
    assert_eq!(done + refused, CLIENTS * REQUESTS);
    assert!(refused > 0, "nothing was refused: {done} were done");
    assert_eq!(
        (status["jobs"]["ok"].as_u64(), status["jobs"]["rejected"].as_u64()),
        (Some(done as u64), Some(refused as u64))
    );
    assert_eq!((&status["ledger"]["balanced"], &status["queue"]["bytes"]), (&true.into(), &0.into()));
}

#[test]
fn a_greedy_client_is_refused_and_a_modest_one_is_not() {
    let http = HttpDaemon::start(&["--workers", "1", "--max-jobs", "40"]);
    // None of the greedy one's ends before all of them have come.
    let mut before = http.connect();
    before.send("POST", "/v1/tasks/sleep", &[], b"3600000");
    http.daemon.worker_running("sleep");
    let mut greedy: Vec<HttpConnection> = (0..60).map(|_| http.connect()).collect();
    for connection in &mut greedy {
        connection.send("POST", "/v1/tasks/sleep", &[("Offload-Client", "greedy")], b"5");
    }
    until("all of the greedy one's are counted", || {
        let jobs = &http.daemon.status()["jobs"];
        (jobs["accepted"].as_u64()? + jobs["rejected"].as_u64()? == 61).then_some(())
    });
    drop(before);
    for number in 0..10 {
        let answer = http.call("echo", &[("Offload-Client", "modest")], number.to_string());
        assert_eq!((answer.status, answer.text()), (200, number.to_string()), "beside the greedy one");
    }
    let answers: Vec<Answer> = greedy.iter_mut().map(|it| it.answer().expect("an answer")).collect();
    let refused: Vec<&Answer> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert!(!refused.is_empty(), "60 jobs fit into a queue of 40");
    for answer in refused {
        assert_eq!(answer.problem(), (429, "quota".to_owned()), "whose fault it is");
        assert_says_when(answer);
    }
}

/// From now on this process may have so many descriptors, as if others had taken the rest of the machine's.
fn allow_descriptors(pid: u32, most: u64) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // Only the soft limit is changed, so it can be raised again.
    let maximum = getrlimit(Resource::Nofile).maximum;
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(most), maximum }).expect("our own process");
}

#[test]
fn without_a_descriptor_for_a_new_client_the_others_are_served_and_it_waits() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    http.daemon.wait_until_whole();
    let pid = http.daemon.pid();
    let mut before = http.connect();
    before.send("POST", "/v1/tasks/echo", &[], b"first");
    assert_eq!(before.answer().expect("an answer").text(), "first");
    allow_descriptors(pid, descriptors_of(pid) as u64);
    let mut later = Vec::new();
    // The limit is on the number of a descriptor, and some lower numbers may be free.
    until("one more has none", || {
        let mut client = http.connect();
        client.send("POST", "/v1/tasks/echo", &[], b"second");
        later.push(client);
        let is_told = |line: &str| line.contains("no descriptor for another HTTP client");
        http.daemon.stderr.find(is_told, Duration::from_millis(500))
    });
    for number in 0..20 {
        before.send("POST", "/v1/tasks/echo", &[], number.to_string().as_bytes());
        assert_eq!(before.answer().expect("an answer").text(), number.to_string());
    }
    allow_descriptors(pid, 1024);
    for mut client in later {
        assert_eq!(client.answer().expect("its turn has come").text(), "second");
    }
}
