//! `/openapi.json`: this interface as OpenAPI 3.1. What is always the same is in `openapi/base.json`; the tasks come from what
//! workers offer at this moment, each with its media types, its schema and its example.
//!
//! A document of many tasks takes long, and its tasks as values take many times its own length. So it is written page by page,
//! for one client at a time, on a thread. It is bounded, and the last one is kept for as long as the tasks are the same:
//!
//! ```text
//!   GET ---> same tasks as last time? --yes--> the last document
//!              | no
//!              v
//!            a page of tasks (loop) ---> their text (thread) ---> ... until all are described, or the bound is reached
//! ```

mod document;

use crate::body::Body;
use crate::limits::TASKS_AT_ONCE;
use crate::offload::RequestContext;
use crate::problem::Problem;
use crate::respond::json_response;
use crate::server::Server;
use bytes::Bytes;
use document::TaskPaths;
use offload_protocol::messages::View;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::service::Service;
use offload_supervisor::views::{Page, Row, TaskView};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(super) fn mount(server: &Server) {
    let writer = Rc::new(Writer::default());
    server.get("/openapi.json", move |_, context| {
        let writer = Rc::clone(&writer);
        async move { writer.document(&context).await.map(|document| json_response(Body::from(document))) }
    });
}

/// See the module's documentation.
#[derive(Default)]
struct Writer {
    /// The last document, and the version of the tasks that it describes.
    last: RefCell<Option<(u64, Bytes)>>,
    one: Rc<OneWriter>,
}

/// Whoever asks while it is written waits so long at most.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// So many tasks are remembered that wait for it.
const WAKERS_MAX: usize = 1 << 12;

impl Writer {
    async fn document(&self, context: &RequestContext) -> Result<Bytes, Problem> {
        let mut late = pin!(context.clock.sleep(WAIT_MAX));
        poll_fn(|context| match self.one.poll_free(context) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => late.as_mut().poll(context).map(|()| Err(not_written("others wait for it too"))),
        })
        .await?;
        let offered = context.service().tasks_summary();
        if let Some((_, document)) = self.last.borrow().as_ref().filter(|(of, _)| *of == offered.version) {
            return Ok(document.clone());
        }
        let _writing = Writing::begin(&self.one);
        let document = write(context.service(), offered.count).await?;
        self.last.replace(Some((offered.version, document.clone())));
        Ok(document)
    }
}

/// Where one document at a time is written.
#[derive(Default)]
struct OneWriter {
    is_taken: Cell<bool>,
    /// Tasks of requests, at most one for each.
    waiting: RefCell<Vec<Waker>>,
}

impl OneWriter {
    fn poll_free(&self, context: &Context<'_>) -> Poll<()> {
        if !self.is_taken.get() {
            return Poll::Ready(());
        }
        // Further ones wait for their time limit.
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() < WAKERS_MAX {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn wake_all(&self) {
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Until this is dropped, also because its client is gone.
struct Writing(Rc<OneWriter>);

impl Writing {
    fn begin(one: &Rc<OneWriter>) -> Writing {
        one.is_taken.set(true);
        Writing(Rc::clone(one))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.is_taken.set(false);
        self.0.wake_all();
    }
}

async fn write(service: &Service, offered: usize) -> Result<Bytes, Problem> {
    let mut paths = TaskPaths::default();
    let mut after = Some(String::new());
    while let Some(last) = after.filter(|_| !paths.is_full()) {
        let page = tasks_after(service, &last)?;
        after = page.next;
        let add = move || {
            page.rows.iter().for_each(|task| paths.add(task));
            paths
        };
        paths = service.on_thread(add).await.map_err(not_written)?;
    }
    let all = move || Bytes::from(document::document(&paths, offered));
    service.on_thread(all).await.map_err(not_written)
}

fn tasks_after(service: &Service, last: &str) -> Result<Page<TaskView>, Problem> {
    let task = |row| if let Row::Task(task) = row { Some(*task) } else { None };
    service.page(View::Tasks, "", last, TASKS_AT_ONCE, task).map_err(|error| Problem::of(&error))
}

fn not_written(error: impl std::fmt::Display) -> Problem {
    Problem::new(OutcomeCode::Overloaded, format!("the document was not written: {error}"))
}
