//! Looking for events before going to sleep.

use super::*;

const ROUNDS: usize = 100;

/// What came of lingering while the loop and a thread sent a byte to and fro.
fn after_ping_pong(time: Duration) -> Lingering {
    let mut event_loop = real_loop();
    let lingerer = event_loop.lingerer();
    lingerer.set(time);
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let answering = std::thread::spawn(move || {
        let mut byte = [0];
        while theirs.read_exact(&mut byte).is_ok() {
            theirs.write_all(&byte).unwrap();
        }
    });
    ours.write_all(&[0]).unwrap();
    let (mut rounds, mut reader) = (0, ours.try_clone().unwrap());
    event_loop
        .watch(ours.try_clone().unwrap(), Interest::READ, move |context, _| {
            reader.read_exact(&mut [0]).unwrap();
            rounds += 1;
            match rounds {
                ROUNDS => context.stop(),
                _ => reader.write_all(&[0]).unwrap(),
            }
        })
        .unwrap();
    event_loop.run().unwrap();
    let lingering = event_loop.metrics().lingering;
    drop(event_loop);
    ours.shutdown(std::net::Shutdown::Both).unwrap();
    answering.join().unwrap();
    lingering
}

#[test]
fn a_loop_that_lingers_finds_answers_without_having_slept() {
    let Lingering { looks, found } = after_ping_pong(Duration::from_secs(1));
    assert!(found > 0 && found <= looks && looks <= ROUNDS as u64 + 1, "{found} of {looks}");
}

#[test]
fn a_loop_that_was_not_told_to_linger_sleeps_at_once() {
    assert_eq!(after_ping_pong(Duration::ZERO), Lingering::default());
}

#[test]
fn in_virtual_time_nobody_lingers() {
    let mut event_loop = virtual_loop();
    let lingerer = event_loop.lingerer();
    lingerer.set(Duration::from_millis(1));
    event_loop.set_timeout(Duration::from_secs(60), |_| ());
    event_loop.run().unwrap();
    assert_eq!(event_loop.metrics().lingering, Lingering::default());
}

#[test]
fn a_poll_in_vain_does_not_delay_a_timer_by_what_it_took() {
    let mut event_loop = real_loop();
    let lingerer = event_loop.lingerer();
    lingerer.set(Duration::from_secs(1));
    // Without a descriptor or a hold, nothing but the timer is there; it is due after more than the poll takes.
    let delay = Duration::from_millis(1_100);
    event_loop.set_timeout(delay, |_| ());
    let began = Instant::now();
    event_loop.run().unwrap();
    let took = began.elapsed();
    assert_eq!(event_loop.metrics().lingering, Lingering { looks: 1, found: 0 });
    // On a busy machine it may be later, but hardly by the whole poll.
    assert!(took >= delay && took < delay + Duration::from_millis(900), "{took:?}");
}

#[test]
fn the_one_who_wants_it_for_longest_decides_while_it_is_there() {
    let event_loop = real_loop();
    let told = || event_loop.handle().shared.linger.get();
    let (first, second) = (event_loop.lingerer(), event_loop.lingerer());
    first.set(Duration::from_micros(50));
    second.set(Duration::from_micros(20));
    assert_eq!(told(), 50_000);
    first.set(Duration::ZERO);
    assert_eq!(told(), 20_000);
    first.set(Duration::from_secs(60));
    assert_eq!(told(), 1_000_000_000);
    drop(first);
    assert_eq!(told(), 20_000);
    drop(second);
    assert_eq!(told(), 0);
}
