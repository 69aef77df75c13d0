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
use std::rc::Rc;
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
    is_writing: Rc<Cell<bool>>,
}

/// Whoever asks while it is written looks again after this.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Writer {
    async fn document(&self, context: &RequestContext) -> Result<Bytes, Problem> {
        while self.is_writing.get() {
            context.clock.sleep(LOOK_AGAIN).await;
        }
        let offered = context.service().tasks_summary();
        if let Some((_, document)) = self.last.borrow().as_ref().filter(|(of, _)| *of == offered.version) {
            return Ok(document.clone());
        }
        let _writing = Writing::begin(&self.is_writing);
        let document = write(context.service(), offered.count).await?;
        self.last.replace(Some((offered.version, document.clone())));
        Ok(document)
    }
}

/// Until this is dropped, also because its client is gone.
struct Writing(Rc<Cell<bool>>);

impl Writing {
    fn begin(is_writing: &Rc<Cell<bool>>) -> Writing {
        is_writing.set(true);
        Writing(Rc::clone(is_writing))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.set(false);
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
