//! Who may ask. A page in a browser can send requests to any address of this machine, and any user of this machine can connect to
//! one. So over TCP a request has to show that it knows the token, that it was meant for this server (`Host`), and that no foreign
//! page has caused it (`Origin`, `Sec-Fetch-Site`).
//!
//! ```text
//!   Host is ours? --no--> 403     Origin absent, ours, or on the list? --no--> 403     the token? --no--> 401
//! ```

use super::routes::NeedsNoToken;
use super::tokens::{SharedTokens, bearer};
use crate::cors::{Cors, Preflight};
use crate::problem::Problem;
use crate::request::{Remote, quoted, several, visible};
use crate::router::canonical;
use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use http::request::Parts;
use offload_protocol::nouns::OutcomeCode;
use std::net::IpAddr;

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Paths that need no token: they tell a load balancer what it could find out by connecting.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// The rules of one server. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Over TCP a client has to show one of these. Without them nobody has to.
    pub tokens: Option<SharedTokens>,
    /// Names of this server beside those of the loopback interface, as they stand in `Host`, without a port.
    pub hosts: Vec<String>,
    /// Pages that may call it and read its answers.
    pub cors: Cors,
}

fn forbidden(detail: String) -> Problem {
    Problem::new(OutcomeCode::Forbidden, detail)
}

fn bad(detail: String) -> Problem {
    Problem::new(OutcomeCode::BadRequest, detail)
}

/// The fields that decide who may ask. They are found in one walk over the head, because every request is asked for all of
/// them.
#[derive(Default)]
struct AccessFields<'a> {
    host: Field<'a>,
    origin: Field<'a>,
    site: Field<'a>,
    token: Field<'a>,
}

/// A field that may come once. Of two of them nobody knows which counts for whoever is in front of this server.
#[derive(Clone, Copy, Default)]
enum Field<'a> {
    #[default]
    Absent,
    Once(&'a HeaderValue),
    Repeated,
}

impl<'a> AccessFields<'a> {
    fn of(headers: &'a HeaderMap) -> AccessFields<'a> {
        let mut fields = AccessFields::default();
        for (name, value) in headers {
            let field = match name {
                name if name == HOST => &mut fields.host,
                name if name == AUTHORIZATION => &mut fields.token,
                name if name == ORIGIN => &mut fields.origin,
                name if name == SEC_FETCH_SITE => &mut fields.site,
                _ => continue,
            };
            *field = if let Field::Absent = field { Field::Once(value) } else { Field::Repeated };
        }
        fields
    }
}

impl<'a> Field<'a> {
    /// # Errors
    /// What the client is told: it came twice, or is no visible ASCII.
    fn text(self, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
        match self {
            Field::Absent => Ok(None),
            Field::Once(value) => visible(name.as_str(), value).map(Some).map_err(bad),
            Field::Repeated => Err(bad(several(name.as_str()))),
        }
    }
}

impl Access {
    /// Whether this request may be answered. A process of the same user on a Unix socket always may ask; one of another user has to
    /// show a token. Over TCP a request has to name this server, come from no page of another site that is not in `cors`, and show a
    /// token; `/healthz`, `/readyz` and routes with [`RouteAuth::None`](crate::RouteAuth::None) need none.
    ///
    /// # Errors
    /// What its client is told: status 400, 401 or 403.
    pub fn check(&self, head: &Parts, remote: Remote) -> Result<(), Problem> {
        if let Remote::Process(_) = remote {
            return Ok(());
        }
        let fields = AccessFields::of(&head.headers);
        // No page reaches a Unix socket.
        if let Remote::Address(_) = remote {
            let host = self.check_host(head, &fields)?;
            self.check_origin(head, &fields, host)?;
        }
        if needs_no_token(head) {
            return Ok(());
        }
        self.check_token(fields.token)
    }

    /// Returns the host with its port.
    fn check_host<'a>(&self, head: &'a Parts, fields: &AccessFields<'a>) -> Result<&'a str, Problem> {
        let authority = head.uri.authority().map(|authority| authority.as_str());
        let named = fields.host.text(&HOST)?;
        if authority.is_some() && named.is_some() && authority != named {
            return Err(bad("the request names two hosts".to_owned()));
        }
        let host = authority.or(named).unwrap_or("");
        let name = name_of(host);
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_ours = name.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.is_loopback())
            || self.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(name));
        match is_ours {
            true => Ok(host),
            false => Err(forbidden(format!(
                "this server is not called {}: if it is, add it with --http-host, or in a program with `Access::hosts`",
                quoted(name)
            ))),
        }
    }

    fn check_origin(&self, head: &Parts, fields: &AccessFields<'_>, host: &str) -> Result<(), Problem> {
        if let Some(origin) = fields.origin.text(&ORIGIN)? {
            let is_own =
                ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host));
            if !is_own && !self.cors.allows(origin, head) {
                return Err(forbidden("pages of this origin may not call this server".to_owned()));
            }
            if !is_own {
                return Ok(());
            }
        }
        let is_anybodys = self.cors.has_any() && head.extensions.get::<NeedsNoToken>().is_some();
        match fields.site.text(&SEC_FETCH_SITE)? {
            None | Some("none" | "same-origin") => Ok(()),
            Some(_) if is_anybodys => Ok(()),
            Some(_) => Err(forbidden("a page of another site has caused this request".to_owned())),
        }
    }

    fn check_token(&self, field: Field<'_>) -> Result<(), Problem> {
        let Some(tokens) = &self.tokens else { return Ok(()) };
        let token = if let Field::Once(value) = field { bearer(value.as_bytes()) } else { None };
        match token.is_some_and(|token| tokens.has(token)) {
            true => Ok(()),
            false => Err(Problem::new(
                OutcomeCode::Unauthenticated,
                "show the token of this server: `Authorization: Bearer TOKEN`",
            )),
        }
    }
}

/// Whether it is answered to everybody, so that the answer says nothing about who the client is.
pub(crate) fn needs_no_token(head: &Parts) -> bool {
    // A browser asks what a page may do before it sends what the page has.
    let is_preflight = head.extensions.get::<Preflight>().is_some();
    is_preflight
        || OPEN_PATHS.contains(&&*canonical(head.uri.path()))
        || head.extensions.get::<NeedsNoToken>().is_some()
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokens::Tokens;
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn check(access: &Access, fields: &[(&str, &str)]) -> Result<(), Problem> {
        let mut request = http::Request::post("/v1/tasks/echo");
        for (name, value) in fields {
            request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let remote = Remote::Address("127.0.0.1:40000".parse().unwrap());
        access.check(&head, remote)
    }

    fn status(access: &Access, fields: &[(&str, &str)]) -> u16 {
        check(access, fields).map_or_else(|problem| problem.status, |()| 200)
    }

    fn access() -> Access {
        Access { tokens: Some(SharedTokens::new(Tokens::parse(TOKEN).unwrap())), ..Access::default() }
    }

    const BEARER: (&str, &str) = ("authorization", "Bearer 0123456789abcdef");

    #[test]
    fn only_the_names_of_this_server_are_answered_whatever_else_is_shown() {
        for host in [
            "localhost",
            "localhost:8080",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:8080",
            "[::1]",
            "LocalHost:1",
        ] {
            assert_eq!(status(&access(), &[("host", host), BEARER]), 200, "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "localhost:80:80",
            "localhost.",
            "localhost6",
            "0.0.0.0",
        ] {
            assert_eq!(status(&access(), &[("host", host), BEARER]), 403, "{host}");
        }
        let detail = check(&access(), &[("host", "evil.example"), BEARER]).unwrap_err().detail;
        assert!(detail.contains("--http-host") && detail.contains("`Access::hosts`"), "{detail}");
        let named = Access { hosts: vec!["jobs.example".to_owned()], ..access() };
        assert_eq!(status(&named, &[("host", "jobs.example:443"), BEARER]), 200);
    }

    #[test]
    fn no_foreign_page_is_answered() {
        let with =
            |name: &str, value: &str| status(&access(), &[("host", "localhost:8080"), BEARER, (name, value)]);
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost"),
            ("origin", "http://localhost:8081"),
            ("origin", "http://localhost:8080.evil.example"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(with(name, value), 403, "{name}: {value}");
        }
        for (name, value) in [
            ("origin", "http://localhost:8080"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
            assert_eq!(with(name, value), 200, "{name}: {value}");
        }
        let listed = Access { cors: Cors::new(vec!["https://app.example".to_owned()]), ..access() };
        let page = [
            ("host", "localhost"),
            BEARER,
            ("origin", "https://app.example"),
            ("sec-fetch-site", "cross-site"),
        ];
        assert_eq!(status(&listed, &page), 200);
    }

    #[test]
    fn a_field_on_which_access_depends_comes_once() {
        let host = ("host", "localhost:8080");
        let own = ("origin", "http://localhost:8080");
        let same = ("sec-fetch-site", "same-origin");
        assert_eq!(status(&access(), &[host, BEARER, own, same]), 200);
        for twice in [host, own, ("origin", "http://evil.example")] {
            assert_eq!(status(&access(), &[host, BEARER, own, twice]), 400, "{twice:?}");
        }
        for twice in [same, ("sec-fetch-site", "cross-site")] {
            assert_eq!(status(&access(), &[host, BEARER, same, twice]), 400, "{twice:?}");
        }
    }

    #[test]
    fn a_field_that_comes_three_times_or_is_no_ascii_counts_as_little() {
        let host = ("host", "localhost:8080");
        let own = ("origin", "http://localhost:8080");
        let same = ("sec-fetch-site", "same-origin");
        for (field, refused) in [(host, 400), (own, 400), (same, 400), (BEARER, 401)] {
            let others = [host, BEARER].into_iter().filter(|(name, _)| *name != field.0);
            let with = |fields: &[(&'static str, &'static str)]| {
                let all: Vec<_> = others.clone().chain(fields.iter().copied()).collect();
                status(&access(), &all)
            };
            assert_eq!(with(&[field]), 200, "{field:?}");
            assert_eq!(with(&[field; 3]), refused, "{field:?} three times");
            assert_eq!(with(&[(field.0, "http://localh\u{f6}st:8080")]), refused, "{}", field.0);
        }
    }

    #[test]
    fn the_token_is_asked_for() {
        let host = ("host", "localhost");
        for shown in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdeF",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
            "Bearer  0123456789abcdef",
        ] {
            assert_eq!(status(&access(), &[host, ("authorization", shown)]), 401, "{shown:?}");
        }
        assert_eq!(status(&access(), &[host]), 401);
        assert_eq!(status(&access(), &[host, BEARER, BEARER]), 401, "two of them");
        assert_eq!(status(&access(), &[host, ("authorization", "bearer 0123456789abcdef")]), 200);
        let two = access();
        let tokens = two.tokens.clone().unwrap();
        tokens.replace(Tokens::parse("fedcba9876543210\n\n0123456789abcdef\n").unwrap());
        assert_eq!(status(&two, &[host, BEARER]), 200);
        tokens.replace(Tokens::parse("fedcba9876543210").unwrap());
        assert_eq!(status(&two, &[host, BEARER]), 401, "its time is over");
    }
}
