//! `/v1/events`: the state of the supervisor once a second, as server-sent events, for whoever shows it live.
//!
//! All subscribers of a second are sent the same bytes. One that does not read misses what comes meanwhile, and is disconnected
//! like any other slow reader (`patience.rs`).

use super::events::{event, events_response};
use crate::body::{BrokenOff, Produce};
use crate::ended::Failure;
use crate::limits::{WATCH_EVERY, WATCHERS_MAX};
use crate::offload::RequestContext;
use crate::problem::Problem;
use crate::respond::Response;
use crate::server::Server;
use bytes::Bytes;
use offload_event_loop::SPREAD_BOUNDS;
use offload_protocol::messages::View;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::limits::{PAGE_ROWS_MAX, TIME_BOUNDS};
use offload_supervisor::service::{Document, Reply, Service, Stage};
use offload_supervisor::views::{Meters, Row, TaskLoad, TaskMeter};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

pub(super) fn mount(server: &Server) {
    let shared = Rc::new(Shared::default());
    server.get("/v1/events", move |_, context| {
        let shared = Rc::clone(&shared);
        async move { watch(shared, context) }
    });
}

/// What all subscribers share.
#[derive(Default)]
struct Shared {
    /// Of each client that has any.
    watchers: RefCell<BTreeMap<Arc<str>, usize>>,
    latest: RefCell<Option<(Instant, Bytes)>>,
}

impl Shared {
    /// The event of this second.
    fn now(&self, context: &RequestContext) -> Bytes {
        let mut latest = self.latest.borrow_mut();
        if let Some((made, bytes)) = &*latest
            && made.elapsed() < WATCH_EVERY / 2
        {
            return bytes.clone();
        }
        let bytes = event("now", None, &overview(context));
        *latest = Some((Instant::now(), bytes.clone()));
        bytes
    }
}

/// A place among the subscribers.
struct Place {
    shared: Rc<Shared>,
    client: Arc<str>,
}

impl Place {
    /// A client may have as many as it leaves to others.
    fn take(shared: Rc<Shared>, client: &Arc<str>) -> Option<Place> {
        {
            let mut watchers = shared.watchers.borrow_mut();
            let free = WATCHERS_MAX.saturating_sub(watchers.values().sum());
            let own = watchers.get(client).copied().unwrap_or(0);
            if own >= free {
                return None;
            }
            watchers.insert(Arc::clone(client), own + 1);
        }
        Some(Place { shared, client: Arc::clone(client) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut watchers = self.shared.watchers.borrow_mut();
        if let Some(own) = watchers.get_mut(&self.client) {
            *own -= 1;
        }
        watchers.retain(|_, own| *own > 0);
        if watchers.is_empty() {
            self.shared.latest.take();
        }
    }
}

fn watch(shared: Rc<Shared>, context: RequestContext) -> Result<Response, Failure> {
    let Some(place) = Place::take(shared, context.asker.account()) else {
        let detail = format!(
            "at most {WATCHERS_MAX} watch, and a client, such as an address, may have as many of these places as it leaves to \
             others: at most {}",
            WATCHERS_MAX / 2
        );
        return Err(Failure::from(Problem::new(OutcomeCode::Overloaded, detail)));
    };
    let next = Box::pin(context.event_loop().sleep(Duration::ZERO));
    Ok(events_response(Watching { place, context, next }))
}

struct Watching {
    place: Place,
    context: RequestContext,
    next: Pin<Box<dyn Future<Output = ()>>>,
}

impl Produce for Watching {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        ready!(self.next.as_mut().poll(context));
        // Nothing waits for a stream that has no end of its own.
        if matches!(self.context.service.stage(), Stage::Closing { .. }) {
            return Poll::Ready(None);
        }
        self.next = Box::pin(self.context.event_loop().sleep(WATCH_EVERY));
        Poll::Ready(Some(Ok(self.place.shared.now(&self.context))))
    }
}

fn overview(context: &RequestContext) -> Value {
    let service = context.service();
    let status = match service.status() {
        Reply::Document(document) => match *document {
            Document::Status(status) => Some(*status),
            _ => None,
        },
        _ => None,
    };
    let at = status.as_ref().map_or(0.0, |status| status.uptime_s * 1e6);
    let lag = context.event_loop().metrics().lag_spread;
    json!({
        "at_us": at,
        "status": status,
        "bounds_us": TIME_BOUNDS.map(|bound| bound.as_micros() as u64),
        "tasks": tasks(&service.meters(), &service.loads()),
        "slots": slots(service),
        "ended_workers": service.ended_workers(),
        "lag": {
            "bounds_us": SPREAD_BOUNDS.map(|bound| bound.as_micros() as u64),
            "counts": one_by_one(&lag.up_to, lag.count),
        },
    })
}

/// The counts of a spread include those of shorter times.
fn one_by_one(up_to: &[u64], all: u64) -> Vec<u64> {
    let before = [0].iter().chain(up_to);
    up_to.iter().chain([&all]).zip(before).map(|(upto, before)| upto.saturating_sub(*before)).collect()
}

/// A row for each task that has or had jobs.
fn tasks(meters: &Meters, loads: &[TaskLoad]) -> Vec<Value> {
    let load_of = |task: &str| loads.iter().find(|load| *load.task == *task);
    let is_new = |load: &&TaskLoad| meters.tasks.iter().all(|meter| meter.task != load.task);
    let known = meters.tasks.iter().map(|meter| row(meter, load_of(&meter.task)));
    let new = loads.iter().filter(is_new).map(|load| row(&TaskMeter::new(load.task.clone()), Some(load)));
    known.chain(new).collect()
}

fn row(meter: &TaskMeter, load: Option<&TaskLoad>) -> Value {
    let ended = OutcomeCode::ALL.iter().filter(|code| meter.ended(**code) > 0);
    let ended: serde_json::Map<_, _> =
        ended.map(|code| (code.as_str().to_owned(), json!(meter.ended(*code)))).collect();
    json!({
        "task": &*meter.task,
        "waiting": load.map_or(0, |load| load.waiting),
        "running": load.map_or(0, |load| load.running),
        "dead": load.map_or(0, |load| load.dead),
        "ended": ended,
        "queued": meter.queued.counts,
        "run": meter.run.counts,
        "total": meter.total.counts,
    })
}

fn slots(service: &Service) -> Vec<Value> {
    let write = |row: Row| Some(serde_json::to_value(row).unwrap_or_default());
    service.page(View::Workers, "", "", PAGE_ROWS_MAX, write).map(|page| page.rows).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_places_for_so_many_and_a_place_that_is_left_can_be_taken() {
        let shared = Rc::new(Shared::default());
        let take = |client: &str| Place::take(Rc::clone(&shared), &client.into());
        let mut places: Vec<_> = std::iter::from_fn(|| take("greedy")).collect();
        assert_eq!(places.len(), WATCHERS_MAX / 2);
        places.extend((0..WATCHERS_MAX).map_while(|client| take(&client.to_string())));
        assert_eq!(places.len(), WATCHERS_MAX);
        assert!(take("newcomer").is_none() && take("greedy").is_none());
        drop(places.pop());
        assert!(take("greedy").is_none() && take("newcomer").is_some());
    }

    #[test]
    fn counts_that_include_shorter_times_are_taken_apart() {
        assert_eq!(one_by_one(&[1, 1, 4], 6), [1, 0, 3, 2]);
    }
}
