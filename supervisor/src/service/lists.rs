//! Who looks at jobs, workers and tasks sees them settled: a job that came in the same turn of the loop, and for which a worker is
//! free, has that worker.

use super::Service;
use crate::hub::Hub;
use crate::views::{Page, Row};
use offload_protocol::messages::{JobFilter, View};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::cell::Ref;

impl Service {
    /// The hub, after it has decided about everything that has come until now.
    pub(super) fn settled_hub(&self) -> Ref<'_, Hub> {
        self.hub().borrow_mut().settle();
        self.hub_without_old_outputs()
    }

    /// A worker that was stopped while nothing was under way is noticed now.
    pub(super) fn look_at_workers(&self) {
        self.hub().borrow_mut().report_stops();
    }

    /// A page of a list: at most `most` rows, and never more than [`PAGE_ROWS_MAX`](crate::limits::PAGE_ROWS_MAX).
    /// `after` is [`Page::next`] of the previous page, or empty for the first page. Of the jobs, only those with this label,
    /// unless it is empty; then a page may have few rows, or none, and be followed by others.
    ///
    /// `write` gets the rows in order and turns each into what the page holds: the front's own bytes, or the row itself.
    /// Each row is made when the one before it is written. If `write` returns None, that row is the first one of the
    /// next page, and no further row is made. So a front bounds the size of a page by its own measure. `write` must not
    /// call the service.
    ///
    /// # Errors
    /// A refusal, if there is no such list, or no such row from which it could go on.
    ///
    /// # Panics
    /// If `write` returns None for the first row: there is always room for one row, or the list would never end.
    pub fn page<R>(
        &self,
        view: View,
        label: &str,
        after: &str,
        most: usize,
        mut write: impl FnMut(Row) -> Option<R>,
    ) -> Result<Page<R>, ErrorDetail> {
        if view == View::Workers {
            self.look_at_workers();
        }
        let filter = JobFilter { label: label.to_owned(), ..JobFilter::default() };
        self.settled_hub().page((view, &filter), after, most, &mut write).ok_or_else(no_such_page)
    }

    /// The same for the list of jobs, of those that pass a filter. Jobs are listed from the youngest to the oldest, first those
    /// that have not ended.
    ///
    /// # Errors
    /// A refusal, if there is no such row from which the list could go on.
    ///
    /// # Panics
    /// If `write` returns None for the first row.
    pub fn jobs_page<R>(
        &self,
        filter: &JobFilter,
        after: &str,
        most: usize,
        mut write: impl FnMut(Row) -> Option<R>,
    ) -> Result<Page<R>, ErrorDetail> {
        self.settled_hub().page((View::Jobs, filter), after, most, &mut write).ok_or_else(no_such_page)
    }
}

fn no_such_page() -> ErrorDetail {
    let message = "there is no such list, or no such row in it from which it could go on";
    ErrorDetail::new(OutcomeCode::BadRequest, message.to_owned())
}
