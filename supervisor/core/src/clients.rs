//! Fair shares: how much worker time each client has used, so that no client gets more than its share while others
//! wait.
//!
//! Each program has workers of its own, and its clients compete for these alone. There each client has a place in
//! *virtual time*: the worker time that it has used, in nanoseconds, divided by its weight. The client with the least
//! is served next. This is deficit round robin (M. Shreedhar, G. Varghese, "Efficient fair queueing using deficit round
//! robin", 1995), but the deficits are kept in order, so the next client is found without going round all of them: it
//! is start-time fair queueing (P. Goyal et al., 1996). When a job is dispatched, its client is charged the expected
//! run time; once the real run time is known, the difference is charged or given back.
//!
//! ```text
//!   virtual time of a program ----------------------------------------------------------------------------->
//!                   | the client that is served now
//!          B        A              C         clients that wait: by their places
//!          '------> |                        whoever begins to wait starts here at the earliest
//!      at most      |
//!      LAG_MAX      |
//! ```
//!
//! Virtual time is the place of who is served. When a client leaves, it goes on by the share that each of the others has of the
//! last run, as in J. Bennett, H. Zhang, "Hierarchical packet fair queueing algorithms" (1997): nobody else will pay for it.
//!
//! A client that begins to wait starts where the program is: a pause earns nothing, and neither does a job that runs or is
//! paused or held back meanwhile. A client that waits and is passed over for a long time, because memory keeps its jobs from
//! being started, is not more than [`LAG_MAX`] before the others afterwards.
//!
//! Short jobs are also run where long ones cannot be: in reserved slots, between the steps of others, beside other tiny
//! ones. So clients with short jobs may have had more than those that wait for an idle worker. A client that comes
//! later with a long job must not wait until these have had as much, so each [`Track`] has a virtual time of its own.
//!
//! The core also learns how long the outputs of each client are. A new client may have long ones, whatever its task
//! has returned to others. So until its first output has come, no other job is dispatched to a worker behind one of
//! its jobs (head-of-line blocking).

use super::ids::ProgramIndex;
use super::lookup::Lookup;
use super::queue::{HEAD_START, Share, head_start};
use super::registry::{Class, likely_output};
use super::small_map::SmallMap;
use offload_protocol::limits::INLINE_PAYLOAD_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

/// A client's number. A client that was forgotten and comes back gets a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A point in virtual time, in nanoseconds.
pub type VirtualTime = i64;

/// How far a client that waits may fall behind the virtual time, in worker time: as much as the highest priority is worth.
pub const LAG_MAX: VirtualTime = 10 * HEAD_START.as_nanos() as VirtualTime;

/// Where the jobs of a program wait for its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// For one that is idle.
    Idle,
    /// For one that is idle, or that takes short jobs besides.
    Short,
}

impl Track {
    /// Where jobs of this class wait.
    pub fn of(class: Class) -> Track {
        match class {
            Class::Short => Track::Short,
            Class::Long | Class::Together => Track::Idle,
        }
    }
}

/// One value for each track.
#[derive(Clone, Copy, Debug, Default)]
struct ByTrack<T> {
    idle: T,
    short: T,
}

impl<T: Copy> ByTrack<T> {
    fn get(&self, track: Track) -> T {
        match track {
            Track::Idle => self.idle,
            Track::Short => self.short,
        }
    }

    fn of(&mut self, track: Track) -> &mut T {
        match track {
            Track::Idle => &mut self.idle,
            Track::Short => &mut self.short,
        }
    }
}

/// The virtual times of a program: for each track the place of who was served last, less the head start that its
/// priority gave it. They never go back.
#[derive(Clone, Copy, Debug, Default)]
struct Times(ByTrack<VirtualTime>);

impl Times {
    /// Where a client starts that begins to wait. Short jobs compete for idle workers, too.
    fn start(self, track: Track) -> VirtualTime {
        match track {
            Track::Idle => self.0.idle,
            Track::Short => self.0.idle.max(self.0.short),
        }
    }

    fn advance(&mut self, track: Track, to: VirtualTime) {
        let time = self.0.of(track);
        *time = to.max(*time);
    }
}

/// Where a client is in the virtual time of a program.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: ByTrack<VirtualTime>,
    /// How many of its jobs wait.
    waiting: ByTrack<usize>,
}

impl Place {
    /// Of a client that comes.
    fn start(times: Times) -> Place {
        let at = ByTrack { idle: times.start(Track::Idle), short: times.start(Track::Short) };
        Place { at, waiting: ByTrack::default() }
    }

    /// The client has used so much more. If it is less, because the job took less time than expected, that does not bring the
    /// client before those that have waited meanwhile.
    fn charge(&mut self, times: Times, share: VirtualTime) {
        for track in [Track::Idle, Track::Short] {
            let at = self.at.of(track);
            *at = at.saturating_add(share).max(times.start(track).min(*at));
        }
    }
}

/// How a job is dispatched, as far as it matters to those that come later.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Where it has waited.
    pub track: Track,
    /// Its priority.
    pub priority: i8,
    /// It is short, by what is known now.
    pub is_short: bool,
    /// Set if only a short job could have its place: the turn of the first long job that waits.
    pub first_kept_out: Option<VirtualTime>,
}

/// One client.
#[derive(Clone, Debug)]
pub struct Account {
    /// The name that the client gave itself.
    pub name: Arc<str>,
    /// Its share of worker time relative to the others; 1 unless configured.
    pub weight: u32,
    /// Worker time that it has used of all programs, divided by its weight. Decides how long the client is remembered.
    pub used: VirtualTime,
    places: SmallMap<ProgramIndex, Place>,
    /// How many of its jobs have not ended.
    pub jobs: usize,
    /// How many of its jobs wait.
    pub waiting: usize,
    /// The likely length of its next output in bytes; `None` until the first output has come.
    likely_output: Option<u64>,
}

impl Account {
    /// Whether its outputs have been so small that jobs of other clients may wait behind one of them.
    pub fn has_small_outputs(&self) -> bool {
        self.likely_output.is_some_and(|bytes| bytes <= INLINE_PAYLOAD_MAX as u64)
    }
}

/// All clients that have jobs, and some that had jobs before.
#[derive(Debug, Default)]
pub struct Clients {
    accounts: Lookup<ClientId, Account>,
    by_name: Lookup<Arc<str>, ClientId>,
    /// Clients without jobs, ordered by what they have used: the one with the least is forgotten first. All code that
    /// changes `used` or `jobs` goes through [`Clients::wake`] and [`Clients::rest`], so no client is listed under an
    /// outdated value.
    resting: BTreeSet<(VirtualTime, ClientId)>,
    /// How many clients without jobs are remembered at most.
    resting_max: usize,
    /// The most that a client had used of all programs when it was served. A client that comes counts as having used as much.
    now: VirtualTime,
    times: SmallMap<ProgramIndex, Times>,
    last: u64,
    /// How many clients have jobs that wait.
    waiting: usize,
}

impl Clients {
    /// No clients yet; at most `resting_max` clients without jobs will be remembered.
    pub fn new(resting_max: usize) -> Clients {
        Clients { resting_max, ..Clients::default() }
    }

    /// Changes how many clients without jobs are remembered, and forgets those that are now too many.
    pub fn remember_at_most(&mut self, resting_max: usize) {
        self.resting_max = resting_max;
        self.forget_some();
    }

    /// Finds or adds the client of this name, and counts one more job for it.
    pub fn enter(&mut self, name: &str, weight: u32) -> ClientId {
        let id = self.find_or_add(name);
        let now = self.now;
        self.wake(id);
        if let Some(account) = self.accounts.get_mut(&id) {
            if account.jobs == 0 {
                account.used = account.used.max(now);
            }
            account.weight = weight.max(1);
            account.jobs += 1;
        }
        id
    }

    /// One of the client's jobs enters a queue of this program.
    pub fn joins(&mut self, id: ClientId, program: ProgramIndex, track: Track) {
        let times = self.times(program);
        let Some(account) = self.accounts.get_mut(&id) else { return };
        if account.places.get(&program).is_none() {
            account.places.insert(program, Place::start(times));
        }
        let Some(Place { at, waiting }) = account.places.get_mut(&program) else { return };
        if *waiting.of(track) == 0 {
            *at.of(track) = times.start(track).max(*at.of(track));
        }
        *waiting.of(track) += 1;
    }

    /// One of the client's jobs leaves a queue of this program.
    pub fn goes(&mut self, id: ClientId, program: ProgramIndex, track: Track) {
        let account = self.accounts.get_mut(&id);
        if let Some(place) = account.and_then(|account| account.places.get_mut(&program)) {
            let waiting = place.waiting.of(track);
            *waiting = waiting.saturating_sub(1);
        }
    }

    fn times(&self, program: ProgramIndex) -> Times {
        self.times.get(&program).copied().unwrap_or_default()
    }

    fn find_or_add(&mut self, name: &str) -> ClientId {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        self.last += 1;
        let id = ClientId(self.last);
        let name: Arc<str> = Arc::from(name);
        let account = Account {
            name: name.clone(),
            weight: 1,
            used: VirtualTime::MIN,
            places: SmallMap::default(),
            jobs: 0,
            waiting: 0,
            likely_output: None,
        };
        self.accounts.insert(id, account);
        self.by_name.insert(name, id);
        id
    }

    /// One of the client's jobs has ended.
    pub fn leave(&mut self, id: ClientId) {
        let Some(account) = self.accounts.get_mut(&id) else { return };
        account.jobs = account.jobs.saturating_sub(1);
        self.rest(id);
        self.forget_some();
    }

    /// Takes the client off the list of those without jobs: it gets a job, or `used` is about to change.
    fn wake(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.get(&id).filter(|account| account.jobs == 0) {
            self.resting.remove(&(account.used, id));
        }
    }

    /// Puts the client on the list of those without jobs, if it has none.
    fn rest(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.get(&id).filter(|account| account.jobs == 0) {
            self.resting.insert((account.used, id));
        }
    }

    fn forget_some(&mut self) {
        while self.resting.len() > self.resting_max {
            let Some((_, least)) = self.resting.pop_first() else { return };
            self.forget(least);
        }
    }

    fn forget(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.remove(&id) {
            self.by_name.remove(&*account.name);
        }
    }

    /// A job of the client is dispatched: virtual time advances to its place. What the client has because of the priority,
    /// before its turn, is left out: the others have not had that. A client that comes now would otherwise have to
    /// wait until all of them have caught up.
    pub fn served(&mut self, id: ClientId, program: ProgramIndex, served: Served) {
        let track = served.track;
        let start = self.times(program).start(track);
        let Some(account) = self.accounts.get_mut(&id) else { return };
        self.now = self.now.max(account.used);
        let Some(place) = account.places.get_mut(&program) else { return };
        let at = place.at.of(track);
        *at = start.saturating_sub(LAG_MAX / VirtualTime::from(account.weight)).max(*at);
        let turn = at.saturating_sub(head_start(served.priority, account.weight).max(0));
        let times = self.times.get_or_add(program);
        // Those who wait for an idle worker have not had what those have who need none.
        times.advance(Track::Idle, served.first_kept_out.map_or(turn, |first| first.min(turn)));
        if served.is_short {
            times.advance(Track::Short, turn);
        }
    }

    /// A job of the client has run for so long, and `weights` is what those weigh who wait. If it was the client's last one,
    /// virtual time advances by the share that each of them has of the run, but not beyond the client. Otherwise it would
    /// stand still while clients come that have one job each, and these would all go before those that wait.
    pub fn ran(
        &mut self,
        id: ClientId,
        program: ProgramIndex,
        (nanos, weights): (i64, u64),
        tracks: &[Track],
    ) {
        let Some(account) = self.accounts.get(&id).filter(|account| account.jobs == 1) else { return };
        let Some(place) = account.places.get(&program) else { return };
        let weights = VirtualTime::try_from(weights.saturating_add(u64::from(account.weight)));
        let share = nanos / weights.unwrap_or(VirtualTime::MAX).max(1);
        let times = self.times.get_or_add(program);
        for track in tracks {
            let passed = times.start(*track).saturating_add(share);
            times.advance(*track, passed.min(place.at.get(*track)));
        }
    }

    /// Charges worker time of a program in nanoseconds. A negative amount is given back. The client need not have jobs any more.
    pub fn charge(&mut self, id: ClientId, program: ProgramIndex, nanos: i64) {
        self.wake(id);
        let times = self.times(program);
        if let Some(account) = self.accounts.get_mut(&id) {
            let share = nanos / i64::from(account.weight);
            account.used = account.used.saturating_add(share);
            if let Some(place) = account.places.get_mut(&program) {
                place.charge(times, share);
            }
        }
        self.rest(id);
    }

    /// One of the client's jobs has returned an output of this length.
    pub fn returned(&mut self, id: ClientId, output_bytes: u64) {
        if let Some(account) = self.accounts.get_mut(&id) {
            account.likely_output = Some(likely_output(account.likely_output, output_bytes));
        }
    }

    /// One of the client's jobs begins to wait.
    pub fn waits(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.get_mut(&id) {
            self.waiting += usize::from(account.waiting == 0);
            account.waiting += 1;
        }
    }

    /// One of the client's jobs no longer waits.
    pub fn waits_no_more(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.get_mut(&id) {
            self.waiting -= usize::from(account.waiting == 1);
            account.waiting = account.waiting.saturating_sub(1);
        }
    }

    /// The account, while the client is remembered.
    pub fn get(&self, id: ClientId) -> Option<&Account> {
        self.accounts.get(&id)
    }

    /// The client's name; empty if the client is not known. All that have jobs are.
    pub(super) fn name_of(&self, id: ClientId) -> &Arc<str> {
        static NONE: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));
        self.accounts.get(&id).map_or(&NONE, |account| &account.name)
    }

    /// The number of the client of this name, if it is remembered.
    pub fn id_of(&self, name: &str) -> Option<ClientId> {
        self.by_name.get(name).copied()
    }

    /// The account of the client of this name, if it is remembered.
    pub fn find(&self, name: &str) -> Option<&Account> {
        self.accounts.get(self.by_name.get(name)?)
    }

    /// The client's place in the virtual time of a program, and its weight. One that is not known has the place of who begins to
    /// wait.
    pub fn share(&self, id: ClientId, program: ProgramIndex, track: Track) -> Share {
        let account = self.accounts.get(&id);
        let place = account.and_then(|account| account.places.get(&program));
        let used = place.map_or_else(|| self.times(program).start(track), |place| place.at.get(track));
        Share { used, weight: account.map_or(1, |account| account.weight) }
    }

    /// How many of the client's jobs are in the queues of this program.
    pub(super) fn queued(&self, id: ClientId, program: ProgramIndex, track: Track) -> usize {
        let place = self.accounts.get(&id).and_then(|account| account.places.get(&program));
        place.map_or(0, |place| place.waiting.get(track))
    }

    /// How many jobs are in all queues, by the clients' places.
    pub(super) fn all_queued(&self) -> usize {
        let places = self.accounts.values().flat_map(|account| account.places.iter());
        places.map(|(_, place)| place.waiting.idle + place.waiting.short).sum()
    }

    /// The clients that have jobs.
    pub fn active(&self) -> impl Iterator<Item = &Account> {
        self.accounts.values().filter(|account| account.jobs > 0)
    }

    /// How many clients have jobs that wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting
    }

    /// Checks the accounts against `jobs`: the client, and its name, of every job that has not ended. An error says
    /// what is wrong.
    pub(super) fn check<'a>(
        &self,
        jobs: impl Iterator<Item = (ClientId, &'a Arc<str>)>,
    ) -> Result<(), String> {
        let mut counts: BTreeMap<ClientId, usize> = BTreeMap::new();
        for (id, name) in jobs {
            *counts.entry(id).or_default() += 1;
            if self.accounts.get(&id).is_none_or(|account| account.name != *name) {
                return Err(format!("{name} has jobs and no account"));
            }
        }
        let idle = self.accounts.iter().filter(|(_, account)| account.jobs == 0);
        let idle: BTreeSet<_> = idle.map(|(id, account)| (account.used, *id)).collect();
        let differs = |(id, account): &(&ClientId, &Account)| {
            counts.get(id).copied().unwrap_or(0) != account.jobs
                || self.by_name.get(&*account.name) != Some(id)
        };
        match self.accounts.iter().find(differs) {
            Some((_, account)) => Err(format!("{} has other jobs than it is said to have", account.name)),
            None if idle != self.resting => Err("a client is listed under what it had used before".into()),
            None if self.by_name.len() != self.accounts.len() => Err("a name has no account".into()),
            None if idle.len() > self.resting_max => Err("too many clients without jobs".into()),
            None => Ok(()),
        }
    }

    /// How many clients are remembered.
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// Whether no client is remembered.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }
}

#[cfg(test)]
mod tests;
