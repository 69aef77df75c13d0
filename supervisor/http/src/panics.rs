//! Panics in what a program adds to its server: handlers, callbacks, checks, bodies, and what they own. One costs its own request or its
//! own connection, and the log says so; the loop and all others go on.

use offload_supervisor::service::Service;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Calls `action`. None if it panics, which the log tells of `what`.
pub(crate) fn caught<T>(service: &Service, what: &str, action: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(action));
    result.map_err(|_| service.log().error(format_args!("{what} panicked"))).ok()
}

/// A future that ends, too, when it panics. Nothing that it owns can panic further than this.
pub(crate) struct Contained {
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    service: Service,
    what: &'static str,
}

impl Contained {
    pub(crate) fn new(
        service: &Service,
        what: &'static str,
        future: impl Future<Output = ()> + 'static,
    ) -> Contained {
        Contained { future: Some(Box::pin(future)), service: service.clone(), what }
    }

    fn give_up(&mut self) {
        let future = self.future.take();
        caught(&self.service, self.what, || drop(future));
    }
}

impl Future for Contained {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Contained { future, service, what } = &mut *self;
        let Some(future) = future else { return Poll::Ready(()) };
        if let Some(Poll::Pending) = caught(service, what, || future.as_mut().poll(context)) {
            return Poll::Pending;
        }
        self.give_up();
        Poll::Ready(())
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        self.give_up();
    }
}
