//! The input of a job as typed on the command line: the text itself, `@FILE`, or `-` for standard input.

use bytes::Bytes;
use clap::builder::{OsStringValueParser, TypedValueParser};
use offload_protocol::nouns::{MediaType, OutcomeCode};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{sys, text};

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The bytes themselves.
    Literal(Vec<u8>),
    /// The content of a file of any kind, even a device or a pipe: somebody typed its name on purpose.
    File(PathBuf),
    /// The content of a file named in a list. It must be a regular file: lists are often made by `find`, and nobody
    /// wants to wait for the writer of a pipe or to read a device to its end.
    Listed(PathBuf),
    /// All of standard input.
    Stdin,
}

/// An input that has been read, with its media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    /// The bytes.
    pub(crate) bytes: Bytes,
    /// The stated one; otherwise text if they are valid UTF-8, or else bytes.
    pub(crate) media_type: MediaType,
}

impl Payload {
    /// The same bytes, of the type that was stated, if one was.
    pub(crate) fn of_type(self, stated: Option<&MediaType>) -> Payload {
        Payload { media_type: stated.cloned().unwrap_or(self.media_type), ..self }
    }
}

/// Why there is no payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// For programs: `too_large` or `io_error`.
    pub(crate) code: OutcomeCode,
    /// For people.
    pub(crate) message: String,
}

/// Which setting of a supervisor bounds an input, as far as a client knows.
pub(crate) const LIMIT_OF_SUPERVISOR: &str =
    "max_payload of the supervisor, which is never over its max_bytes";

impl Unreadable {
    /// Says of an input that is too large which setting has to be raised.
    pub(crate) fn with_setting(self, setting: &str) -> Unreadable {
        match self.code {
            OutcomeCode::TooLarge => Unreadable { message: format!("{} ({setting})", self.message), ..self },
            _ => self,
        }
    }
}

impl Input {
    /// For clap. Arguments need not be UTF-8.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Input> {
        OsStringValueParser::new().map(Input::from)
    }

    /// Reads the input, at most `max` bytes. This may block, so do not call it on the thread of an event loop.
    pub(crate) fn load(self, max: u64) -> Result<Payload, Unreadable> {
        match self {
            Input::Literal(bytes) => check(bytes, max, "the input"),
            Input::Stdin => {
                stdin().map_err(|error| unreadable(STDIN, &error))?;
                read(io::stdin().lock(), 0, max, STDIN)
            }
            Input::File(path) => load_file(&path, max, |path| File::open(path)),
            Input::Listed(path) => load_file(&path, max, open_regular),
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

const STDIN: &str = "standard input";

/// Standard input. An error if the process was started without one, because a missing input is not an empty one.
pub(crate) fn stdin() -> io::Result<io::Stdin> {
    match sys::stdin_was_closed() {
        true => Err(io::Error::other("it is closed")),
        false => Ok(io::stdin()),
    }
}

fn load_file(
    path: &Path,
    max: u64,
    open: impl FnOnce(&Path) -> io::Result<File>,
) -> Result<Payload, Unreadable> {
    let name = text::printable(&path.to_string_lossy()).into_owned();
    let file = open(path).map_err(|error| unreadable(&name, &error))?;
    let length = file.metadata().map_err(|error| unreadable(&name, &error))?.len();
    if length > max {
        return Err(too_large(&name, Some(length), max));
    }
    read(file, length, max, &name)
}

/// Opens a regular file. Opening anything else may block or have an effect, so the file is checked before it is opened,
/// and again afterwards.
fn open_regular(path: &Path) -> io::Result<File> {
    let refuse_others = |metadata: Metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is no regular file")),
    };
    refuse_others(path.metadata()?)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    refuse_others(file.metadata()?)?;
    Ok(file)
}

/// Reads one byte more than allowed, to recognize an input that is too long.
fn read(source: impl Read, expected: u64, max: u64, name: &str) -> Result<Payload, Unreadable> {
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
    source.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    check(bytes, max, name)
}

fn check(bytes: Vec<u8>, max: u64, name: &str) -> Result<Payload, Unreadable> {
    let length = bytes.len() as u64;
    if length > max {
        // Reading stops at the first byte too many; then the full length is unknown.
        let is_all = length > max.saturating_add(1);
        return Err(too_large(name, Some(length).filter(|_| is_all), max));
    }
    let media_type =
        if std::str::from_utf8(&bytes).is_ok() { MediaType::TEXT } else { MediaType::OCTET_STREAM };
    Ok(Payload { bytes: bytes.into(), media_type })
}

fn unreadable(name: &str, error: &io::Error) -> Unreadable {
    Unreadable { code: OutcomeCode::IoError, message: format!("cannot read {name}: {error}") }
}

fn too_large(name: &str, length: Option<u64>, max: u64) -> Unreadable {
    let sentence = match length {
        Some(length) => format!("{name} has {length} bytes, the limit is {max} bytes"),
        None => format!("{name} has more than {max} bytes, which is the limit"),
    };
    Unreadable { code: OutcomeCode::TooLarge, message: sentence }
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
        let media_type = |bytes: &[u8]| Input::Literal(bytes.to_vec()).load(100).unwrap().media_type;
        assert_eq!(media_type("häuser".as_bytes()), MediaType::TEXT);
        assert_eq!(media_type(b""), MediaType::TEXT);
        assert_eq!(media_type(b"\xff"), MediaType::OCTET_STREAM);
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
    fn of_a_list_only_regular_files_are_read_and_nothing_else_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        std::fs::write(&file, "12345").unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(Input::Listed(file).load(5).unwrap().bytes, "12345");
        for path in [pipe, "/dev/zero".into(), folder.path().to_owned()] {
            let refusal = Input::Listed(path).load(5).unwrap_err();
            assert_eq!(refusal.code, OutcomeCode::IoError);
            assert!(refusal.message.ends_with(": it is no regular file"), "{}", refusal.message);
        }
    }

    #[test]
    fn an_input_that_is_too_large_is_told_with_its_length_where_that_is_known() {
        let message = |length: usize| Input::Literal(vec![b'x'; length]).load(10).unwrap_err().message;
        assert!(message(70).contains("has 70 bytes, the limit is 10 bytes"), "{}", message(70));
        assert!(message(11).contains("has more than 10 bytes, which is the limit"), "{}", message(11));
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
