//! Tests of the clients' places in virtual time, and of who is remembered.

use super::*;

#[test]
fn a_client_has_small_outputs_when_it_has_had_some_and_not_after_a_large_one() {
    let mut clients = Clients::new(10);
    let client = clients.enter("client", 1);
    let has_small = |clients: &Clients| clients.get(client).is_some_and(Account::has_small_outputs);
    assert!(!has_small(&clients), "nothing is known yet");
    clients.returned(client, 10);
    assert!(has_small(&clients));
    clients.returned(client, 1 << 20);
    assert!(!has_small(&clients));
}

/// Where a client would be that begins to wait now.
fn place_of_a_newcomer(clients: &mut Clients, program: ProgramIndex, track: Track) -> VirtualTime {
    let new = clients.enter(&format!("new {}", clients.last), 1);
    clients.joins(new, program, track);
    clients.share(new, program, track).used
}

/// A client waits with one job, which is dispatched and takes so long.
fn serve(clients: &mut Clients, name: &str, (program, track): (ProgramIndex, Track), nanos: i64) -> ClientId {
    let id = clients.enter(name, 1);
    clients.joins(id, program, track);
    clients.goes(id, program, track);
    clients.served(id, program, dispatched(track, 0));
    clients.charge(id, program, nanos);
    id
}

fn dispatched(track: Track, priority: i8) -> Served {
    Served { track, priority, is_short: track == Track::Short, first_kept_out: None }
}

const IDLE: (ProgramIndex, Track) = (0, Track::Idle);
const SHORT: (ProgramIndex, Track) = (0, Track::Short);

fn used(clients: &Clients, id: ClientId, (program, track): (ProgramIndex, Track)) -> VirtualTime {
    clients.share(id, program, track).used
}

#[test]
fn a_pause_earns_a_client_no_worker_time_and_neither_does_a_job_that_does_not_wait() {
    let mut clients = Clients::new(10);
    let sleeper = serve(&mut clients, "sleeper", IDLE, 0);
    serve(&mut clients, "busy", IDLE, 1_000_000);
    serve(&mut clients, "busy", IDLE, 1_000_000);
    clients.joins(sleeper, 0, Track::Idle);
    assert_eq!(used(&clients, sleeper, IDLE), 1_000_000, "its other job has run all the time");
    assert_eq!(place_of_a_newcomer(&mut clients, 0, Track::Idle), 1_000_000);
}

#[test]
fn who_waits_keeps_its_place_whatever_else_it_submits() {
    let mut clients = Clients::new(10);
    let patient = clients.enter("patient", 1);
    clients.joins(patient, 0, Track::Idle);
    serve(&mut clients, "busy", IDLE, 1_000_000);
    serve(&mut clients, "busy", IDLE, 1_000_000);
    clients.joins(patient, 0, Track::Idle);
    assert_eq!(used(&clients, patient, IDLE), 0);
}

#[test]
fn where_a_client_begins_in_one_program_changes_nothing_in_another() {
    let mut clients = Clients::new(10);
    let busy = serve(&mut clients, "busy", IDLE, 1_000_000);
    serve(&mut clients, "busy", IDLE, 1_000_000);
    let new = clients.enter("new", 1);
    clients.joins(new, 1, Track::Idle);
    clients.joins(new, 0, Track::Idle);
    assert_eq!((used(&clients, new, (1, Track::Idle)), used(&clients, new, IDLE)), (0, 1_000_000));
    clients.joins(busy, 1, Track::Idle);
    assert_eq!(used(&clients, busy, (1, Track::Idle)), 0, "it has used nothing there");
}

#[test]
fn who_has_short_jobs_in_slots_of_their_own_delays_no_newcomer_with_a_long_one() {
    let mut clients = Clients::new(10);
    let in_its_own_slot = Served { first_kept_out: Some(1_000), ..dispatched(Track::Short, 0) };
    let short = clients.enter("short", 1);
    for _ in 0..3 {
        clients.joins(short, 0, Track::Short);
        clients.goes(short, 0, Track::Short);
        clients.served(short, 0, in_its_own_slot);
        clients.charge(short, 0, 500_000);
    }
    assert_eq!(place_of_a_newcomer(&mut clients, 0, Track::Idle), 1_000);
    assert_eq!(place_of_a_newcomer(&mut clients, 0, Track::Short), 1_000_000);
    serve(&mut clients, "short", SHORT, 500_000);
    assert_eq!(place_of_a_newcomer(&mut clients, 0, Track::Idle), 1_500_000, "nobody else waits for it");
}

#[test]
fn a_client_with_short_jobs_does_not_come_before_those_that_have_shared_idle_workers() {
    let mut clients = Clients::new(10);
    serve(&mut clients, "long", IDLE, 1_000_000);
    serve(&mut clients, "long", IDLE, 1_000_000);
    assert_eq!(place_of_a_newcomer(&mut clients, 0, Track::Short), 1_000_000);
}

#[test]
fn who_was_passed_over_for_long_is_at_most_a_second_before_the_others() {
    let mut clients = Clients::new(10);
    let kept_out = clients.enter("kept out", 2);
    clients.joins(kept_out, 0, Track::Idle);
    let second = LAG_MAX;
    serve(&mut clients, "busy", IDLE, 7 * second);
    serve(&mut clients, "busy", IDLE, second);
    clients.served(kept_out, 0, dispatched(Track::Idle, 0));
    assert_eq!(used(&clients, kept_out, IDLE), 7 * second - second / 2, "its weight is two");
}

#[test]
fn a_client_does_not_start_where_another_is_that_had_more_before_its_turn() {
    let mut clients = Clients::new(10);
    let urgent = clients.enter("urgent", 2);
    clients.joins(urgent, 0, Track::Idle);
    clients.charge(urgent, 0, 2 * 500_000_000);
    clients.served(urgent, 0, dispatched(Track::Idle, 3));
    let place = place_of_a_newcomer(&mut clients, 0, Track::Idle);
    assert_eq!(place, 350_000_000, "300 ms of worker time are half as much for a weight of two");
}

#[test]
fn a_client_that_leaves_and_comes_back_keeps_its_used_worker_time() {
    let mut clients = Clients::new(10);
    let greedy = serve(&mut clients, "greedy", IDLE, 5_000);
    clients.leave(greedy);
    let again = clients.enter("greedy", 1);
    clients.joins(again, 0, Track::Idle);
    assert_eq!(used(&clients, again, IDLE), 5_000);
}

#[test]
fn what_is_given_back_does_not_bring_a_client_before_those_that_have_waited_meanwhile() {
    let mut clients = Clients::new(10);
    let lucky = serve(&mut clients, "lucky", IDLE, 9_000);
    serve(&mut clients, "busy", IDLE, 4_000);
    serve(&mut clients, "busy", IDLE, 4_000);
    clients.joins(lucky, 0, Track::Idle);
    clients.charge(lucky, 0, -8_000);
    assert_eq!(used(&clients, lucky, IDLE), 4_000, "where the others are, and not at 1,000");
    clients.charge(lucky, 0, 500);
    clients.charge(lucky, 0, -200);
    assert_eq!(used(&clients, lucky, IDLE), 4_300);
}

#[test]
fn of_one_client_alone_short_and_long_jobs_are_in_the_same_place() {
    let mut clients = Clients::new(10);
    let alone = serve(&mut clients, "alone", IDLE, 5_000);
    serve(&mut clients, "alone", SHORT, 100);
    serve(&mut clients, "alone", IDLE, 5_000);
    clients.charge(alone, 0, -5_000);
    assert_eq!(used(&clients, alone, SHORT), used(&clients, alone, IDLE));
}

#[test]
fn virtual_time_goes_on_while_a_job_runs_and_not_beyond_its_client() {
    let mut clients = Clients::new(10);
    let waiting = clients.enter("waiting", 2);
    clients.joins(waiting, 0, Track::Idle);
    let once = serve(&mut clients, "once", IDLE, 3_000);
    clients.ran(once, 0, (3_000, 2), &[Track::Idle]);
    assert_eq!(place_of_a_newcomer(&mut clients, 0, Track::Idle), 1_000);
    clients.ran(once, 0, (30_000, 2), &[Track::Idle]);
    assert_eq!(place_of_a_newcomer(&mut clients, 0, Track::Idle), 3_000);
}

#[test]
fn a_weight_of_two_pays_half() {
    let mut clients = Clients::new(10);
    let heavy = clients.enter("heavy", 2);
    clients.joins(heavy, 0, Track::Idle);
    clients.charge(heavy, 0, 1_000);
    assert_eq!(used(&clients, heavy, IDLE), 500);
}

#[test]
fn clients_that_come_once_and_never_again_do_not_pile_up() {
    let mut clients = Clients::new(10);
    for number in 0..10_000 {
        let once = clients.enter(&format!("client {number}"), 1);
        clients.charge(once, 0, number);
        clients.leave(once);
    }
    assert_eq!(clients.len(), 10);
}

#[test]
fn a_client_with_jobs_is_not_forgotten_because_it_was_given_back_some_of_what_it_had_paid() {
    let mut clients = Clients::new(1);
    let team = clients.enter("team", 1);
    clients.charge(team, 0, 5_000);
    clients.leave(team);
    clients.charge(team, 0, -1_000);
    assert_eq!(clients.enter("team", 1), team);
    let other = clients.enter("other", 1);
    clients.charge(other, 0, 9_000);
    clients.leave(other);
    assert_eq!(clients.get(team).map(|account| account.used), Some(4_000));
    assert_eq!(clients.check([(team, &Arc::from("team"))].into_iter()), Ok(()));
}

#[test]
fn a_client_that_used_more_worker_time_is_remembered_longer() {
    let mut clients = Clients::new(1);
    let team = clients.enter("team", 1);
    clients.charge(team, 0, 5_000);
    clients.leave(team);
    let behind = clients.enter("behind", 1);
    clients.leave(behind);
    assert!(clients.find("team").is_some() && clients.find("behind").is_none());
}
