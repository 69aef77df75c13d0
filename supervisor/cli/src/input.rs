//! The input of a job as typed on the command line: the text itself, `@FILE`, or `-` for standard input.
//!
//! ```text
//!   Input ---- load ----> the bytes
//!     '------- open ----> a large regular file: open, and only its head was read ---- the workers do not take it ---> load
//!                         anything else: the bytes
//! ```

use bytes::Bytes;
use clap::builder::{OsStringValueParser, TypedValueParser};
use offload_protocol::limits::FILE_INPUT_MIN;
use offload_protocol::nouns::{MediaType, OutcomeCode, Report};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use super::digest::{digest_of_bytes, digest_of_content};
use super::output::say;
use super::{sys, text};
use crate::limits::STDIN_TOLD_AFTER;

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
    /// The content of a file that was open already, and that the workers do not take as it is.
    Opened(Arc<OpenFile>),
    /// All of standard input.
    Stdin,
    /// The same where nobody named it: if it does not end soon, a message says what is waited for.
    Piped,
}

/// An input as it is given to a supervisor, with its media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    /// What it is.
    pub(crate) content: Content,
    /// The stated one; otherwise text if the bytes (of a file its first ones) are valid UTF-8, or else bytes.
    pub(crate) media_type: MediaType,
}

/// What an input is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Bytes that have been read.
    Bytes(Bytes),
    /// A file that the worker reads.
    File(Arc<OpenFile>),
}

/// A large regular file that is open for reading.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The file.
    pub(crate) file: File,
    /// Its length when it was opened.
    pub(crate) bytes: u64,
    /// Its name, for people.
    name: String,
}

/// Two of them are the same if they are one.
impl PartialEq for OpenFile {
    fn eq(&self, other: &OpenFile) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for OpenFile {}

impl OpenFile {
    /// Its content, at most `max` bytes. This may block.
    pub(crate) fn load(&self, max: u64) -> Result<Payload, Unreadable> {
        read(FromStart { file: &self.file, at: 0 }, self.bytes, max, &self.name)
    }
}

/// Reads a file from its start, whatever its offset is.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(space, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Whether a job ended unrun because its input is a file: it is to be submitted again with the bytes.
pub(crate) fn wants_bytes(report: &Report, content: &Content) -> bool {
    report.outcome == OutcomeCode::Unsupported && matches!(content, Content::File(_))
}

impl Payload {
    /// The bytes that it holds in memory.
    pub(crate) fn held(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::File(_) => 0,
        }
    }

    /// The digest of its bytes. Those of a file are read for that.
    pub(crate) fn digest(&self) -> Result<String, Unreadable> {
        match &self.content {
            Content::Bytes(bytes) => Ok(digest_of_bytes(bytes)),
            Content::File(file) => digest_of_content(FromStart { file: &file.file, at: 0 })
                .map_err(|error| unreadable(&file.name, &error)),
        }
    }

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

    /// The input for a place in a command: a file is its name. A name that could be an option is made a path.
    pub(crate) fn named(self) -> Input {
        match self {
            Input::File(path) | Input::Listed(path) => {
                let name = path.into_os_string().into_vec();
                Input::Literal(if name.starts_with(b"-") { [b"./", &*name].concat() } else { name })
            }
            other => other,
        }
    }

    /// The input if none was named: what is piped in, or else nothing. A terminal or another device is not read, because
    /// nobody might be there to write to it.
    pub(crate) fn unnamed() -> Input {
        let kind = (!sys::stdin_was_closed()).then(|| fstat(io::stdin()).ok()).flatten();
        let kind = kind.map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Some(FileType::Fifo | FileType::Socket | FileType::RegularFile) => Input::Piped,
            _ => Input::Literal(Vec::new()),
        }
    }

    /// Reads the input, at most `max` bytes. This may block, so do not call it on the thread of an event loop.
    pub(crate) fn load(self, max: u64) -> Result<Payload, Unreadable> {
        match self {
            Input::Literal(bytes) => check(bytes, max, "the input"),
            Input::Stdin => load_stdin(max),
            Input::Piped => {
                let _waiting = Waiting::begin();
                load_stdin(max)
            }
            Input::File(path) => load_file(open_file(&path, |path| File::open(path))?, max),
            Input::Listed(path) => load_file(open_file(&path, open_regular)?, max),
            Input::Opened(file) => file.load(max),
        }
    }

    /// As [`Input::load`], but of a large regular file only the first bytes are read.
    pub(crate) fn open(self, max: u64) -> Result<Payload, Unreadable> {
        let file = match self {
            Input::File(path) => open_file(&path, |path| File::open(path))?,
            Input::Listed(path) => open_file(&path, open_regular)?,
            other => return other.load(max),
        };
        let is_regular = file.file.metadata().is_ok_and(|metadata| metadata.is_file());
        if !is_regular || file.bytes <= FILE_INPUT_MIN as u64 || file.bytes > max {
            return load_file(file, max);
        }
        let media_type = type_of_head(&file)?;
        Ok(Payload { content: Content::File(Arc::new(file)), media_type })
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

/// Standard input. It is waited for also if it is non-blocking, which anybody who shares it can make it.
pub(crate) struct Stdin(io::Stdin);

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                other => return other,
            }
        }
    }
}

impl AsFd for Stdin {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Standard input. An error if the process was started without one, because a missing input is not an empty one.
pub(crate) fn stdin() -> io::Result<Stdin> {
    match sys::stdin_was_closed() {
        true => Err(io::Error::other("it is closed")),
        false => Ok(Stdin(io::stdin())),
    }
}

fn open_file(path: &Path, open: impl FnOnce(&Path) -> io::Result<File>) -> Result<OpenFile, Unreadable> {
    let name = text::printable(&path.to_string_lossy()).into_owned();
    let file = open(path).map_err(|error| unreadable(&name, &error))?;
    let bytes = file.metadata().map_err(|error| unreadable(&name, &error))?.len();
    Ok(OpenFile { file, bytes, name })
}

fn load_file(file: OpenFile, max: u64) -> Result<Payload, Unreadable> {
    let OpenFile { file, bytes, name } = file;
    if bytes > max {
        return Err(too_large(&name, Some(bytes), max));
    }
    read(file, bytes, max, &name)
}

fn load_stdin(max: u64) -> Result<Payload, Unreadable> {
    let stdin = stdin().map_err(|error| unreadable(STDIN, &error))?;
    read(stdin, 0, max, STDIN)
}

/// While this lives, somebody waits for standard input without having said so. A message says it if that takes long.
struct Waiting {
    _ended: Sender<()>,
}

impl Waiting {
    fn begin() -> Waiting {
        let (ended, is_over) = channel::<()>();
        // If there is no thread, there is no message.
        let _ = std::thread::Builder::new().name("offload-wait".to_owned()).spawn(move || {
            if is_over.recv_timeout(STDIN_TOLD_AFTER) == Err(RecvTimeoutError::Timeout) {
                say("no INPUT was named, so the input is read from standard input, which does not end yet; for a job without input, \
                     say < /dev/null");
            }
        });
        Waiting { _ended: ended }
    }
}

/// The media type of a file, by its first bytes. A character may be cut off at their end.
fn type_of_head(file: &OpenFile) -> Result<MediaType, Unreadable> {
    let head = FromStart { file: &file.file, at: 0 };
    let mut bytes = Vec::new();
    head.take(FILE_INPUT_MIN as u64)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(&file.name, &error))?;
    let is_text = match std::str::from_utf8(&bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    Ok(if is_text { MediaType::TEXT } else { MediaType::OCTET_STREAM })
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
    Ok(Payload { content: Content::Bytes(bytes.into()), media_type })
}

fn unreadable(name: &str, error: &io::Error) -> Unreadable {
    let remedy = match error.kind() {
        io::ErrorKind::IsADirectory => {
            format!("; for a job for each file in it, say: find {name} -type f | offload map TASK --files")
        }
        _ => String::new(),
    };
    Unreadable { code: OutcomeCode::IoError, message: format!("cannot read {name}: {error}{remedy}") }
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

    fn bytes(loaded: Result<Payload, Unreadable>) -> Bytes {
        match loaded.unwrap().content {
            Content::Bytes(bytes) => bytes,
            Content::File(file) => panic!("{file:?}"),
        }
    }

    #[test]
    fn a_large_regular_file_is_opened_and_everything_else_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input");
        let large = FILE_INPUT_MIN + 1;
        // A character of three bytes is cut off where the head ends.
        let text = "\u{20ac}".repeat(large / 3 + 1);
        for (content, media_type) in
            [(text.as_bytes(), MediaType::TEXT), (&vec![0xff; large], MediaType::OCTET_STREAM)]
        {
            std::fs::write(&path, content).unwrap();
            let max = content.len() as u64;
            let Payload { content: opened, media_type: of_head } =
                Input::File(path.clone()).open(max).unwrap();
            let Content::File(file) = &opened else { panic!("{opened:?}") };
            assert_eq!((of_head, file.bytes), (media_type, max));
            assert!(bytes(Input::Opened(Arc::clone(file)).open(max)) == content);
            let refusal = Input::File(path.clone()).open(max - 1).unwrap_err();
            assert_eq!(refusal.code, OutcomeCode::TooLarge);
        }
        std::fs::write(&path, vec![b'x'; FILE_INPUT_MIN]).unwrap();
        assert_eq!(bytes(Input::Listed(path).open(1 << 20)).len(), FILE_INPUT_MIN);
        assert_eq!(bytes(Input::Literal(b"a".to_vec()).open(10)), "a");
        assert_eq!(bytes(Input::File("/dev/null".into()).open(10)), "");
    }

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
    fn in_a_command_a_file_is_its_name_and_no_option() {
        for (input, named) in [
            (Input::File("a b".into()), "a b"),
            (Input::Listed("-rf".into()), "./-rf"),
            (Input::Literal(b"-5".to_vec()), "-5"),
        ] {
            assert_eq!(input.named(), Input::Literal(named.as_bytes().to_vec()));
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
        assert_eq!(bytes(Input::File(path.clone()).load(5)), "12345");
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
        assert_eq!(bytes(Input::Listed(file).load(5)), "12345");
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
