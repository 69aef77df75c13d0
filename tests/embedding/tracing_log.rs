//! The log of a pool as events of the crate `tracing`.

use super::config;
use offload_supervisor::{ComputePool, EventLoop, Job, Level, LogFormat};
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the events with the target `offload`, each as a level and a message.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<String>>>);

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").expect("a string takes everything");
        }
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "offload"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(format!("{} ", event.metadata().level()));
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn the_log_of_a_pool_can_be_events_of_tracing() {
    let kept = Kept::default();
    tracing::subscriber::with_default(kept.clone(), || {
        let mut config = config(1);
        (config.log, config.log_format) = (Level::Normal, LogFormat::Tracing);
        let mut event_loop = EventLoop::new().unwrap();
        let pool = ComputePool::start(config, &event_loop).unwrap();
        pool.submit(Job::new("fault").input(r#"{"act":"kill"}"#).attempts(1), |_, cx| cx.stop());
        event_loop.run().unwrap();
    });
    let events = kept.0.lock().unwrap();
    let is_death = |event: &&String| {
        event.starts_with("WARN slot 0: worker process ") && event.contains("ended with signal 9 (SIGKILL)")
    };
    assert_eq!(events.iter().filter(is_death).count(), 1, "{events:?}");
}
