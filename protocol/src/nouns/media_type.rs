//! What a payload is: a media type (RFC 9110, section 8.3.1), such as `image/png` or `text/plain; charset=utf-8`. The
//! supervisor passes it on and never looks at the payload.
//!
//! A type is checked where it is read, so no other part has to expect one that does not fit into a header of HTTP, a table
//! or a log line.

use crate::limits::MEDIA_TYPE_MAX;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

/// A media type: 1 to [`MEDIA_TYPE_MAX`] bytes of ASCII, `type/subtype` and perhaps parameters. Cloning one copies no text.
#[derive(Clone)]
pub struct MediaType(Text);

/// The types that nearly all payloads have take no memory of their own.
#[derive(Clone)]
enum Text {
    /// The place in [`KNOWN`]. A number, so that a media type takes 16 bytes: there is one in each job that waits.
    Known(u8),
    Other(Arc<str>),
}

const KNOWN: [&str; 5] =
    ["application/octet-stream", "text/plain; charset=utf-8", "application/json", "image/png", "*/*"];

impl MediaType {
    /// Bytes of no stated kind.
    pub const OCTET_STREAM: MediaType = MediaType(Text::Known(0));
    /// UTF-8 text.
    pub const TEXT: MediaType = MediaType(Text::Known(1));
    /// One JSON document.
    pub const JSON: MediaType = MediaType(Text::Known(2));
    /// A PNG image.
    pub const PNG: MediaType = MediaType(Text::Known(3));

    /// Stands for all types, where a task says what it takes or gives.
    pub const ANY: MediaType = MediaType(Text::Known(4));

    /// The whole text, with its parameters.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Known(place) => KNOWN[usize::from(*place)],
            Text::Other(text) => text,
        }
    }

    /// The type without its parameters, such as `text/plain`.
    pub fn essence(&self) -> &str {
        let text = self.as_str();
        text.split_once(';').map_or(text, |(essence, _)| essence.trim_end())
    }

    /// Whether it says that the payload is a JSON document: `application/json`, or a type whose name ends in `+json`.
    pub fn is_json(&self) -> bool {
        let essence = self.essence();
        let ending = essence.len().checked_sub("+json".len()).and_then(|start| essence.get(start..));
        essence.eq_ignore_ascii_case("application/json")
            || ending.is_some_and(|ending| ending.eq_ignore_ascii_case("+json"))
    }

    /// Whether it says that the payload is text for people: any `text/...`.
    pub fn is_text(&self) -> bool {
        self.as_str().get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/"))
    }

    /// Whether a payload of this type satisfies somebody who accepts `pattern`, which may be `*/*` or have `*` in place of
    /// the subtype. Parameters are not compared.
    pub fn matches(&self, pattern: &MediaType) -> bool {
        let (Some((kind, name)), Some((wanted_kind, wanted_name))) =
            (self.essence().split_once('/'), pattern.essence().split_once('/'))
        else {
            return false;
        };
        let fits = |wanted: &str, is: &str| wanted == "*" || wanted.eq_ignore_ascii_case(is);
        fits(wanted_kind, kind) && fits(wanted_name, name)
    }
}

/// Why a text is no media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoMediaType {
    text: String,
}

impl fmt::Display for NoMediaType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoMediaType { text } = self;
        write!(formatter, "{text:?} is no media type: 1 to {MEDIA_TYPE_MAX} bytes such as 'image/png'")
    }
}

impl std::error::Error for NoMediaType {}

impl FromStr for MediaType {
    type Err = NoMediaType;

    /// Blanks behind the last parameter are no part of it.
    fn from_str(given: &str) -> Result<MediaType, NoMediaType> {
        let text = if given.contains(';') { given.trim_end_matches([' ', '\t']) } else { given };
        if let Some(place) = KNOWN.iter().position(|known| *known == text) {
            return Ok(MediaType(Text::Known(place as u8)));
        }
        match given.len() <= MEDIA_TYPE_MAX && is_media_type(text) {
            true => Ok(MediaType(Text::Other(Arc::from(text)))),
            false => Err(NoMediaType { text: super::cut(given, MEDIA_TYPE_MAX).to_owned() }),
        }
    }
}

/// `type "/" subtype *( OWS ";" OWS name "=" ( token / quoted-string ) )`
fn is_media_type(text: &str) -> bool {
    let (essence, mut parameters) = text.split_once(';').unwrap_or((text, ""));
    let essence = if essence.len() < text.len() { essence.trim_end_matches([' ', '\t']) } else { essence };
    if !essence.split_once('/').is_some_and(|(kind, name)| is_token(kind) && is_token(name)) {
        return false;
    }
    if essence.len() == text.len() {
        return true;
    }
    loop {
        match after_parameter(parameters.trim_start_matches([' ', '\t'])) {
            None => return false,
            Some("") => return true,
            Some(rest) => parameters = rest,
        }
    }
}

/// What follows the parameter at the start of `text`, without the semicolon; `None` if there is no valid parameter.
fn after_parameter(text: &str) -> Option<&str> {
    let (name, value) = text.split_once('=')?;
    let length = match value.strip_prefix('"') {
        Some(quoted) => quoted_length(quoted)? + 1,
        None => value.find([';', ' ', '\t']).unwrap_or(value.len()),
    };
    let (value, rest) = value.split_at(length);
    let is_value = value.starts_with('"') || is_token(value);
    let rest = rest.trim_start_matches([' ', '\t']);
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(';').filter(|rest| !rest.is_empty())? };
    (is_token(name) && is_value).then_some(rest)
}

/// Length of a quoted text up to and with the closing quote.
fn quoted_length(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return Some(at + 1),
            b' '..=b'~' => is_escaped = byte == b'\\' && !is_escaped,
            _ => return None,
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

impl Default for MediaType {
    fn default() -> MediaType {
        MediaType::OCTET_STREAM
    }
}

impl PartialEq for MediaType {
    fn eq(&self, other: &MediaType) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for MediaType {}

impl Hash for MediaType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl fmt::Debug for MediaType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

impl Serialize for MediaType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for MediaType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MediaType, D::Error> {
        deserializer.deserialize_str(Reader)
    }
}

struct Reader;

impl Visitor<'_> for Reader {
    type Value = MediaType;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a media type")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<MediaType, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<MediaType, NoMediaType> {
        text.parse()
    }

    #[test]
    fn types_with_and_without_parameters_are_read_as_they_are() {
        let longest = format!("a/{}", "b".repeat(MEDIA_TYPE_MAX - 2));
        for good in [
            "image/png",
            "image/jpeg",
            "*/*",
            "application/vnd.api+json",
            "text/plain;charset=utf-8",
            "text/plain ; charset=utf-8 ; format=flowed",
            r#"text/csv; header="a; \"b\"""#,
            longest.as_str(),
        ] {
            assert_eq!(parse(good).as_ref().map(MediaType::as_str), Ok(good));
        }
    }

    #[test]
    fn blanks_behind_the_last_parameter_are_not_passed_on() {
        assert_eq!(parse("text/csv; header=\"a \" \t ").unwrap().as_str(), "text/csv; header=\"a \"");
        let known = parse("text/plain; charset=utf-8 ").unwrap();
        assert_eq!(known, MediaType::TEXT);
        assert!(matches!(known.0, Text::Known(_)));
        let parameter = "b".repeat(MEDIA_TYPE_MAX - "a/b;c=".len());
        assert!(parse(&format!("a/b;c={parameter}")).is_ok());
        assert!(parse(&format!("a/b;c={parameter} ")).is_err(), "too long with the blank");
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        let too_long = format!("a/{}", "b".repeat(MEDIA_TYPE_MAX - 1));
        for bad in [
            "",
            "png",
            "/png",
            "image/",
            "image/png/x",
            "image/p ng",
            " image/png",
            "image/png ",
            "image/png;",
            "text/plain; charset",
            "text/plain; charset=",
            "text/plain; =utf-8",
            "text/plain; a=b;",
            "text/plain; a=\"b",
            "text/plain; a=\"b\"c",
            "text/plain\r\nX: y",
            "text/plain; a=\"\n\"",
            "tëxt/plain",
            too_long.as_str(),
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            parse("png").unwrap_err().to_string(),
            "\"png\" is no media type: 1 to 127 bytes such as 'image/png'"
        );
    }

    #[test]
    fn a_known_type_takes_no_memory_and_equals_its_text() {
        let known =
            [MediaType::OCTET_STREAM, MediaType::TEXT, MediaType::JSON, MediaType::PNG, MediaType::ANY];
        assert_eq!(known.each_ref().map(MediaType::as_str), KNOWN);
        for known in known {
            let read = parse(known.as_str()).unwrap();
            assert!(matches!(read.0, Text::Known(_)));
            assert_eq!(read, known);
        }
        assert_eq!(size_of::<MediaType>(), 16);
        assert_eq!(parse("image/jpeg").unwrap(), parse("image/jpeg").unwrap());
        assert_ne!(parse("image/jpeg").unwrap(), MediaType::PNG);
    }

    #[test]
    fn json_and_text_are_recognized_whatever_their_parameters_and_case() {
        for json in ["application/json", "Application/JSON; v=1", "application/problem+json", "a/b+JSON"] {
            assert!(parse(json).unwrap().is_json(), "{json}");
        }
        for other in ["application/jsonl", "text/json-like", "image/png", "json/x"] {
            assert!(!parse(other).unwrap().is_json(), "{other}");
        }
        assert!(MediaType::TEXT.is_text() && parse("TEXT/csv").unwrap().is_text());
        assert!(!MediaType::JSON.is_text() && !parse("te/x").unwrap().is_text());
    }

    #[test]
    fn a_pattern_accepts_what_its_star_stands_for() {
        let accepts = |pattern: &str, is: &MediaType| is.matches(&parse(pattern).unwrap());
        assert!(accepts("*/*", &MediaType::PNG) && accepts("image/*", &MediaType::PNG));
        assert!(accepts("text/plain", &MediaType::TEXT), "parameters are not compared");
        assert!(!accepts("image/jpeg", &MediaType::PNG) && !accepts("text/*", &MediaType::JSON));
    }

    proptest! {
        #[test]
        fn any_text_is_a_type_or_refused_and_never_a_panic(text in ".{0,40}", tail in "[a-z/;=\" \\\\]{0,40}") {
            let _ = parse(&text);
            if let Ok(media_type) = parse(&format!("a/b;{tail}")) {
                prop_assert_eq!(media_type.essence(), "a/b");
            }
        }
    }
}
