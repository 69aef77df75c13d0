//! Which handler answers which path.
//!
//! A pattern is a path in which `{name}` stands for one segment: `/v1/jobs/{id}/output`. Where several patterns fit, the one that
//! has its first `{name}` later wins, so `/v1/tasks/primes` comes before `/v1/tasks/{task}`. `/v1/tasks/%70rimes` is the same path
//! (RFC 3986, 6.2.2), so it finds the same pattern.
//!
//! What begins with one of [`OWN_PATHS`] is found only by a pattern that says so in words: a `{name}` in front would take over what the
//! supervisor promises of these paths, such as who has to show a token.

use http::Method;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::sync::Arc;

/// What the paths of the supervisor's own interface begin with. No `{name}` stands for these.
const OWN_PATHS: [&str; 5] = ["v1", "healthz", "readyz", "metrics", "openapi.json"];

/// What this path begins with, if that is the supervisor's own. The path is [`canonical`].
pub(crate) fn own_beginning(path: &str) -> Option<&'static str> {
    let (first, _) = first_segment(path.strip_prefix('/')?);
    OWN_PATHS.into_iter().find(|own| *own == first)
}

/// The parameters of a path, decoded, by the names of the pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters(Vec<(Arc<str>, String)>);

impl Parameters {
    /// The parameter of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, value)| value.as_str())
    }

    /// All of them, with their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, value.as_str()))
    }
}

/// A pattern that cannot be used. Its `Debug` is the sentence, too: that is what Rust prints of an error that `main` returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BadPattern;

impl std::fmt::Display for BadPattern {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(
            "a path begins with '/', a {name} is a whole segment of it, each name once, and after a % come two hexadecimal digits",
        )
    }
}

impl std::fmt::Debug for BadPattern {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for BadPattern {}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    Name(Arc<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    segments: Vec<Segment>,
    /// How all paths that fit begin: what is before the first name. Most patterns are told from a path by this alone.
    prefix: String,
    /// How many segments the prefix covers.
    prefix_segments: usize,
}

impl Pattern {
    pub(crate) fn parse(path: &str) -> Result<Pattern, BadPattern> {
        if path.split('%').skip(1).any(|part| encoded_byte(part).is_none()) {
            return Err(BadPattern);
        }
        let path = &*canonical(path);
        let rest = path.strip_prefix('/').ok_or(BadPattern)?;
        let segment = |text: &str| match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(name) if !name.is_empty() && !name.contains(['{', '}']) => Ok(Segment::Name(name.into())),
            None if !text.contains(['{', '}']) => Ok(Segment::Text(text.to_owned())),
            _ => Err(BadPattern),
        };
        let segments: Vec<Segment> = rest.split('/').map(segment).collect::<Result<_, _>>()?;
        let names = segments.iter().filter(|segment| matches!(segment, Segment::Name(_)));
        let mut names: Vec<_> = names.collect();
        let all = names.len();
        names.sort_by_key(|segment| format!("{segment:?}"));
        names.dedup();
        if names.len() < all {
            return Err(BadPattern);
        }
        let prefix = path.split_once('{').map_or(path, |(prefix, _)| prefix).to_owned();
        let is_text = |segment: &&Segment| matches!(segment, Segment::Text(_));
        let prefix_segments = segments.iter().take_while(is_text).count();
        Ok(Pattern { segments, prefix, prefix_segments })
    }

    /// The parameters, if the path fits; it is [`canonical`]. A segment that is empty, or that is no UTF-8 when it is decoded, fits no name;
    /// nor does a first one that is the supervisor's own.
    fn fit(&self, path: &str) -> Option<Parameters> {
        let mut rest = Some(path.strip_prefix(&*self.prefix)?);
        let segments = &self.segments[self.prefix_segments..];
        if self.prefix_segments == 0 && own_beginning(path).is_some() {
            return None;
        }
        if segments.is_empty() {
            return (rest == Some("")).then(Parameters::default);
        }
        let mut parameters = Vec::with_capacity(segments.len());
        for segment in segments {
            let (part, behind) = first_segment(rest?);
            rest = behind;
            match segment {
                Segment::Text(text) if text == part => {}
                Segment::Text(_) => return None,
                Segment::Name(name) => parameters.push((Arc::clone(name), decoded(part)?)),
            }
        }
        rest.is_none().then_some(Parameters(parameters))
    }

    /// The names of its parameters.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Name(name) => Some(&**name),
            Segment::Text(_) => None,
        })
    }

    /// Whether both fit the same paths.
    fn is_like(&self, other: &Pattern) -> bool {
        let is_like = |(one, other): (&Segment, &Segment)| match (one, other) {
            (Segment::Text(one), Segment::Text(other)) => one == other,
            (Segment::Name(_), Segment::Name(_)) => true,
            _ => false,
        };
        self.segments.len() == other.segments.len() && self.segments.iter().zip(&other.segments).all(is_like)
    }

    /// Patterns are tried in this order.
    fn rank(&self) -> Vec<bool> {
        self.segments.iter().map(|segment| matches!(segment, Segment::Name(_))).collect()
    }
}

/// The path with everything decoded that needs no encoding, and with hexadecimal digits in upper case. A `%` without two digits stays.
pub(crate) fn canonical(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut parts = path.split('%');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match encoded_byte(part) {
            Some(byte @ (b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z')) => {
                whole.push(char::from(byte));
                whole.push_str(&part[2..]);
            }
            Some(_) => whole.extend(["%", &part[..2].to_ascii_uppercase(), &part[2..]]),
            None => whole.extend(["%", part]),
        }
    }
    Cow::Owned(whole)
}

/// The byte that is encoded at the beginning of what stands behind a `%`.
fn encoded_byte(part: &str) -> Option<u8> {
    let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

/// A path up to its first slash, and what is behind that, if there is one.
fn first_segment(path: &str) -> (&str, Option<&str>) {
    path.split_once('/').map_or((path, None), |(segment, behind)| (segment, Some(behind)))
}

/// A segment as its client means it. None if it is empty, or no UTF-8.
fn decoded(segment: &str) -> Option<String> {
    if segment.is_empty() {
        return None;
    }
    match segment.contains('%') {
        true => percent_decode_str(segment).decode_utf8().ok().map(Cow::into_owned),
        false => Some(segment.to_owned()),
    }
}

/// The routes of a server.
pub(crate) struct Router<H> {
    routes: Vec<(Pattern, Method, H)>,
}

/// What there is for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<H> {
    Handler(H, Parameters),
    /// The path is known; these methods are allowed.
    OtherMethods(Vec<Method>),
    Nothing,
}

impl<H> Found<H> {
    /// What there is here, and else what there is elsewhere. Methods that are allowed here and there add up.
    pub(crate) fn or(self, other: Found<H>) -> Found<H> {
        match (self, other) {
            (Found::Nothing, other) => other,
            (Found::OtherMethods(_), Found::Handler(handler, parameters)) => {
                Found::Handler(handler, parameters)
            }
            (Found::OtherMethods(mut methods), Found::OtherMethods(more)) => {
                let new = more.into_iter().filter(|method| !methods.contains(method)).collect::<Vec<_>>();
                methods.extend(new);
                Found::OtherMethods(methods)
            }
            (found, _) => found,
        }
    }
}

impl<H> Default for Router<H> {
    fn default() -> Router<H> {
        Router { routes: Vec::new() }
    }
}

impl<H: Clone> Router<H> {
    /// A later handler for the same pattern and method replaces the earlier one.
    pub(crate) fn add(&mut self, method: Method, path: &str, handler: H) -> Result<(), BadPattern> {
        let pattern = Pattern::parse(path)?;
        self.routes.retain(|(other, its, _)| (other, its) != (&pattern, &method));
        let place = self.routes.partition_point(|(other, _, _)| other.rank() <= pattern.rank());
        self.routes.insert(place, (pattern, method, handler));
        Ok(())
    }

    /// Whether there is a handler for this method and all paths that fit this pattern.
    pub(crate) fn has(&self, method: &Method, path: &str) -> bool {
        let pattern = Pattern::parse(path);
        pattern.is_ok_and(|pattern| {
            self.routes.iter().any(|(other, its, _)| its == method && other.is_like(&pattern))
        })
    }

    /// A HEAD is answered by the handler for GET.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Found<H> {
        let wanted = if method == Method::HEAD { &Method::GET } else { method };
        let path = &*canonical(path);
        // Comparing a method takes less time than looking at a path.
        for (pattern, _, handler) in self.routes.iter().filter(|(_, its, _)| its == wanted) {
            if let Some(parameters) = pattern.fit(path) {
                return Found::Handler(handler.clone(), parameters);
            }
        }
        let mut allowed: Vec<Method> = Vec::new();
        for (_, its, _) in self.routes.iter().filter(|(pattern, ..)| pattern.fit(path).is_some()) {
            if !allowed.contains(its) {
                allowed.push(its.clone());
            }
        }
        if allowed.is_empty() { Found::Nothing } else { Found::OtherMethods(allowed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router() -> Router<u32> {
        let mut router = Router::default();
        router.add(Method::POST, "/v1/tasks/{task}", 1).unwrap();
        router.add(Method::POST, "/v1/tasks/primes", 2).unwrap();
        router.add(Method::GET, "/v1/jobs/{id}", 3).unwrap();
        router.add(Method::DELETE, "/v1/jobs/{id}", 4).unwrap();
        router.add(Method::GET, "/v1/jobs/{id}/output", 5).unwrap();
        router.add(Method::GET, "/", 6).unwrap();
        router
    }

    fn handler(method: &Method, path: &str) -> Option<u32> {
        match router().find(method, path) {
            Found::Handler(handler, _) => Some(handler),
            Found::OtherMethods(_) | Found::Nothing => None,
        }
    }

    #[test]
    fn a_path_finds_the_pattern_that_says_most() {
        assert_eq!(handler(&Method::POST, "/v1/tasks/primes"), Some(2));
        assert_eq!(handler(&Method::POST, "/v1/tasks/echo"), Some(1));
        assert_eq!(handler(&Method::GET, "/v1/jobs/7/output"), Some(5));
        assert_eq!(handler(&Method::HEAD, "/"), Some(6));
        for path in ["/v1/tasks", "/v1/tasks/", "/v1/tasks/a/b", "//", "/v1/jobs/7/", "", "v1/jobs/7", "*"] {
            assert_eq!(handler(&Method::POST, path), None, "{path}");
            assert_eq!(handler(&Method::GET, path), None, "{path}");
        }
    }

    #[test]
    fn a_path_finds_the_same_however_it_is_encoded() {
        let mut router = router();
        router.add(Method::GET, "/a%20b/%7Ex", 7).unwrap();
        let handler = |path: &str| match router.find(&Method::GET, path) {
            Found::Handler(handler, _) => Some(handler),
            Found::OtherMethods(_) | Found::Nothing => None,
        };
        assert_eq!(self::handler(&Method::POST, "/v1/%74asks/%70rimes"), Some(2));
        assert_eq!(self::handler(&Method::POST, "/v1/tasks/%2Fprimes"), Some(1), "that is another name");
        assert_eq!(self::handler(&Method::POST, "/v1%2Ftasks/primes"), None, "that is no separator");
        assert_eq!(self::handler(&Method::POST, "/v1/tasks/%zz"), Some(1));
        assert_eq!(self::handler(&Method::GET, "/v1/%6aobs/%zz/%6futput"), Some(5), "the rest is decoded");
        assert_eq!(handler("/a%20b/~x"), Some(7));
        assert_eq!(handler("/%61%20b/%7ex"), Some(7));
        assert_eq!(handler("/a+b/~x"), None);
        for path in ["/%", "/%2", "/%zz", "/%+1", "/%é"] {
            assert!(Pattern::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_path_fits_as_a_whole_or_not_at_all() {
        let fits = |pattern: &str, path: &str| Pattern::parse(pattern).unwrap().fit(path).is_some();
        for (pattern, path, expected) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthzx", false),
            ("/healthz", "/healthz/", false),
            ("/healthz", "/healthz/x", false),
            ("/healthz", "/health", false),
            ("/a/{b}/", "/a/x/", true),
            ("/a/{b}/", "/a/x", false),
            ("/a/{b}/", "/a/x//", false),
            ("/a/{b}", "/a/", false),
            ("/a/{b}/c", "/a/x/c/", false),
            ("/{b}", "/%", true),
            ("/{b}", "/%2", true),
            ("/{b}", "/%00", true),
            ("/{b}", "/%ff", false),
        ] {
            assert_eq!(fits(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn no_name_stands_for_what_the_supervisors_own_paths_begin_with() {
        let mut router = router();
        router.add(Method::POST, "/{tenant}/{thing}", 7).unwrap();
        router.add(Method::POST, "/{tenant}", 8).unwrap();
        let found = |path: &str| match router.find(&Method::POST, path) {
            Found::Handler(handler, _) => Some(handler),
            Found::OtherMethods(_) | Found::Nothing => None,
        };
        for own in OWN_PATHS.into_iter().chain(["%76%31", "%68ealthz", "openapi%2ejson", "v%31"]) {
            assert_eq!(found(&format!("/{own}")), None, "{own}");
            assert_eq!(found(&format!("/{own}/x")), None, "{own}");
            assert_eq!(found(&format!("/x/{own}")), Some(7), "{own}");
        }
        for other in ["v", "v10", "V1", "healthz.html", "v1%2Fx", "metrics%20"] {
            assert_eq!(found(&format!("/{other}/x")), Some(7), "{other}");
            assert_eq!(found(&format!("/{other}")), Some(8), "{other}");
        }
        assert_eq!(found("/v1/tasks/echo"), Some(1), "a pattern that says so finds it");
    }

    #[test]
    fn a_known_path_says_what_it_allows() {
        let found = router().find(&Method::PUT, "/v1/jobs/7");
        assert_eq!(found, Found::OtherMethods(vec![Method::GET, Method::DELETE]));
        assert_eq!(router().find(&Method::GET, "/nowhere"), Found::Nothing);
    }

    #[test]
    fn parameters_are_decoded_and_cannot_hide_a_slash_of_the_path() {
        let Found::Handler(_, parameters) = router().find(&Method::POST, "/v1/tasks/a%2Fb%20c") else {
            panic!("it fits");
        };
        assert_eq!((parameters.get("task"), parameters.get("id")), (Some("a/b c"), None));
        assert_eq!(router().find(&Method::POST, "/v1/tasks/%ff"), Found::Nothing);
    }

    #[test]
    fn a_pattern_has_whole_segments_and_each_name_once() {
        for path in ["", "a", "/{", "/{}", "/a{b}", "/{a}b", "/{a}/{a}", "/{{a}}"] {
            assert_eq!(Pattern::parse(path), Err(BadPattern), "{path}");
        }
    }
}
