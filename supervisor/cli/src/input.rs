//! Where the input of a job comes from, as typed: the text itself, `@FILE`, or `-` for standard input.

use bytes::Bytes;
use clap::builder::{OsStringValueParser, TypedValueParser};
use offload_protocol::nouns::{ContentType, OutcomeCode};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::text;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The bytes themselves.
    Literal(Vec<u8>),
    /// What a file holds.
    File(PathBuf),
    /// All of standard input.
    Stdin,
}

/// An input that is there, with the label that says what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    /// The bytes.
    pub(crate) bytes: Bytes,
    /// Text if they are valid UTF-8, bytes otherwise.
    pub(crate) content: ContentType,
}

/// Why there is no payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// For programs: `too_large` or `io_error`.
    pub(crate) code: OutcomeCode,
    /// For people.
    pub(crate) message: String,
}

impl Input {
    /// For clap. Arguments need not be UTF-8.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Input> {
        OsStringValueParser::new().map(Input::from)
    }

    /// Reads it, waiting as long as it takes: not for the thread of an event loop. At most `max` bytes are taken.
    pub(crate) fn load(self, max: u64) -> Result<Payload, Unreadable> {
        match self {
            Input::Literal(bytes) => check(bytes, max, "the input"),
            Input::Stdin => read(io::stdin().lock(), 0, max, "standard input"),
            Input::File(path) => {
                let name = text::printable(&path.to_string_lossy()).into_owned();
                let file = File::open(&path).map_err(|error| unreadable(&name, &error))?;
                let length = file.metadata().map_err(|error| unreadable(&name, &error))?.len();
                if length > max {
                    return Err(too_large(&name, Some(length), max));
                }
                read(file, length, max, &name)
            }
        }
    }
}

impl From<OsString> for Input {
    fn from(typed: OsString) -> Input {
        match typed.as_bytes() {
            b"-" => Input::Stdin,
            [b'@', path @ ..] => Input::File(OsString::from_vec(path.to_vec()).into()),
            _ => Input::Literal(typed.into_vec()),
        }
    }
}

/// One byte more than allowed is read, to tell an input that just fits from one that does not.
fn read(source: impl Read, expected: u64, max: u64, name: &str) -> Result<Payload, Unreadable> {
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
    source.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    check(bytes, max, name)
}

fn check(bytes: Vec<u8>, max: u64, name: &str) -> Result<Payload, Unreadable> {
    if bytes.len() as u64 > max {
        return Err(too_large(name, None, max));
    }
    let content = if std::str::from_utf8(&bytes).is_ok() { ContentType::Text } else { ContentType::Bytes };
    Ok(Payload { bytes: bytes.into(), content })
}

fn unreadable(name: &str, error: &io::Error) -> Unreadable {
    Unreadable { code: OutcomeCode::IoError, message: format!("cannot read {name}: {error}") }
}

fn too_large(name: &str, length: Option<u64>, max: u64) -> Unreadable {
    let length = length.map_or_else(|| "more".to_owned(), |length| format!("{length} bytes"));
    let message =
        format!("{name} has {length}, the limit is {max} bytes (see --max-payload of serve and run)");
    Unreadable { code: OutcomeCode::TooLarge, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_names_a_file_standard_input_or_itself() {
        for (typed, input) in [
            ("1000", Input::Literal(b"1000".to_vec())),
            ("", Input::Literal(Vec::new())),
            ("-", Input::Stdin),
            ("-5", Input::Literal(b"-5".to_vec())),
            ("@big.json", Input::File("big.json".into())),
        ] {
            assert_eq!(Input::from(OsString::from(typed)), input, "{typed}");
        }
    }

    #[test]
    fn an_input_is_labelled_text_if_it_can_be() {
        let content = |bytes: &[u8]| Input::Literal(bytes.to_vec()).load(100).unwrap().content;
        assert_eq!(content("häuser".as_bytes()), ContentType::Text);
        assert_eq!(content(b""), ContentType::Text);
        assert_eq!(content(b"\xff"), ContentType::Bytes);
    }

    #[test]
    fn a_file_is_read_up_to_the_limit_and_not_beyond() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(Input::File(path.clone()).load(5).unwrap().bytes, "12345");
        let refusal = Input::File(path).load(4).unwrap_err();
        assert_eq!(refusal.code, OutcomeCode::TooLarge);
        assert!(refusal.message.contains("5 bytes, the limit is 4 bytes"), "{}", refusal.message);
    }

    #[test]
    fn a_source_of_unknown_length_is_cut_off_at_the_limit() {
        let endless = io::repeat(b'x');
        assert_eq!(read(endless, 0, 1000, "it").unwrap_err().code, OutcomeCode::TooLarge);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        for path in ["/nonexistent/file", "/"] {
            let refusal = Input::File(path.into()).load(100_000).unwrap_err();
            assert_eq!(refusal.code, OutcomeCode::IoError);
            assert!(refusal.message.starts_with(&format!("cannot read {path}: ")), "{}", refusal.message);
        }
    }
}
