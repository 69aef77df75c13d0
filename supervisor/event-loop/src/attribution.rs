//! Code of one owner that runs inside the callback of another: the handler of a request, inside the future of a connection.
//! Whoever asks what keeps the loop busy wants to hear of the handler.
//!
//! ```text
//!   callback of a library |-----------|  attribute  |-----------|
//!   named until then:      the library's  the handler's  the library's line
//! ```

use super::LoopHandle;
use super::callback::Site;
use super::clock::Nanos;
use super::state::Shared;

impl LoopHandle {
    /// Runs `f` as a part of the callback that runs now, and attributes it to another source line: while it runs, a
    /// [watchdog](LoopHandle::watchdog) names `site`, and the slowest callback of the [metrics](LoopHandle::metrics) may be this
    /// part, by itself. A library that calls functions of its users from callbacks of its own takes their places with
    /// `#[track_caller]` when they are registered.
    pub fn attribute<T>(&self, site: Site, f: impl FnOnce() -> T) -> T {
        let _part = Part::begin(&self.shared, site);
        f()
    }
}

/// A part that runs, until this is dropped, also by a panic.
struct Part<'a> {
    shared: &'a Shared,
    site: Site,
    outer: Option<Site>,
    start: Nanos,
    /// What parts of the callback had taken before this one.
    before: Nanos,
}

impl Part<'_> {
    fn begin(shared: &Shared, site: Site) -> Part<'_> {
        let outer = shared.pulse.change_site(Some(site));
        Part { shared, site, outer, start: shared.clock.read(), before: shared.attributed.take() }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let took = self.shared.clock.read().saturating_sub(self.start);
        // Parts within this part are not its own.
        let own = took.saturating_sub(self.shared.attributed.replace(self.before + took));
        if own > self.shared.slowest.get() {
            self.shared.slowest.set(own);
            self.shared.metrics.borrow_mut().slowest(self.site, self.shared.pulse.phase(), own);
        }
        self.shared.pulse.change_site(self.outer);
    }
}
