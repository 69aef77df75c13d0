//! The answers to writes and sends that are over: whose turn it is, and that none is lost.
//!
//! Answers are given in the order in which they became due, whichever phase gives them.

use std::cell::RefMut;
use std::collections::VecDeque;
use std::rc::Rc;

use super::SourceError;
use super::base::Source;
use crate::callback::Site;
use crate::{Context, Phase};

pub(super) type Done = Box<dyn FnOnce(&mut Context, Result<(), SourceError>)>;

/// A write, a send or a shutdown whose answer is due.
pub(super) struct DueAnswer {
    number: u64,
    site: Site,
    done: Done,
    pub(super) result: Result<(), SourceError>,
}

#[derive(Default)]
pub(super) struct Answers {
    due: VecDeque<DueAnswer>,
    next_number: u64,
}

impl Answers {
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    /// An answer is due. Its number tells it from the others.
    pub(super) fn add(&mut self, site: Site, done: Done, result: Result<(), SourceError>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.due.push_back(DueAnswer { number, site, done, result });
        number
    }

    /// All that are due. Drop them only when no borrow is held.
    #[must_use]
    pub(super) fn take(&mut self) -> VecDeque<DueAnswer> {
        std::mem::take(&mut self.due)
    }

    pub(super) fn pop(&mut self) -> Option<DueAnswer> {
        self.due.pop_front()
    }

    /// The answer of this number, if it was not given before.
    fn pop_numbered(&mut self, number: u64) -> Option<DueAnswer> {
        self.due.pop_front_if(|first| first.number <= number)
    }
}

/// A source that answers writes or sends.
pub(super) trait Answering: Source {
    /// Borrowed for one operation only.
    fn answers(&self) -> RefMut<'_, Answers>;

    /// An answer was taken out, so there may be room for another write or send.
    fn on_answer_taken(&self);

    /// Lets the pending phase give this answer.
    fn put_off_answer(self: &Rc<Self>, site: Site, done: Done, result: Result<(), SourceError>) {
        let number = self.answers().add(site, done, result);
        self.put_off(number, site);
    }

    /// Lets the pending phase give all answers that are due.
    fn put_off_answers(self: &Rc<Self>) {
        let due: Vec<_> = self.answers().due.iter().map(|answer| (answer.number, answer.site)).collect();
        due.into_iter().for_each(|(number, site)| self.put_off(number, site));
    }

    fn put_off(self: &Rc<Self>, number: u64, site: Site) {
        let source = Rc::clone(self);
        self.base().event_loop().set_pending_at(site, move |context| {
            let answer = source.answers().pop_numbered(number);
            if let Some(DueAnswer { done, result, .. }) = answer {
                source.on_answer_taken();
                done(context, result);
            }
        });
    }

    /// Gives the answers that are due now. Those that become due meanwhile have the pending phase.
    fn give_answers(self: &Rc<Self>, context: &mut Context) {
        let unanswered = Unanswered(self);
        let count = self.answers().len();
        for _ in 0..count {
            let answer = self.answers().pop();
            let Some(DueAnswer { site, done, result, .. }) = answer else { break };
            self.on_answer_taken();
            context.call(Phase::Poll, site, |context| done(context, result));
        }
        drop(unanswered);
    }

    /// Lets the closing phase give these answers.
    fn answer_in_closing(&self, answers: VecDeque<DueAnswer>) {
        for DueAnswer { site, done, result, .. } in answers {
            self.base().run_in_closing(site, move |context| done(context, result));
        }
    }
}

/// Sees to it that a panic that leaves the loop between two answers loses none of the others.
struct Unanswered<'a, S: Answering>(&'a Rc<S>);

impl<S: Answering> Drop for Unanswered<'_, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.put_off_answers();
        }
    }
}
