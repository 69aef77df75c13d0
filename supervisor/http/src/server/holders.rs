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
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::{Rc, Weak};

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Holders {
    tokens: RefCell<Option<SharedTokens>>,
    /// Those that wait or stream, and some of those that are gone.
    holds: RefCell<Vec<Weak<Hold>>>,
    watching: RefCell<Option<JoinHandle<()>>>,
}

/// It is given up when its token is no longer valid.
#[derive(Debug)]
pub(crate) struct Hold {
    token: TokenNumber,
    pub(crate) ended: GivenUp,
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
    pub(super) fn hold(&self, token: TokenNumber) -> Rc<Hold> {
        let hold = Rc::new(Hold { token, ended: GivenUp::default() });
        // It may have been exchanged since it was looked at.
        if self.is_valid(token) {
            let mut holds = self.holds.borrow_mut();
            if holds.len() == holds.capacity() {
                holds.retain(|hold| hold.strong_count() > 0);
            }
            holds.push(Rc::downgrade(&hold));
        } else {
            hold.ended.give_up();
        }
        hold
    }

    fn is_valid(&self, token: TokenNumber) -> bool {
        self.tokens.borrow().as_ref().is_some_and(|tokens| tokens.is_valid(token))
    }

    fn end_invalid(&self) {
        let holds = self.holds.take();
        let (stay, end): (Vec<_>, Vec<_>) =
            holds.into_iter().filter_map(|hold| hold.upgrade()).partition(|hold| self.is_valid(hold.token));
        self.holds.borrow_mut().extend(stay.iter().map(Rc::downgrade));
        end.iter().for_each(|hold| hold.ended.give_up());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Tokens;

    #[test]
    fn what_is_gone_does_not_stay_and_what_is_held_by_an_old_token_ends() {
        let tokens = SharedTokens::new(Tokens::parse("first-token-0123\nsecond-token-012").unwrap());
        let holders = Holders { tokens: RefCell::new(Some(tokens.clone())), ..Holders::default() };
        let number = |token: &str| holders.token(format!("Bearer {token}").as_bytes());
        let (first, second) = (number("first-token-0123").unwrap(), number("second-token-012").unwrap());
        assert!(first != second && number("third-token-0123").is_none());
        for _ in 0..1000 {
            drop(holders.hold(first));
        }
        assert!(holders.holds.borrow().capacity() <= 8, "{}", holders.holds.borrow().capacity());
        let (ends, stays) = (holders.hold(first), holders.hold(second));
        tokens.replace(Tokens::parse("third-token-0123\nsecond-token-012").unwrap());
        holders.end_invalid();
        assert!(ends.ended.is_it() && !stays.ended.is_it());
        assert_eq!(number("second-token-012"), Some(second), "it is still the same");
        assert!(holders.hold(first).ended.is_it(), "it was looked at before");
        tokens.replace(Tokens::parse("first-token-0123").unwrap());
        assert!(
            number("first-token-0123").is_some_and(|again| again != first),
            "what was ended does not come back"
        );
    }
}
