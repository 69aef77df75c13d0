//! When clients have their turns: what a priority is worth against others, and where a client begins that comes later.

use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::ids::{JobId, Mono};
use offload_core::queue::HEAD_START;
use offload_protocol::nouns::TaskOffer;
use std::collections::BTreeMap;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start, offers};

const MS: Duration = Duration::from_millis(1);

/// How many jobs each of the clients always has.
const JOBS_EACH: usize = 50;

/// Clients that always have jobs waiting. Each worker does one job after another; time passes as they do.
struct Crowd {
    pool: PoolUnderTest,
    owners: BTreeMap<JobId, usize>,
    clients: Vec<Client>,
    ends: BTreeMap<JobId, Mono>,
}

struct Client {
    task: &'static str,
    run: Duration,
    priority: i8,
    used: Duration,
    /// As in a loop of a shell, each job has a process of its own, and each process is a client.
    is_a_loop: bool,
}

impl Crowd {
    fn of(pool: PoolUnderTest) -> Crowd {
        Crowd { pool, owners: BTreeMap::new(), clients: Vec::new(), ends: BTreeMap::new() }
    }

    /// A client that has no jobs yet.
    fn introduce(&mut self, task: &'static str, run: Duration, priority: i8) -> usize {
        self.clients.push(Client { task, run, priority, used: Duration::ZERO, is_a_loop: false });
        self.clients.len() - 1
    }

    /// A client that always has [`JOBS_EACH`] jobs.
    fn add(&mut self, task: &'static str, run: Duration, priority: i8) -> usize {
        let client = self.introduce(task, run, priority);
        (0..JOBS_EACH).for_each(|_| self.submit(client));
        client
    }

    fn submit(&mut self, client: usize) {
        let Client { task, priority, is_a_loop, .. } = self.clients[client];
        let name = match is_a_loop {
            true => format!("process {}", self.owners.len() + self.pool.ended.len()),
            false => format!("client {client}"),
        };
        let job = self.submit_as(&name, task, priority);
        self.owners.insert(job, client);
    }

    fn submit_as(&mut self, client: &str, task: &str, priority: i8) -> JobId {
        self.pool.submit_with(task, |request| (request.client, request.priority) = (client.into(), priority))
    }

    /// The jobs that are given are started, and the one that ends first ends.
    fn step(&mut self) {
        let given = self.pool.workers.values().flat_map(|worker| worker.given.iter().map(|(job, _)| *job));
        let given: Vec<JobId> = given.filter(|job| !self.ends.contains_key(job)).collect();
        for job in given {
            self.pool.start(job);
            let run = self.owners.get(&job).map_or(MS, |client| self.clients[*client].run);
            self.ends.insert(job, self.pool.now + run);
        }
        let Some((&job, &end)) = self.ends.iter().min_by_key(|(_, end)| **end) else { return };
        self.ends.remove(&job);
        let client = self.owners.remove(&job);
        let run = client.map_or(MS, |client| self.clients[client].run);
        self.pool.now = Mono::from_nanos((end.as_nanos()).saturating_sub(run.as_nanos() as u64));
        self.pool.finish_after(job, run);
        if let Some(client) = client {
            self.clients[client].used += run;
            self.submit(client);
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.pool.now + time;
        while self.pool.now < end {
            self.step();
        }
    }

    /// How long a job of a new client waits, and how long it was told to wait.
    fn newcomer_waits(&mut self, task: &str) -> (Duration, Option<Duration>) {
        let came = self.pool.now;
        let job = self.submit_as(&format!("new at {came:?}"), task, 0);
        let told = self.pool.core.explain(came, job).and_then(|told| told.waiting?.expected.ok());
        while self.pool.worker_with(job).is_none() {
            self.step();
        }
        (self.pool.now - came, told)
    }
}

fn run_for(pool: &mut PoolUnderTest, task: &str, run: Duration) {
    let job = pool.submit(task);
    pool.start(job);
    pool.finish_after(job, run);
}

/// How long newcomers wait beside so many clients and one with this priority, and are told to wait.
fn waits_beside(clients: usize, priority: i8) -> Vec<(Duration, Option<Duration>)> {
    let mut crowd = Crowd::of(PoolUnderTest::slots(1));
    run_for(&mut crowd.pool, "charge", 30 * MS);
    (0..clients).for_each(|_| {
        crowd.add("charge", 30 * MS, 0);
    });
    crowd.run_for(1000 * MS);
    crowd.add("charge", 30 * MS, priority);
    let first = crowd.newcomer_waits("charge");
    crowd.run_for(1500 * MS);
    let mut waits = vec![first];
    for _ in 0..5 {
        waits.push(crowd.newcomer_waits("charge"));
        crowd.run_for(100 * MS);
    }
    waits
}

#[test]
fn a_priority_delays_strangers_once_and_by_no_more_than_its_head_start_however_many_they_are() {
    for clients in [6, 20, 40] {
        let waits = waits_beside(clients, 10);
        let (head_start, a_turn_each) = (10 * HEAD_START, (clients as u32 + 2) * 30 * MS);
        assert!(waits[0].0 > head_start - 60 * MS, "it counts: {waits:?}");
        assert!(waits[0].0 < head_start + a_turn_each, "{clients} clients: {waits:?}");
        assert!(waits[1..].iter().all(|(wait, _)| *wait <= a_turn_each), "{clients} clients: {waits:?}");
    }
}

#[test]
fn a_wait_behind_a_client_with_a_priority_is_foretold() {
    for (wait, told) in waits_beside(10, 10) {
        let told = told.expect("all runs are known");
        let (least, most) = (wait.saturating_sub(150 * MS), wait + 150 * MS);
        assert!((least..=most).contains(&told), "it waited {wait:?} and was told {told:?}");
    }
}

#[test]
fn with_a_priority_a_client_has_its_share_and_what_it_has_before_its_turn_but_not_more() {
    let mut crowd = Crowd::of(PoolUnderTest::slots(1));
    (0..4).for_each(|_| {
        crowd.add("charge", 30 * MS, 0);
    });
    let urgent = crowd.add("charge", 30 * MS, 10);
    crowd.run_for(10_000 * MS);
    let others = crowd.clients[..4].iter().map(|client| client.used).max().unwrap_or_default();
    let ahead = crowd.clients[urgent].used - others;
    assert!(ahead <= 10 * HEAD_START + 60 * MS && ahead >= 9 * HEAD_START, "{ahead:?}");
}

/// The short ones have a slot of their own, so their client has used much more than those of long ones, which share the other.
#[test]
fn a_newcomer_does_not_wait_until_those_before_it_have_had_as_much_as_a_client_on_other_slots() {
    let mut crowd = Crowd::of(PoolUnderTest::slots(2));
    for _ in 0..20 {
        run_for(&mut crowd.pool, "sum", MS);
        run_for(&mut crowd.pool, "charge", 100 * MS);
    }
    (0..6).for_each(|_| {
        crowd.add("charge", 100 * MS, 0);
    });
    crowd.add("sum", MS, 0);
    crowd.run_for(10_000 * MS);
    let (wait, told) = crowd.newcomer_waits("charge");
    assert!(wait <= 700 * MS, "it waited {wait:?} and was told {told:?}");
}

/// Two programs with a worker each: one runs "charge", the other one "other".
fn two_programs() -> Crowd {
    let config = CoreConfig { workers: 2, programs: 2, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Wait);
    let workers: Vec<_> = pool.workers.iter().map(|(id, worker)| (*id, worker.program)).collect();
    for (worker, program) in workers {
        let tasks = if program == 0 { offers() } else { vec![TaskOffer::new("other")] };
        pool.event(Event::Hello { worker, tasks, takes_files: true });
    }
    for task in ["charge", "other"] {
        run_for(&mut pool, task, 100 * MS);
    }
    Crowd::of(pool)
}

impl Crowd {
    /// How much two clients are given in this time.
    fn given_in(&mut self, time: Duration, [one, other]: [usize; 2]) -> [Duration; 2] {
        let before = [one, other].map(|client| self.clients[client].used);
        self.run_for(time);
        let after = [one, other].map(|client| self.clients[client].used);
        [after[0] - before[0], after[1] - before[1]]
    }
}

fn assert_equal_shares(given: [Duration; 2]) {
    assert!(given[0].abs_diff(given[1]) <= 200 * MS, "{given:?}");
}

#[test]
fn a_client_gets_no_more_of_a_program_by_being_served_in_another_first() {
    let mut crowd = two_programs();
    let busy = crowd.add("charge", 100 * MS, 0);
    let elsewhere = crowd.add("other", 100 * MS, 0);
    crowd.run_for(10_000 * MS);
    // The one in the other program has used much less, because it comes with a few jobs.
    crowd.clients[elsewhere].run = MS;
    crowd.run_for(2_000 * MS);
    let new = crowd.introduce("charge", 100 * MS, 0);
    crowd.submit_as(&format!("client {new}"), "other", 0);
    (0..JOBS_EACH).for_each(|_| crowd.submit(new));
    assert_equal_shares(crowd.given_in(5_000 * MS, [busy, new]));
}

#[test]
fn a_client_of_two_programs_waits_in_neither_because_of_what_it_uses_in_the_other() {
    let mut crowd = two_programs();
    let both = crowd.add("charge", 100 * MS, 0);
    crowd.run_for(10_000 * MS);
    let of_the_other = crowd.add("other", 100 * MS, 0);
    crowd.run_for(1_000 * MS);
    crowd.clients[both].task = "other";
    (0..JOBS_EACH).for_each(|_| crowd.submit(both));
    // What is given to the one of both is not counted: its older jobs go on in the first program.
    let [given, _] = crowd.given_in(3_000 * MS, [of_the_other, both]);
    assert!(given.abs_diff(1_500 * MS) <= 200 * MS, "{given:?} of 3 s");
}

#[test]
fn clients_that_come_with_one_job_each_do_not_keep_one_that_waits_from_its_turns() {
    // Its share is 20 s of 60. A priority gives each process its head start anew.
    for (priority, least) in [(0, 15_000 * MS), (10, 8_000 * MS)] {
        let mut crowd = Crowd::of(PoolUnderTest::slots(1));
        run_for(&mut crowd.pool, "charge", 1000 * MS);
        let waiting = crowd.add("charge", 1000 * MS, 0);
        crowd.run_for(1000 * MS);
        let processes = crowd.introduce("charge", 1000 * MS, priority);
        crowd.clients[processes].is_a_loop = true;
        (0..2).for_each(|_| crowd.submit(processes));
        let [used, others] = crowd.given_in(60_000 * MS, [waiting, processes]);
        assert!(used >= least, "it had {used:?} and they {others:?}, with priority {priority}");
    }
}

#[test]
fn a_job_that_runs_meanwhile_earns_its_client_nothing() {
    let mut crowd = Crowd::of(PoolUnderTest::slots(2));
    run_for(&mut crowd.pool, "charge", 100 * MS);
    let sleeper = crowd.introduce("charge", 10_000 * MS, 0);
    crowd.submit(sleeper);
    crowd.step();
    let busy = crowd.add("charge", 100 * MS, 0);
    while crowd.clients[sleeper].used == Duration::ZERO {
        crowd.clients[sleeper].run = 10_000 * MS;
        crowd.step();
    }
    crowd.clients[sleeper].run = 100 * MS;
    (0..JOBS_EACH).for_each(|_| crowd.submit(sleeper));
    assert_equal_shares(crowd.given_in(5_000 * MS, [busy, sleeper]));
}
