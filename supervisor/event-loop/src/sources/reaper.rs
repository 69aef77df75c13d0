//! Waits for the child processes that nobody waits for any more, so that none of them stays a zombie.
//!
//! A loop cannot do this: it may be dropped, or simply never run again, while a child of it still runs. One thread
//! for the whole process does it. It is started with the first child that needs it, and sleeps until one exits.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

struct Orphan {
    process: Child,
    pidfd: OwnedFd,
}

#[derive(Default)]
struct Orphans {
    waiting: HashMap<u64, Orphan>,
    next_number: u64,
}

struct Reaper {
    epoll: OwnedFd,
    orphans: Mutex<Orphans>,
}

static REAPER: Mutex<Option<Arc<Reaper>>> = Mutex::new(None);

/// Sees to it that `process` is waited for, without waiting here.
pub(super) fn adopt(mut process: Child) {
    if matches!(process.try_wait(), Ok(None))
        && let Err(mut process) = leave_to_reaper(process)
    {
        // Out of descriptors or of memory, so it gets a thread of its own. If even that fails, the kernel reaps the
        // child with this process.
        let _ = thread::Builder::new().name("offload-reaper".to_owned()).spawn(move || process.wait());
    }
}

/// Gives the process back if there is no reaper for it.
fn leave_to_reaper(process: Child) -> Result<(), Child> {
    let Ok(reaper) = reaper() else { return Err(process) };
    // The process was not waited for, so its number is still its own.
    let Ok(pidfd) = pidfd_open(Pid::from_child(&process), PidfdFlags::empty()) else { return Err(process) };
    let mut orphans = reaper.lock();
    let number = orphans.next_number;
    orphans.next_number += 1;
    let token = epoll::EventData::new_u64(number);
    // The thread looks for it only after this lock, and finds it.
    if epoll::add(&reaper.epoll, &pidfd, token, epoll::EventFlags::IN).is_err() {
        return Err(process);
    }
    orphans.waiting.insert(number, Orphan { process, pidfd });
    Ok(())
}

fn reaper() -> io::Result<Arc<Reaper>> {
    // Nothing that runs under this lock leaves anything half done.
    let mut reaper_slot = REAPER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(reaper) = &*reaper_slot {
        return Ok(Arc::clone(reaper));
    }
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let reaper = Arc::new(Reaper { epoll, orphans: Mutex::default() });
    let own = Arc::clone(&reaper);
    thread::Builder::new().name("offload-reaper".to_owned()).spawn(move || own.run())?;
    Ok(Arc::clone(reaper_slot.insert(reaper)))
}

impl Reaper {
    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            events.iter().for_each(|event| self.reap(event.data.u64()));
        }
    }

    fn reap(&self, number: u64) {
        let exited = self.lock().waiting.remove(&number);
        if let Some(Orphan { mut process, pidfd }) = exited {
            // It has exited, so neither of these waits, and there is nobody to tell a failure.
            let _ = epoll::delete(&self.epoll, &pidfd);
            let _ = process.wait();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Orphans> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
