//! `offload top`: a live view of the supervisor on the whole screen.
//!
//! ```text
//!   keys ----> model::Model ---- Order ----> watcher::Watcher ---- requests ----> the supervisor
//!                 |   ^                           | a thread of its own, because it waits for answers
//!                 v   '-------- News -------------'
//!            view::draw ----> the terminal
//! ```
//!
//! The model and the view are pure: what is shown follows from what was told and which keys were pressed.

mod keys;
mod model;
mod screen;
mod view;
#[cfg(test)]
mod view_tests;
mod watcher;

use super::failure::{Failure, OK, VerbResult};
use super::flags::Globals;
use super::limits::{TOP_INTERVALS, TOP_LAST_LOOK};
use clap::Args;
use model::{Model, News, Open, Step};
use offload_supervisor::signals::EndingSignals;
use offload_supervisor::units::parse_time_limit;
use screen::{Screen, is_gone, typed};
use signal_hook::consts::SIGHUP;
use std::io::{self, IsTerminal, stdin, stdout};
use std::time::{Duration, Instant};
use watcher::Watcher;

const EXAMPLES: &str = "\
Examples:
  offload top                                watch the supervisor; `h` explains the keys, `q` quits
  offload top --every 250ms                  look four times a second
  offload --socket /run/jobs/o.sock top      watch another one

It needs a terminal. For scripts there are `offload status --json` and `offload workers --json`.";

/// How long the loop waits for a key before it looks for news.
const KEY_WAIT: Duration = Duration::from_millis(50);

/// Watch slots, queue, rates and loop live on the whole screen; inspect and cancel jobs, kill workers
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Top {
    /// How often to ask the supervisor; 50ms to 30s
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_interval)]
    every: Duration,
}

impl Top {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        if !stdout().is_terminal() || !stdin().is_terminal() || globals.json {
            let why = "`top` draws on a terminal: for a script or a file there is `offload status --json`";
            return Err(Failure::Usage(why.to_owned()));
        }
        let watcher = Watcher::start(globals, self.every)?;
        let mut signals =
            EndingSignals::catch().map_err(|error| Failure::internal("cannot catch signals", error))?;
        let mut screen = Screen::open().map_err(unusable)?;
        let ended = watch(&watcher, &mut signals, &mut screen);
        // From here on, standard error is readable again.
        drop(screen);
        ended
    }
}

/// Draws until somebody quits, a signal comes, or there is nothing more to watch.
fn watch(watcher: &Watcher, signals: &mut EndingSignals, screen: &mut Screen) -> VerbResult {
    let mut model = Model::default();
    loop {
        if let Some(signal) = signals.pending().first() {
            return Err(Failure::Interrupted(*signal));
        }
        screen.draw(&model).map_err(unusable)?;
        if let Err(end) = watcher.news().try_for_each(|news| news.map(|news| model.take(news))) {
            return show_end(end, model, signals, screen);
        }
        for key in keys::meanings(&typed(signals, KEY_WAIT).map_err(unusable)?) {
            match model.press(key) {
                Step::Quit => return Ok(OK),
                Step::Order(order) => {
                    if !watcher.order(order) {
                        model.take(too_busy());
                    }
                }
                Step::Stay => {}
            }
        }
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_time_limit(text)?;
    match TOP_INTERVALS.contains(&interval) {
        true => Ok(interval),
        false => Err("write a time from 50ms to 30s".to_owned()),
    }
}

fn too_busy() -> News {
    News::Done("not done: the supervisor has not answered what was asked before".to_owned())
}

/// The last picture stays with the reason over it, until a key, a signal, or the time is up.
fn show_end(end: Failure, mut model: Model, signals: &mut EndingSignals, screen: &mut Screen) -> VerbResult {
    model.open = Open::End(end.message().unwrap_or_default());
    let until = Instant::now() + TOP_LAST_LOOK;
    let mut is_over = false;
    while !is_over && Instant::now() < until {
        screen.draw(&model).map_err(unusable)?;
        let is_left = !typed(signals, KEY_WAIT).map_err(unusable)?.is_empty();
        is_over = is_left || !signals.pending().is_empty();
    }
    Err(end)
}

/// A terminal that is gone ends this as its signal does, which a process that ignores it does not get.
fn unusable(error: io::Error) -> Failure {
    match is_gone() {
        true => Failure::Interrupted(SIGHUP),
        false => Failure::internal("cannot use the terminal", error),
    }
}
