//! Programs with a pool: one that is its own worker, and forgets to be one; one that forks.

use std::process::Command;
use tests::harness::{program, run};

#[test]
fn a_program_without_a_branch_for_its_workers_is_told_so_and_starts_no_worker_of_a_worker() {
    let ran = run(&mut Command::new(program("ownworker")), b"").ok();
    let told = ran.text();
    assert!(
        told.contains("unavailable") && told.contains("started as a worker, as `PROGRAM own`"),
        "{ran:?}"
    );
    assert!(told.contains("call offload_worker::Worker::serve"), "{ran:?}");
}

/// The outer program starts itself as `ownworker OFFLOAD worker`, which is no worker of its own. It ends before it says hello, but
/// what it prints says that its own job was done.
#[test]
fn a_worker_may_have_a_pool_of_another_program() {
    let (outer, offload) = (program("ownworker"), program("offload"));
    let ran = run(Command::new(&outer).arg(&outer).arg(&offload).arg("worker"), b"").ok();
    assert!(ran.text().contains("hello") && !ran.text().contains("started as a worker"), "{ran:?}");
}

#[test]
fn what_a_job_starts_may_have_a_pool_of_its_own() {
    let offload = program("offload");
    let nested = format!("{} run --workers 1 echo nested", offload.display());
    for command in [nested.clone(), format!("sh -c '{nested} < /dev/null'")] {
        let ran =
            run(Command::new(&offload).args(["run", "--workers", "1", "--exec", &command, "x"]), b"").ok();
        assert_eq!(ran.text().trim(), "nested", "{ran:?}");
    }
}

/// The child drops its copies of the pool and of the loop, in either order; also while other threads have locks of them or of a handle.
#[test]
fn a_forked_child_that_drops_the_pool_takes_nothing_from_its_parent_and_waits_for_no_thread_of_it() {
    let ran = run(Command::new(program("forkhost")).arg(program("offload")).arg("worker"), b"").ok();
    let expected = "the same worker\nthe same worker\n20 children have dropped what was in use\n100 children, and the parent has \
                    its answer: hello\n";
    assert_eq!(ran.text(), expected, "{ran:?}");
}
