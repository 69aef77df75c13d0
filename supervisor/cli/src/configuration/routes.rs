//! Routes over HTTP: a `[[route]]` of the file, or one line of words.
//!
//! ```text
//!   [[route]]                               POST /images/{album} thumbnail accepts=image/png,image/jpeg timeout=10s
//!   method = "POST"                             '---- the same, as a flag or variable, and in `config show`
//!   path = "/images/{album}" ...
//! ```

use super::words::{join_words, split_words};
use offload_http::http::HeaderValue;
use offload_http::http::header::HeaderName;
use offload_http::{Method, Route, RouteAuth, RouteMode};
use offload_supervisor::units::{parse_duration, parse_size, show_duration, show_size};
use std::collections::BTreeSet;

/// What can be said of a route. The first three must be.
pub(super) const FIELDS: [&str; 12] = [
    "method",
    "path",
    "task",
    "query",
    "timeout",
    "max_body",
    "auth",
    "accepts",
    "mode",
    "priority",
    "cancel_on_disconnect",
    "headers",
];

/// How many of them must be said.
const NEEDED: usize = 3;

/// Stands between two routes in one text.
const SEPARATOR: &str = ";";

/// A route that is being read.
pub(super) struct Draft {
    route: Route,
    said: BTreeSet<&'static str>,
}

impl Draft {
    pub(super) fn new() -> Draft {
        Draft { route: Route::new(Method::POST, "", ""), said: BTreeSet::new() }
    }

    /// Sets one of the [`FIELDS`]. `query`, `accepts` and `headers` may be set several times, the others once.
    ///
    /// # Errors
    /// A sentence for the person who wrote it.
    pub(super) fn set(&mut self, field: &str, text: &str) -> Result<(), String> {
        let Some(field) = FIELDS.into_iter().find(|known| *known == field) else {
            return Err(format!("{field:?} is none of {}", FIELDS.join(", ")));
        };
        if !self.said.insert(field) && !matches!(field, "query" | "accepts" | "headers") {
            return Err(format!("{field} is said twice"));
        }
        let route = &mut self.route;
        match field {
            "method" => {
                let method = Method::from_bytes(text.as_bytes());
                route.method = method.map_err(|_| format!("{text:?} is no method: write it as in POST"))?;
            }
            "path" => text.clone_into(&mut route.path),
            "task" => text.clone_into(&mut route.task),
            "query" => route.query.extend(text.split(',').map(|name| name.trim().to_owned())),
            "timeout" => route.timeout = Some(parse_duration(text)?),
            "max_body" => route.max_body = Some(parse_size(text)?),
            "auth" => route.auth = one_of(text, &AUTHS)?,
            "accepts" => {
                for text in text.split(',') {
                    route
                        .accepts
                        .push(text.trim().parse().map_err(|_| format!("{text:?} is no media type"))?);
                }
            }
            "mode" => route.mode = one_of(text, &MODES)?,
            "priority" => {
                let priority =
                    text.parse().map_err(|_| format!("{text:?} is not a number from -10 to 10"))?;
                route.priority = Some(priority);
            }
            "cancel_on_disconnect" => {
                route.cancel_on_disconnect = Some(one_of(text, &[("true", true), ("false", false)])?);
            }
            _ => route.headers.push(parse_header(text)?),
        }
        Ok(())
    }

    /// The route, if all that it needs was said.
    ///
    /// # Errors
    /// A sentence for the person who wrote it.
    pub(super) fn finish(self) -> Result<Route, String> {
        match FIELDS[..NEEDED].iter().find(|field| !self.said.contains(*field)) {
            Some(field) => Err(format!("{field} is missing: a route has a method, a path and a task")),
            None => Ok(self.route),
        }
    }
}

const AUTHS: [(&str, RouteAuth); 2] = [("token", RouteAuth::Token), ("none", RouteAuth::None)];
const MODES: [(&str, RouteMode); 2] = [("sync", RouteMode::Sync), ("async", RouteMode::Async)];

fn one_of<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(word, _)| *word == text);
    let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
    found.map(|(_, value)| *value).ok_or_else(|| format!("{text:?} is neither {}", words.join(" nor ")))
}

fn word_of<T: PartialEq>(value: &T, known: &[(&'static str, T)]) -> &'static str {
    known.iter().find(|(_, other)| other == value).map_or("", |(word, _)| word)
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = text.split_once(':').and_then(|(name, value)| {
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value.trim()).ok()?))
    });
    parsed.ok_or_else(|| format!("{text:?} is no header field: write it as in Cache-Control: no-store"))
}

/// Reads routes of words, with `;` between them: `METHOD PATH TASK`, and then `FIELD=TEXT` as often as needed.
///
/// # Errors
/// A sentence for the person who wrote it.
pub(super) fn parse_routes(text: &str) -> Result<Vec<Route>, String> {
    split_words(text)?.split(|word| word == SEPARATOR).map(parse_route).collect()
}

fn parse_route(words: &[String]) -> Result<Route, String> {
    let mut draft = Draft::new();
    for (field, word) in FIELDS[..NEEDED].iter().zip(words) {
        draft.set(field, word)?;
    }
    for word in words.iter().skip(NEEDED) {
        let told = || format!("{word:?} is not FIELD=TEXT, as in timeout=10s");
        let (field, text) = word.split_once('=').ok_or_else(told)?;
        draft.set(field, text)?;
    }
    draft.finish()
}

/// Writes routes so that [`parse_routes`] reads them.
pub(super) fn show_routes(routes: &[Route]) -> String {
    let routes: Vec<String> = routes.iter().map(show_route).collect();
    routes.join(&format!(" {SEPARATOR} "))
}

fn show_route(route: &Route) -> String {
    let mut words = vec![route.method.to_string(), route.path.clone(), route.task.clone()];
    let mut say =
        |field: &str, text: Option<String>| words.extend(text.map(|text| format!("{field}={text}")));
    route.query.iter().for_each(|name| say("query", Some(name.clone())));
    say("timeout", route.timeout.map(show_duration));
    say("max_body", route.max_body.map(show_size));
    say("auth", (route.auth != RouteAuth::default()).then(|| word_of(&route.auth, &AUTHS).to_owned()));
    route.accepts.iter().for_each(|media_type| say("accepts", Some(media_type.to_string())));
    say("mode", (route.mode != RouteMode::default()).then(|| word_of(&route.mode, &MODES).to_owned()));
    say("priority", route.priority.map(|priority| priority.to_string()));
    say("cancel_on_disconnect", route.cancel_on_disconnect.map(|is| is.to_string()));
    for (name, value) in &route.headers {
        // Other letters than those of ASCII are allowed.
        say("headers", Some(format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))));
    }
    join_words(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read_again() {
        let text = "POST /images/{album} thumbnail query=width,height query=fit timeout=10s max_body=1MiB auth=none accepts=image/png \
                    accepts=image/jpeg mode=async priority=-3 cancel_on_disconnect=false 'headers=cache-control: no-store' \
                    'headers=x: café' ; GET / echo";
        let routes = parse_routes(text).unwrap();
        assert_eq!(routes.len(), 2);
        assert_eq!(parse_routes(&show_routes(&routes)).unwrap(), routes);
        assert_eq!(show_routes(&routes[1..]), "GET / echo");
        assert_eq!(
            routes[0].accepts,
            parse_routes("POST / t accepts=image/png,image/jpeg").unwrap()[0].accepts
        );
    }

    #[test]
    fn what_is_no_route_is_refused_with_what_is_wrong() {
        for (text, expected) in [
            ("", "empty"),
            ("POST /a", "task is missing"),
            ("POST /a echo ;", "method is missing"),
            ("POST /a echo fast", "FIELD=TEXT"),
            ("POST /a echo tiemout=1s", "is none of"),
            ("POST /a echo task=echo", "task is said twice"),
            ("POST /a echo timeout=10", "10"),
            ("POST /a echo max_body=much", "much"),
            ("POST /a echo auth=maybe", "neither token nor none"),
            ("POST /a echo mode=later", "neither sync nor async"),
            ("POST /a echo accepts=png", "media type"),
            ("POST /a echo priority=high", "-10 to 10"),
            ("POST /a echo headers=x", "header field"),
            ("POST /a echo cancel_on_disconnect=yes", "neither true nor false"),
            ("P@ST /a echo", "method"),
        ] {
            let message = parse_routes(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
