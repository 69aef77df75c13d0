//! The slow lane: how many threads it may use, and which task is next.

use super::*;
use crate::io_pool::lanes::Lanes;

#[test]
fn slow_tasks_have_at_most_half_of_the_threads_rounded_up_and_fast_ones_pass_them() {
    for (threads, for_slow) in [(2, 1), (3, 2), (4, 2), (5, 3)] {
        let (mut event_loop, pool) = pool_with(IoPoolConfig { threads, ..IoPoolConfig::default() });
        let slow = pool.on_lane(Lane::Slow);
        let answers = Answers::default();
        let blocked: Vec<_> = (0..threads).map(|_| block_a_thread(&slow, &answers)).collect();
        for task in &blocked[..for_slow] {
            task.begun.recv().unwrap();
        }
        for _ in 0..10 {
            pool.submit(|| 1, |context, _| context.stop());
            event_loop.run().unwrap();
        }
        let stats = pool.stats();
        assert_eq!((stats.busy_slow, stats.queued_slow), (for_slow, threads - for_slow), "{threads} threads");
        assert!(blocked[for_slow..].iter().all(|task| task.begun.try_recv().is_err()));
        drop(blocked.into_iter().map(|task| task.let_go).collect::<Vec<_>>());
    }
}

#[test]
fn all_slow_tasks_run_though_only_half_of_the_threads_are_theirs() {
    let (mut event_loop, pool) = pool_with(IoPoolConfig::default());
    let answers = Answers::default();
    for number in 0..1_000 {
        pool.on_lane(Lane::Slow).submit(move || number, collect(&answers));
        pool.submit(move || 1_000 + number, collect(&answers));
    }
    event_loop.run().unwrap();
    let mut results: Vec<u32> = answers.take().into_iter().map(Result::unwrap).collect();
    results.sort_unstable();
    assert!(results.into_iter().eq(0..2_000));
    assert_eq!(pool.stats().busy_slow, 0);
}

/// In which order one thread serves tasks that were submitted in another one. Those with an `s` are slow.
fn order_of(names: &[&'static str]) -> Vec<&'static str> {
    let (mut event_loop, pool) = pool_with(one_thread());
    let order = Order::default();
    let blocked = block_a_thread(&pool, &Answers::default());
    blocked.begun.recv().unwrap();
    for &name in names {
        let lane = if name.starts_with('s') { Lane::Slow } else { Lane::Fast };
        pool.on_lane(lane).submit(|| (), note(&order, name));
    }
    drop(blocked);
    event_loop.run().unwrap();
    order.take()
}

#[test]
fn each_lane_is_first_in_first_out_and_after_a_slow_task_those_fast_ones_go_first_that_wait() {
    assert_eq!(order_of(&["f1", "f2", "s1", "f3"]), ["f1", "f2", "s1", "f3"]);
    assert_eq!(order_of(&["s1", "s2", "s3", "f1", "f2"]), ["s1", "f1", "f2", "s2", "s3"]);
    assert_eq!(order_of(&["f1", "s1", "s2", "f2", "f3"]), ["f1", "s1", "f2", "f3", "s2"]);
}

#[test]
fn fast_tasks_that_never_end_do_not_starve_a_slow_one() {
    let (mut event_loop, pool) = pool_with(one_thread());
    fn go_on(pool: &IoHandle) {
        let again = pool.clone();
        pool.submit(|| (), move |_, _| go_on(&again));
    }
    for _ in 0..16 {
        go_on(&pool);
    }
    let answers = Answers::default();
    let slow = Rc::clone(&answers);
    let done = move |context: &mut Context, result: Result<u32, IoError>| {
        slow.borrow_mut().push(result.map_err(|error| error.to_string()));
        context.stop();
    };
    pool.on_lane(Lane::Slow).within(Duration::from_secs(20)).submit(|| 1, done);
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Ok(1)]);
}

#[test]
fn each_lane_has_a_bound_of_its_own() {
    let (mut event_loop, pool) = pool_with(IoPoolConfig { queue_max: 1, ..one_thread() });
    let answers = Answers::default();
    let blocked = block_a_thread(&pool, &Answers::default());
    blocked.begun.recv().unwrap();
    let slow = pool.on_lane(Lane::Slow);
    for number in 1..=2 {
        slow.submit(move || number, collect(&answers));
        pool.submit(move || number + 10, collect(&answers));
    }
    assert_eq!((pool.stats().queued, pool.stats().queued_slow), (2, 1));
    event_loop.set_immediate(move |_| drop(blocked));
    event_loop.run().unwrap();
    let refused = Err(IoError::Overloaded { pool: "offload-io" }.to_string());
    assert_eq!(answers.take(), [refused.clone(), refused, Ok(1), Ok(11)]);
}

#[test]
fn name_look_ups_wait_in_the_slow_lane() {
    let (mut event_loop, pool) = pool_with(IoPoolConfig { threads: 2, ..IoPoolConfig::default() });
    let blocked = block_a_thread(&pool.on_lane(Lane::Slow), &Answers::default());
    blocked.begun.recv().unwrap();
    let order = Order::default();
    pool.dns_lookup("127.0.0.1", 80, note(&order, "name"));
    pool.submit(|| (), {
        let noted = note(&order, "fast");
        move |context: &mut Context, result| {
            noted(context, result);
            drop(blocked);
        }
    });
    event_loop.run().unwrap();
    assert_eq!(order.take(), ["fast", "name"]);
}

/// Jobs as the lanes see them, which nobody runs.
struct Jobs(EventLoop);

impl Jobs {
    fn new() -> Jobs {
        Jobs(EventLoop::new().expect("two descriptors"))
    }

    fn submit(&self, lanes: &mut Lanes, lane: Lane, count: usize) -> Vec<TaskId> {
        (0..count).map(|_| self.submit_one(lanes, lane)).collect()
    }

    fn submit_one(&self, lanes: &mut Lanes, lane: Lane) -> TaskId {
        let site = Location::caller();
        let task = TaskId { pool: 0, lane, request: self.0.request_any(site, |_, _| ()) };
        let work = Box::new(PoolTask::Unfinished(|| ControlFlow::Break(())));
        lanes.push(QueuedTask { task, site, has_parts: false, submitted: self.0.now(), work });
        task
    }
}

#[test]
fn many_tasks_that_are_taken_out_at_once_leave_the_others_where_they_were() {
    for lane in [Lane::Fast, Lane::Slow] {
        let (jobs, mut lanes) = (Jobs::new(), Lanes::default());
        jobs.submit(&mut lanes, Lane::Fast, 500);
        jobs.submit(&mut lanes, Lane::Slow, 500);
        let tasks = jobs.submit(&mut lanes, lane, 500);
        let taken = lanes.take_each(&tasks);
        assert!(taken.len() == tasks.len() && tasks.iter().all(|task| taken.contains_key(task)));
        assert_eq!((lanes.len(Lane::Fast), lanes.len(Lane::Slow)), (500, 500));
    }
}

/// The turns of tasks of both lanes, by number, after every `nth` of them was taken out in one of two ways.
fn turns_after(nth: usize, take_out: impl Fn(&mut Lanes, &[TaskId])) -> Vec<usize> {
    let (jobs, mut lanes) = (Jobs::new(), Lanes::default());
    let mut all = jobs.submit(&mut lanes, Lane::Fast, 100);
    all.extend(jobs.submit(&mut lanes, Lane::Slow, 100));
    all.extend(jobs.submit(&mut lanes, Lane::Fast, 100));
    let gone: Vec<TaskId> = all.iter().copied().step_by(nth).collect();
    take_out(&mut lanes, &gone);
    let number = |job: QueuedTask| all.iter().position(|task| *task == job.task).expect("one of them");
    std::iter::from_fn(|| lanes.pop(true)).map(number).collect()
}

#[test]
fn taking_tasks_out_all_at_once_leaves_the_same_turns_as_one_by_one() {
    for nth in [1, 2, 3, 7, 50] {
        let at_once = turns_after(nth, |lanes, gone| drop(lanes.take_each(gone)));
        let one_by_one = turns_after(nth, |lanes, gone| gone.iter().for_each(|task| drop(lanes.take(*task))));
        assert_eq!(at_once, one_by_one, "without every {nth}th");
        assert_eq!(at_once.len(), 300 - 300_usize.div_ceil(nth));
    }
}
