//! The tokens of a server, and their exchange while it runs.
//!
//! ```text
//!   Tokens (of a file) --> SharedTokens: each has a number ---- replace ----> those that stay keep it; whoever waits for that is woken
//! ```

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::task::{Context, Poll, Waker};
use subtle::{Choice, ConstantTimeEq};

/// The tokens of which a client has to show one. Two are valid at a time, so that a token can be exchanged without a gap.
#[derive(Clone)]
pub struct Tokens(Vec<String>);

impl Tokens {
    /// Length of a token in bytes, at least: one that can be guessed protects nothing.
    pub const LENGTH_MIN: usize = 16;

    /// The tokens of a file: one on each line, at most two. Empty lines do not count.
    ///
    /// # Errors
    /// A sentence: there is none, there are more than two, or one is too short or has characters that no header can carry.
    pub fn parse(text: &str) -> Result<Tokens, String> {
        let tokens: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        if tokens.is_empty() || tokens.len() > 2 {
            return Err(format!(
                "a token file has one or two lines with a token; this one has {}",
                tokens.len()
            ));
        }
        let is_usable = |token: &String| {
            token.len() >= Tokens::LENGTH_MIN && token.bytes().all(|byte| byte.is_ascii_graphic())
        };
        match tokens.iter().all(is_usable) {
            true => Ok(Tokens(tokens)),
            false => Err(format!("a token has at least {} visible ASCII characters", Tokens::LENGTH_MIN)),
        }
    }

    /// The time that this takes depends on the lengths only.
    fn has(&self, shown: &[u8]) -> bool {
        let found = self.0.iter().fold(Choice::from(0), |found, token| found | token.as_bytes().ct_eq(shown));
        found.into()
    }
}

/// Which of the tokens that there were. One that goes and comes back has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenNumber(u64);

/// Tokens that can be exchanged while the server runs, from any thread.
#[derive(Clone, Debug)]
pub struct SharedTokens(Arc<RwLock<Exchanged>>);

#[derive(Debug)]
struct Exchanged {
    tokens: Tokens,
    /// Of the tokens, in their order.
    numbers: Vec<TokenNumber>,
    last: u64,
    exchanges: u64,
    /// Woken at the next exchange.
    waiting: Vec<Waker>,
}

impl Exchanged {
    /// Those that stay keep their numbers.
    fn set(&mut self, tokens: Tokens) {
        let known = std::mem::take(&mut self.numbers);
        let number_of = |token: &String| {
            let index = self.tokens.0.iter().position(|known| known == token);
            index.and_then(|index| known.get(index).copied())
        };
        let numbers: Vec<_> = tokens.0.iter().map(number_of).collect();
        for number in numbers {
            self.last += 1;
            self.numbers.push(number.unwrap_or(TokenNumber(self.last)));
        }
        self.tokens = tokens;
    }
}

impl SharedTokens {
    /// These tokens, until there are others.
    pub fn new(tokens: Tokens) -> SharedTokens {
        let (none, numbers, waiting) = (Tokens(Vec::new()), Vec::new(), Vec::new());
        let mut exchanged = Exchanged { tokens: none, numbers, last: 0, exchanges: 0, waiting };
        exchanged.set(tokens);
        SharedTokens(Arc::new(RwLock::new(exchanged)))
    }

    /// From now on these are the tokens. Requests to a server that has them ([`Server::check_access`](crate::Server::check_access),
    /// [`Server::mount_api`](crate::Server::mount_api)) that wait or stream by a token that is not among them end.
    pub fn replace(&self, tokens: Tokens) {
        let waiting = {
            let mut exchanged = self.0.write().unwrap_or_else(PoisonError::into_inner);
            exchanged.set(tokens);
            exchanged.exchanges += 1;
            std::mem::take(&mut exchanged.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn read(&self) -> RwLockReadGuard<'_, Exchanged> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, shown: &[u8]) -> bool {
        self.read().tokens.has(shown)
    }

    /// Which token this value of `Authorization` shows.
    pub(crate) fn number(&self, value: &[u8]) -> Option<TokenNumber> {
        let (shown, exchanged) = (bearer(value)?, self.read());
        let is_it = |token: &String| bool::from(token.as_bytes().ct_eq(shown));
        let index = exchanged.tokens.0.iter().position(is_it)?;
        exchanged.numbers.get(index).copied()
    }

    pub(crate) fn is_valid(&self, token: TokenNumber) -> bool {
        self.read().numbers.contains(&token)
    }

    /// How often they were exchanged.
    pub(crate) fn exchanges(&self) -> u64 {
        self.read().exchanges
    }

    /// Ready when they were exchanged since `known`.
    pub(crate) fn poll_exchange(&self, known: &mut u64, context: &Context<'_>) -> Poll<()> {
        let mut exchanged = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if exchanged.exchanges != *known {
            *known = exchanged.exchanges;
            return Poll::Ready(());
        }
        exchanged.waiting.retain(|waiting| !waiting.will_wake(context.waker()));
        exchanged.waiting.push(context.waker().clone());
        Poll::Pending
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Tokens({} of them)", self.0.len())
    }
}

/// The token in a value of `Authorization`.
pub(super) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_counts_to_its_last_byte_whatever_its_length() {
        for length in Tokens::LENGTH_MIN..=33 {
            let token: Vec<u8> = (0..length).map(|index| b'a' + (index % 26) as u8).collect();
            let tokens = Tokens::parse(std::str::from_utf8(&token).unwrap()).unwrap();
            assert!(tokens.has(&token), "{length}");
            for index in 0..length {
                let mut other = token.clone();
                other[index] ^= 1;
                assert!(!tokens.has(&other), "{length}: {index}");
            }
            assert!(!tokens.has(&token[1..]) && !tokens.has(&token[..length - 1]), "{length}");
            assert!(!tokens.has(&[&token[..], b"a"].concat()), "{length}");
        }
    }

    #[test]
    fn a_token_file_has_one_or_two_tokens_that_cannot_be_guessed() {
        for text in
            ["", "\n", "short", "with a space in it", "0123456789abcdef\n0123456789abcdef\n0123456789abcdef"]
        {
            assert!(Tokens::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(format!("{:?}", Tokens::parse("0123456789abcdef").unwrap()), "Tokens(1 of them)");
    }
}
