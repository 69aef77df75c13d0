//! A thread that asks the supervisor, so that a slow answer keeps nobody from quitting.

use super::model::{News, Order, Snapshot};
use crate::cancel::cancel;
use crate::client::RequestClient;
use crate::explain::story;
use crate::failure::Failure;
use crate::flags::{Globals, NAMELESS};
use crate::limits::{ANSWER_TIMEOUT, TOP_JOBS_MAX, TOP_ORDERS_MAX};
use crate::show::fetch_list;
use offload_protocol::messages::{ToSupervisor, View};
use offload_supervisor::views::{ExplanationView, JobView, Status, WorkerView};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, test_kill_process};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::iter;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// See the module's documentation.
pub(super) struct Watcher {
    news: Receiver<Result<News, Failure>>,
    orders: SyncSender<Order>,
}

impl Watcher {
    /// Connects, and starts the thread.
    ///
    /// # Errors
    /// If there is no supervisor.
    pub(super) fn start(globals: &Globals, every: Duration) -> Result<Watcher, Failure> {
        let client = globals.connect(NAMELESS)?;
        let (orders, to_do) = sync_channel(TOP_ORDERS_MAX);
        let (tell, news) = sync_channel(TOP_ORDERS_MAX);
        let asker = Asker { client, started: Instant::now() };
        thread::Builder::new()
            .name("top".to_owned())
            .spawn(move || asker.run(every, &to_do, &tell))
            .map_err(|error| Failure::internal("cannot start a thread", error))?;
        Ok(Watcher { news, orders })
    }

    /// What has come since the last call. An error is the last news.
    pub(super) fn news(&self) -> impl Iterator<Item = Result<News, Failure>> {
        iter::from_fn(|| match self.news.try_recv() {
            Ok(news) => Some(news),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(Failure::Internal("nobody asks the supervisor any more".to_owned())))
            }
        })
    }

    /// Has this done, and says whether it will be: no more orders than this can wait for a supervisor that does not answer.
    pub(super) fn order(&self, order: Order) -> bool {
        self.orders.try_send(order).is_ok()
    }
}

struct Asker {
    client: RequestClient,
    started: Instant,
}

impl Asker {
    /// Asks at intervals, and does what is ordered meanwhile, until nobody listens or the supervisor is gone.
    fn run(mut self, every: Duration, orders: &Receiver<Order>, tell: &SyncSender<Result<News, Failure>>) {
        let mut next = Instant::now();
        loop {
            let left = next.saturating_duration_since(Instant::now());
            let news = match orders.recv_timeout(left) {
                Ok(order) => {
                    // What it changed is shown at once.
                    next = Instant::now();
                    or_told(self.obey(order), News::Done)
                }
                Err(RecvTimeoutError::Timeout) => {
                    next = Instant::now() + every;
                    or_told(self.look(), News::Silence)
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let news = news.map_err(ended);
            let is_over = news.is_err();
            if tell.send(news).is_err() || is_over {
                return;
            }
        }
    }

    fn look(&mut self) -> Result<News, Failure> {
        let status = self.ask(&ToSupervisor::Show { ticket: 1, view: View::Status })?;
        let workers = self.workers()?;
        let id = |job: &JobView| job.job.clone();
        let jobs = fetch_list(&mut self.client, (View::Jobs, ""), TOP_JOBS_MAX, id)?.rows;
        let has_more_jobs = jobs.len() >= TOP_JOBS_MAX;
        let at = self.started.elapsed();
        let out_of_reach = self.out_of_reach(&status, &workers);
        Ok(News::Snapshot(Box::new(Snapshot { at, status, workers, jobs, has_more_jobs, out_of_reach })))
    }

    /// The processes that cannot be killed from here: all of them if the supervisor's process ids mean nothing here, and those that run
    /// as another user.
    fn out_of_reach(&self, status: &Status, workers: &[WorkerView]) -> BTreeSet<u32> {
        let is_near = self.client.supervisor_process() == Some(status.pid);
        let pids = workers.iter().filter_map(|worker| worker.pid);
        pids.filter(|pid| !is_near || pid_of(*pid).map(test_kill_process) == Some(Err(Errno::PERM))).collect()
    }

    fn workers(&mut self) -> Result<Vec<WorkerView>, Failure> {
        let slot = |worker: &WorkerView| worker.slot.to_string();
        Ok(fetch_list(&mut self.client, (View::Workers, ""), usize::MAX, slot)?.rows)
    }

    fn obey(&mut self, order: Order) -> Result<News, Failure> {
        match order {
            Order::Tell { job } => {
                let told = self.ask::<ExplanationView>(&ToSupervisor::Explain { ticket: 1, job: &job });
                told.map(|told| News::Story(story(&told)))
            }
            Order::Cancel { job } => {
                cancel(&mut self.client, &job).map(|(effect, _)| News::Done(format!("job {job}: {effect}")))
            }
            Order::Kill { slot, pid } => self.kill(slot, pid),
        }
    }

    /// Kills the process if it still is that of this slot. Its number may be somebody else's at any time, so the process is opened first:
    /// what is open here while the supervisor says that it is the worker, is the worker.
    fn kill(&mut self, slot: usize, pid: u32) -> Result<News, Failure> {
        let process = pid_of(pid).ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let is_there = self.workers()?.iter().any(|worker| worker.slot == slot && worker.pid == Some(pid));
        let done = match process.and_then(|process| match is_there {
            true => pidfd_send_signal(process, Signal::KILL),
            false => Err(Errno::SRCH),
        }) {
            Ok(()) => format!("worker process {pid} is killed"),
            Err(Errno::SRCH) => format!("slot {slot} has another process by now"),
            Err(error) => format!("cannot kill worker process {pid}: {error}"),
        };
        Ok(News::Done(done))
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &ToSupervisor<'_>) -> Result<T, Failure> {
        let document = self.client.ask(request, Some(ANSWER_TIMEOUT))?;
        serde_json::from_slice(&document)
            .map_err(|error| Failure::internal("the supervisor's answer is of another form", error))
    }
}

fn pid_of(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// What was refused, or not answered in time, is news as well: it does not end the view.
fn or_told(news: Result<News, Failure>, tell: impl FnOnce(String) -> News) -> Result<News, Failure> {
    match news {
        Err(Failure::Outcome { message, .. }) => Ok(tell(message)),
        news => news,
    }
}

/// Why there is nothing more to watch.
fn ended(failure: Failure) -> Failure {
    match failure {
        Failure::NoSupervisor(reason) => Failure::NoSupervisor(format!("the supervisor has ended: {reason}")),
        other => other,
    }
}
