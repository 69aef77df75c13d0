//! How the public types that own callbacks or futures show themselves with `{:?}`: by their names and numbers, so that a program
//! may derive `Debug` for what it keeps them in. Nothing here takes a lock or calls code of others.

use std::fmt;
use std::os::fd::AsFd;

use super::futures::{NextIteration, Sleep};
use super::handle::{Hold, Lingerer, LoopHandle};
use super::on_gone::OnGone;
use super::readiness::Ready;
use super::remote::{Notifier, Remote};
use super::requests::Request;
use super::tasks::JoinHandle;
use super::watchdog::Watchdog;
use super::{Context, EventLoop};

/// For those of which nothing is worth being shown.
macro_rules! impl_plain_debug {
    ($($name:ident),*) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        })*
    };
}

impl_plain_debug!(Hold, Lingerer, NextIteration, Notifier, OnGone, Sleep, Watchdog);

impl LoopHandle {
    fn show(&self, name: &str, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct(name);
        shown.field("number", &self.shared.remote.loop_number());
        shown.field("is_running", &self.shared.is_running.get());
        shown.field("is_gone", &self.shared.is_gone.get());
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for LoopHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show("LoopHandle", formatter)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show("Context", formatter)
    }
}

impl fmt::Debug for EventLoop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show("EventLoop", formatter)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Remote").field("number", &self.loop_number()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Request<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Request").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}

impl<S: AsFd> fmt::Debug for Ready<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Ready").finish_non_exhaustive()
    }
}
