//! Requests that are under way because their client has shown a token. When the tokens are exchanged, those whose token is not among the
//! new ones end: somebody may have learned it.
//!
//! ```text
//!   checks passed, with this token ---- the answer is there ---------------------> nothing is left to end, unless it is a stream
//!                                  '--- waits, or streams: a Hold ---- the token goes ---> 401, or the stream is broken off
//! ```

use crate::api::{SharedTokens, TokenNumber};
use crate::patience::GivenUp;
use offload_event_loop::{JoinHandle, LoopHandle};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Context;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Holders {
    tokens: RefCell<Option<SharedTokens>>,
    /// Those that wait or stream, and of those that are gone no more than that and a few.
    holds: RefCell<Vec<Weak<Hold>>>,
    /// So many wait or stream.
    living: Cell<usize>,
    watching: RefCell<Option<JoinHandle<()>>>,
}

/// So many that are gone may stay, however few are left.
const GONE_MAX: usize = 16;

/// It is given up when its token is no longer valid.
#[derive(Debug)]
pub(crate) struct Hold {
    token: TokenNumber,
    ended: GivenUp,
    /// Over HTTP/2, of the stream that it is sent over: while a client makes no room, nobody asks for more of what is sent.
    stream: RefCell<Option<Rc<GivenUp>>>,
    holders: Weak<Holders>,
}

impl Hold {
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_it()
    }

    /// The task is woken when it is over.
    pub(crate) fn wait(&self, context: &Context<'_>) {
        self.ended.wait(context);
    }

    /// It is sent over this stream, which ends with it.
    pub(crate) fn ends_stream(&self, stream: &Rc<GivenUp>) {
        self.stream.replace(Some(Rc::clone(stream)));
    }

    fn end(&self) {
        self.ended.give_up();
        let stream = self.stream.take();
        stream.into_iter().for_each(|stream| stream.give_up());
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(holders) = self.holders.upgrade() {
            holders.living.set(holders.living.get() - 1);
            holders.forget_gone();
        }
    }
}

impl Holders {
    /// From now on these are the tokens, whatever they are exchanged for.
    pub(super) fn watch(self: &Rc<Holders>, tokens: &SharedTokens, handle: &LoopHandle) {
        self.tokens.replace(Some(tokens.clone()));
        let (me, tokens) = (Rc::downgrade(self), tokens.clone());
        let mut known = tokens.exchanges();
        let watching = handle.spawn(async move {
            loop {
                poll_fn(|context| tokens.poll_exchange(&mut known, context)).await;
                let Some(me) = me.upgrade() else { return };
                me.end_invalid();
            }
        });
        self.watching.replace(Some(watching.cancel_on_drop()));
    }

    /// The token that is shown by this value of `Authorization`, if it is one.
    pub(super) fn token(&self, shown: &[u8]) -> Option<TokenNumber> {
        self.tokens.borrow().as_ref()?.number(shown)
    }

    /// Whether a client has to show a token, over TCP.
    pub(super) fn has_tokens(&self) -> bool {
        self.tokens.borrow().is_some()
    }

    /// A request that is to end with this token.
    pub(super) fn hold(self: &Rc<Holders>, token: TokenNumber) -> Rc<Hold> {
        let (ended, stream, holders) = (GivenUp::default(), RefCell::default(), Rc::downgrade(self));
        let hold = Rc::new(Hold { token, ended, stream, holders });
        self.living.set(self.living.get() + 1);
        // It may have been exchanged since it was looked at.
        if self.is_valid(token) {
            self.holds.borrow_mut().push(Rc::downgrade(&hold));
        } else {
            hold.end();
        }
        hold
    }

    /// Looks at all only when at least half of them are gone, so each one is looked at a few times in all. What a peak has taken is given back.
    /// Returns how many were looked at.
    fn forget_gone(&self) -> usize {
        let mut holds = self.holds.borrow_mut();
        let looked_at = holds.len();
        if looked_at <= 2 * self.living.get() + GONE_MAX {
            return 0;
        }
        holds.retain(|hold| hold.strong_count() > 0);
        let most = 2 * holds.len() + GONE_MAX;
        holds.shrink_to(most);
        looked_at
    }

    fn is_valid(&self, token: TokenNumber) -> bool {
        self.tokens.borrow().as_ref().is_some_and(|tokens| tokens.is_valid(token))
    }

    fn end_invalid(&self) {
        let holds = self.holds.take();
        let (stay, end): (Vec<_>, Vec<_>) =
            holds.into_iter().filter_map(|hold| hold.upgrade()).partition(|hold| self.is_valid(hold.token));
        self.holds.borrow_mut().extend(stay.iter().map(Rc::downgrade));
        end.iter().for_each(|hold| hold.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Tokens;

    fn holders(tokens: &SharedTokens) -> Rc<Holders> {
        Rc::new(Holders { tokens: RefCell::new(Some(tokens.clone())), ..Holders::default() })
    }

    #[test]
    fn what_is_held_by_an_old_token_ends_and_its_stream_with_it() {
        let tokens = SharedTokens::new(Tokens::parse("first-token-0123\nsecond-token-012").unwrap());
        let holders = holders(&tokens);
        let number = |token: &str| holders.token(format!("Bearer {token}").as_bytes());
        let (first, second) = (number("first-token-0123").unwrap(), number("second-token-012").unwrap());
        assert!(first != second && number("third-token-0123").is_none());
        let (ends, stays) = (holders.hold(first), holders.hold(second));
        let streams = [&ends, &stays].map(|hold| {
            let stream = Rc::<GivenUp>::default();
            hold.ends_stream(&stream);
            stream
        });
        tokens.replace(Tokens::parse("third-token-0123\nsecond-token-012").unwrap());
        holders.end_invalid();
        assert!(ends.is_over() && !stays.is_over());
        assert_eq!(streams.map(|stream| stream.is_it()), [true, false]);
        assert_eq!(number("second-token-012"), Some(second), "it is still the same");
        assert!(holders.hold(first).is_over(), "it was looked at before");
        tokens.replace(Tokens::parse("first-token-0123").unwrap());
        assert!(
            number("first-token-0123").is_some_and(|again| again != first),
            "what was ended does not come back"
        );
    }

    #[test]
    fn what_is_gone_does_not_stay_and_what_waits_is_not_looked_at_for_each_that_goes() {
        let tokens = SharedTokens::new(Tokens::parse("first-token-0123").unwrap());
        let holders = holders(&tokens);
        let token = holders.token(b"Bearer first-token-0123").unwrap();
        let waiting: Vec<_> = (0..1000).map(|_| holders.hold(token)).collect();
        for _ in 0..10_000 {
            drop(holders.hold(token));
            let kept = holders.holds.borrow().len();
            assert!((1000..=2000 + GONE_MAX + 1).contains(&kept), "{kept}");
        }
        let before = holders.holds.borrow().len();
        assert_eq!((holders.forget_gone(), holders.holds.borrow().len()), (0, before), "too few are gone");
        drop(waiting);
        let holds = holders.holds.borrow();
        assert!(holds.len() <= GONE_MAX && holds.capacity() <= 4 * GONE_MAX, "{}", holds.capacity());
        assert_eq!(holders.living.get(), 0);
    }
}
