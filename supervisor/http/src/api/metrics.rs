//! `/metrics`: what is measured, for Prometheus and whatever else reads its formats.
//!
//! Names follow the conventions of Prometheus: base units, and the unit in the name. Labels are words of this program, and the
//! names of tasks that workers offer; nothing that a client says becomes a label.

use super::headers::weight;
use crate::offload::RequestContext;
use crate::request::Request;
use crate::respond::{IntoResponse, Response};
use crate::server::Server;
use crate::traffic::Counts;
use http::header::{CONTENT_TYPE, HeaderValue};
use offload_event_loop::io_pool::IoPoolStats;
use offload_event_loop::{LoopMetrics, Phase, SPREAD_BOUNDS, Spread};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::limits::TIME_BOUNDS;
use offload_supervisor::service::{Document, Reply, Service};
use offload_supervisor::views::{Meters, Status, TaskMeter, Times};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn mount(server: &Server) {
    let traffic = server.traffic();
    server.get("/metrics", move |request, context| {
        let counts = traffic.counts();
        async move { context.in_turn(|| Ok(scrape(&request, &context, counts))).await }
    });
}

fn scrape(request: &Request, context: &RequestContext, http: Counts) -> Response {
    let mut text = String::new();
    if let Some(scrape) = Scrape::take(context.service(), context.event_loop().metrics(), http) {
        let mut registry = Registry::with_prefix("offload");
        registry.register_collector(Box::new(scrape));
        // Writing into a string cannot fail.
        let _ = encode(&mut text, &registry);
    }
    let (text, media_type) = match prefers_open_metrics(request.header("accept").unwrap_or("")) {
        true => (text, OPEN_METRICS),
        false => (in_the_older_format(&text), PROMETHEUS),
    };
    let mut response = text.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Whether a scraper with this `Accept` would rather have OpenMetrics than the older format (RFC 9110, 12.5.1).
fn prefers_open_metrics(accept: &str) -> bool {
    let weight_of = |range: &str| {
        accept.split(',').find_map(|kind| {
            let mut parts = kind.split(';').map(str::trim);
            parts.next().filter(|name| name.eq_ignore_ascii_case(range))?;
            Some(weight(parts))
        })
    };
    // Whoever does not name it knows only the older one. Of the ranges that fit, the one that says most counts.
    let open = weight_of("application/openmetrics-text").unwrap_or(0.0);
    let older = ["text/plain", "text/*", "*/*"].into_iter().find_map(weight_of).unwrap_or(0.0);
    open > 0.0 && open >= older
}

/// The text format of Prometheus before OpenMetrics: a counter is called by the name of its samples, there is no type `info`,
/// and neither units nor an end are said.
fn in_the_older_format(text: &str) -> String {
    let (mut older, mut help) = (String::with_capacity(text.len()), None);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            let help = help.take().map_or("", |(_, help)| help);
            older += &format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            older += line;
            older.push('\n');
        }
    }
    older
}

/// All that is measured, at one moment.
#[derive(Debug)]
struct Scrape {
    status: Status,
    meters: Meters,
    event_loop: LoopMetrics,
    io_pool: IoPoolStats,
    http: Counts,
}

impl Scrape {
    fn take(service: &Service, event_loop: LoopMetrics, http: Counts) -> Option<Scrape> {
        let Reply::Document(document) = service.status() else { return None };
        let Document::Status(status) = *document else { return None };
        let (meters, io_pool) = (service.meters(), service.io_pool_stats());
        Some(Scrape { status: *status, meters, event_loop, io_pool, http })
    }

    fn supervisor(&self, to: &mut Families<'_>) -> fmt::Result {
        let Status { workers, queue, dead_letters, wait_estimate, .. } = &self.status;
        to.info("build", "Version of offload", "version", &self.status.version)?;
        to.gauge(("uptime", SECONDS), "Time since the supervisor started", self.status.uptime_s)?;
        let states = ["starting", "running", "degraded", "draining", "stopped"];
        let is_it = states.map(|state| (state, u64::from(state == self.status.state)));
        to.gauges(("state", NONE), "1 for the state of the supervisor", "state", is_it)?;
        to.gauge(("slots", NONE), "Slots for workers", workers.configured)?;
        to.gauge(("slots_ready", NONE), "Slots whose worker is idle or busy", workers.ready)?;
        to.gauge(("slots_busy", NONE), "Slots whose worker runs a job", workers.busy)?;
        let saturation = workers.busy as f64 / workers.configured.max(1) as f64;
        to.gauge(
            ("saturation", Some(Unit::Other("ratio".to_owned()))),
            "Busy slots of all slots",
            saturation,
        )?;
        to.counter(("worker_starts", NONE), "Worker processes that were started", self.meters.starts)?;
        let help = "Worker processes that were started to replace another";
        to.counter(("worker_restarts", NONE), help, workers.restarts)?;
        to.counter(("batches", NONE), "Batches that were given to a worker", workers.batches)?;
        to.counter(("batched_jobs", NONE), "Jobs in these batches", workers.batched_jobs)?;
        let help = "Batches that were lost with their worker, so that their jobs ran again in halves";
        to.counter(("batches_halved", NONE), help, workers.halved_batches)?;
        to.gauge(("queue_jobs", NONE), "Queued jobs", queue.jobs)?;
        to.gauge(("queue_jobs_limit", NONE), "Jobs that may be queued", queue.max_jobs)?;
        to.gauge(("held", BYTES), "Memory that is held for clients", queue.bytes)?;
        to.gauge(("held_limit", BYTES), "Memory that may be held for clients", queue.max_bytes)?;
        let expected = wait_estimate.now_us as f64 / 1e6;
        to.gauge(("expected_wait", SECONDS), "Expected queue time of a job that arrives now", expected)?;
        to.gauge(("dead_letters", NONE), "Dead letters", dead_letters.letters)
    }

    fn jobs(&self, to: &mut Families<'_>) -> fmt::Result {
        let jobs = |state: &str| self.status.jobs.get(state).copied().unwrap_or(0);
        to.gauge(("jobs_running", NONE), "Jobs that workers have", jobs("running"))?;
        to.counter(("jobs_accepted", NONE), "Jobs that were accepted", jobs("accepted"))?;
        let rejected = self.meters.rejected.iter().map(|(code, count)| (code.as_str(), *count));
        to.counters(("jobs_rejected", NONE), "Jobs that were refused", "code", rejected)?;
        self.job_endings(to)?;
        self.job_times(to)?;
        let inputs = self.meters.tasks.iter().map(|meter| (&*meter.task, meter.input_bytes));
        to.counters(("job_input", BYTES), "Input bytes of ended jobs", "task", inputs)?;
        let outputs = self.meters.tasks.iter().map(|meter| (&*meter.task, meter.output_bytes));
        to.counters(("job_output", BYTES), "Output bytes of ended jobs", "task", outputs)
    }

    fn job_endings(&self, to: &mut Families<'_>) -> fmt::Result {
        let each = |meter| OutcomeCode::ALL.iter().map(move |code| (meter, *code));
        let came_up = |(meter, code): &(&TaskMeter, OutcomeCode)| meter.ended(*code) > 0;
        let mut endings = self.meters.tasks.iter().flat_map(each).filter(came_up);
        to.with(("jobs_ended", NONE), "Jobs that ended", MetricType::Counter, |family| {
            endings.try_for_each(|(meter, code)| {
                let labels = [("task", &*meter.task), ("outcome", code.as_str())];
                count(&mut family.encode_family(&labels)?, &meter.ended(code))
            })
        })
    }

    fn job_times(&self, to: &mut Families<'_>) -> fmt::Result {
        type Of = fn(&TaskMeter) -> &Times;
        let times: [(&str, &str, Of); 3] = [
            ("job_queue", "From acceptance to the last start, of jobs that were started", |meter| {
                &meter.queued
            }),
            ("job_run", "The last run of jobs, by their workers' clocks", |meter| &meter.run),
            ("job_total", "From acceptance to the end, of all jobs", |meter| &meter.total),
        ];
        times.into_iter().try_for_each(|(name, help, of)| {
            to.with((name, SECONDS), help, MetricType::Histogram, |family| {
                self.meters.tasks.iter().try_for_each(|meter| {
                    histogram(&mut family.encode_family(&[("task", &*meter.task)])?, of(meter))
                })
            })
        })
    }

    fn event_loop(&self, to: &mut Families<'_>) -> fmt::Result {
        let metrics = &self.event_loop;
        to.counter(("event_loop_iterations", NONE), "Turns of the event loop", metrics.iterations)?;
        let help = "How long the event loop was busy between two polls";
        to.with(("event_loop_lag", SECONDS), help, MetricType::Histogram, |family| {
            spread(family, &metrics.lag_spread)
        })?;
        // Also those that had nothing to run yet: a counter that appears later has no rate at first.
        let total = |phase| metrics.phase(phase).map_or(0.0, |time| time.total.as_secs_f64());
        let phases = Phase::ALL.into_iter().map(|phase| (phase.name(), total(phase)));
        to.counters(("event_loop_phase", SECONDS), "Time in callbacks, by phase", "phase", phases)?;
        let help = "How often the watchdog found the event loop blocked";
        to.counter(("event_loop_blocked", NONE), help, metrics.blocked)
    }

    fn io_pool(&self, to: &mut Families<'_>) -> fmt::Result {
        let IoPoolStats { threads, busy, busy_slow, queued, queued_slow, stuck, finished, .. } = self.io_pool;
        to.gauge(("io_threads", NONE), "Threads for blocking work", threads)?;
        let lanes = [("fast", busy - busy_slow), ("slow", busy_slow)];
        to.gauges(("io_threads_busy", NONE), "Threads that run a task, by its lane", "lane", lanes)?;
        let lanes = [("fast", queued - queued_slow), ("slow", queued_slow)];
        to.gauges(("io_tasks_queued", NONE), "Tasks that wait for a thread, by lane", "lane", lanes)?;
        to.gauge(("io_threads_stuck", NONE), "Threads that were given up with their tasks", stuck)?;
        to.counter(("io_tasks_finished", NONE), "Tasks that ended on a thread", finished)
    }

    fn http(&self, to: &mut Families<'_>) -> fmt::Result {
        to.gauge(("http_connections", NONE), "Open HTTP connections", self.http.open)?;
        let help = "HTTP connections that were accepted";
        to.counter(("http_connections_opened", NONE), help, self.http.opened)?;
        to.counter(("http_received", BYTES), "Bytes from HTTP clients", self.http.received)?;
        to.counter(("http_sent", BYTES), "Bytes to HTTP clients", self.http.sent)?;
        let answers: Vec<_> =
            self.http.answers.iter().map(|(status, count)| (status.to_string(), *count)).collect();
        let answers = answers.iter().map(|(status, count)| (&**status, *count));
        to.counters(
            ("http_requests", NONE),
            "HTTP requests, by the status of the answer",
            "status",
            answers,
        )?;
        let help = "TLS connections with a request, by version";
        let handshakes = self.http.handshakes.iter().map(|(version, count)| (version.as_str(), *count));
        to.counters(("http_tls_handshakes", NONE), help, "version", handshakes)?;
        let help = "TLS connections that ended before their handshake was complete";
        to.counter(("http_tls_handshakes_failed", NONE), help, self.http.failed_handshakes)
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        self.supervisor(&mut families)?;
        self.jobs(&mut families)?;
        self.event_loop(&mut families)?;
        self.io_pool(&mut families)?;
        self.http(&mut families)
    }
}

const NONE: Option<Unit> = None;
const SECONDS: Option<Unit> = Some(Unit::Seconds);
const BYTES: Option<Unit> = Some(Unit::Bytes);

/// The name of a family without prefix, unit and suffix, and its unit.
type Name<'a> = (&'a str, Option<Unit>);

/// Writes families of metrics.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn with(
        &mut self,
        (name, unit): Name<'_>,
        help: &str,
        kind: MetricType,
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        write(&mut self.0.encode_descriptor(name, help, unit.as_ref(), kind)?)
    }

    fn info(&mut self, name: &str, help: &str, label: &'static str, value: &str) -> fmt::Result {
        self.with((name, NONE), help, MetricType::Info, |family| family.encode_info(&[(label, value)]))
    }

    fn gauge(&mut self, name: Name<'_>, help: &str, value: impl EncodeGaugeValue + Copy) -> fmt::Result {
        self.with(name, help, MetricType::Gauge, |family| family.encode_gauge(&value))
    }

    fn gauges<'v, V: EncodeGaugeValue>(
        &mut self,
        name: Name<'_>,
        help: &str,
        label: &'static str,
        values: impl IntoIterator<Item = (&'v str, V)>,
    ) -> fmt::Result {
        self.with(name, help, MetricType::Gauge, |family| {
            values
                .into_iter()
                .try_for_each(|(word, value)| family.encode_family(&[(label, word)])?.encode_gauge(&value))
        })
    }

    fn counter(&mut self, name: Name<'_>, help: &str, value: u64) -> fmt::Result {
        self.with(name, help, MetricType::Counter, |family| count(family, &value))
    }

    fn counters<'v, V: EncodeCounterValue>(
        &mut self,
        name: Name<'_>,
        help: &str,
        label: &'static str,
        values: impl IntoIterator<Item = (&'v str, V)>,
    ) -> fmt::Result {
        self.with(name, help, MetricType::Counter, |family| {
            values
                .into_iter()
                .try_for_each(|(word, value)| count(&mut family.encode_family(&[(label, word)])?, &value))
        })
    }
}

fn count(encoder: &mut MetricEncoder<'_>, value: &impl EncodeCounterValue) -> fmt::Result {
    encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
}

fn histogram(encoder: &mut MetricEncoder<'_>, times: &Times) -> fmt::Result {
    let bounds = TIME_BOUNDS.iter().map(|bound| bound.as_secs_f64()).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(times.counts).collect();
    encoder.encode_histogram::<NoLabelSet>(times.sum.as_secs_f64(), times.count(), &buckets, None)
}

/// The counts of a spread include those of shorter times; the encoder wants them one by one.
fn spread(encoder: &mut MetricEncoder<'_>, spread: &Spread) -> fmt::Result {
    let bounds = SPREAD_BOUNDS.iter().map(|bound| bound.as_secs_f64()).chain([f64::INFINITY]);
    let mut before = 0;
    let one_by_one = spread.up_to.iter().chain([&spread.count]).map(|count| {
        let more = count.saturating_sub(before);
        before = *count;
        more
    });
    let buckets: Vec<(f64, u64)> = bounds.zip(one_by_one).collect();
    encoder.encode_histogram::<NoLabelSet>(spread.total.as_secs_f64(), spread.count, &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_the_format_that_it_would_rather_have() {
        let of_prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                             text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, is_open) in [
            (of_prometheus, true),
            ("application/openmetrics-text", true),
            ("Application/OpenMetrics-Text; version=1.0.0, */*", true),
            ("text/plain, application/openmetrics-text;q=0", false),
            ("text/plain;q=0.9, application/openmetrics-text;q=0.1", false),
            ("application/openmetrics-text;q=0", false),
            ("text/plain", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(prefers_open_metrics(accept), is_open, "{accept}");
        }
    }
}
