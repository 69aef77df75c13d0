//! Whom the jobs of a request are charged to: the name that it states, or the address that it comes from. Most requests come from
//! whoever sent the one before, so that one is remembered.

use super::Inner;
use crate::api::needs_no_token;
use crate::problem::Problem;
use crate::request::{Remote, one, quoted};
use http::header::{AUTHORIZATION, HeaderName};
use http::request::Parts;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::service::{Asker, Peer, Service, is_client_name};
use std::cell::{OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

static OFFLOAD_CLIENT: HeaderName = HeaderName::from_static("offload-client");

/// Who asked last, and what it was recognized by.
#[derive(Default)]
pub(super) struct LastAsker {
    last: RefCell<Option<(Sign, Rc<Asker>)>>,
    /// All processes that cannot be seen from here, such as those of a container at a Unix socket, by what they have shown.
    unseen: [OnceCell<Rc<Asker>>; 3],
}

/// By what a client is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sign {
    address: IpAddr,
    shown: Shown,
}

/// What a client has shown beside its address or its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// No token, for a route or a path that needs none. So it shares neither limits nor keys with those that have, and what it calls itself
    /// is not looked at.
    Nothing,
    /// A token.
    Token,
    /// Only where it is: this server has no tokens, or it is a process of the same user at a Unix socket, which needs none. A check of a
    /// program may ask for something else, of which nothing is known here.
    OnlyPlace,
}

impl Inner {
    /// Whom the jobs of this request are charged to. A client that has shown no token has no name.
    ///
    /// # Errors
    /// What the client is told: what it calls itself is no name.
    pub(super) fn asker(
        &self,
        head: &Parts,
        (remote, client): (Remote, Option<IpAddr>),
    ) -> Result<Rc<Asker>, Problem> {
        let bad = |detail: String| Problem::new(OutcomeCode::BadRequest, detail);
        let shown = self.shown(head, remote);
        let name = match shown {
            Shown::Nothing => None,
            Shown::Token | Shown::OnlyPlace => one(&head.headers, &OFFLOAD_CLIENT).map_err(bad)?,
        };
        let asker = |name: &str| Rc::new(self.service.asker(remote.process(), name));
        let is_name = |name: &str| is_client_name(name) && !Peer::may_be_called(name);
        match (name.filter(|name| !name.is_empty()), client) {
            (Some(name), _) if is_name(name) => Ok(asker(name)),
            (Some(name), _) => Err(bad(format!("Offload-Client is no name of a client: {}", quoted(name)))),
            (None, Some(address)) => Ok(self.last_asker.of(Sign { address, shown }, &self.service)),
            (None, None) => {
                let asker = || Rc::new(asker_of(&self.service, shown, remote.process(), None));
                match remote.process() {
                    Some(_) => Ok(asker()),
                    // Each connection, and each request, would be a client of its own.
                    None => Ok(Rc::clone(self.last_asker.unseen[shown as usize].get_or_init(asker))),
                }
            }
        }
    }

    /// Whoever has to show a token has shown one, or would not be here. Others may, over whatever socket they come.
    fn shown(&self, head: &Parts, remote: Remote) -> Shown {
        let shows_token = || {
            let authorization = one(&head.headers, &AUTHORIZATION).ok().flatten();
            authorization.is_some_and(|value| self.holders.token(value.as_bytes()).is_some())
        };
        match remote {
            _ if needs_no_token(head) => Shown::Nothing,
            Remote::Process(_) if shows_token() => Shown::Token,
            Remote::Address(_) | Remote::Stranger(_) if self.holders.has_tokens() => Shown::Token,
            _ => Shown::OnlyPlace,
        }
    }
}

impl LastAsker {
    fn of(&self, sign: Sign, service: &Service) -> Rc<Asker> {
        let mut last = self.last.borrow_mut();
        if let Some((_, asker)) = last.as_ref().filter(|(known, _)| *known == sign) {
            return Rc::clone(asker);
        }
        let Sign { address, shown } = sign;
        let asker = Rc::new(asker_of(service, shown, None, Some(address)));
        *last = Some((sign, Rc::clone(&asker)));
        asker
    }
}

fn asker_of(service: &Service, shown: Shown, process: Option<u32>, address: Option<IpAddr>) -> Asker {
    match shown {
        Shown::Nothing => service.anonymous(process, address),
        Shown::Token => service.asker_with_token(process, address),
        Shown::OnlyPlace => {
            service.asker(process, &address.map_or(String::new(), |address| address.to_string()))
        }
    }
}
