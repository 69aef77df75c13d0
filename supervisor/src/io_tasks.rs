//! The tasks that need no worker: `fs.read`, `fs.stat` and `dns.lookup`. They wait for a disk or for the network, on the
//! threads of an I/O pool.
//!
//! | task | input | output |
//! |---|---|---|
//! | `fs.read` | `{"path"}` | the bytes of the file |
//! | `fs.stat` | `{"path"}` | `{"bytes","modified_ms","mode"}` |
//! | `dns.lookup` | `{"host"}` | `{"addresses"}`, in the system's order of preference |
//!
//! A path is looked up by the kernel (`openat2`), below one directory: it cannot lead out, by `..`, by a symbolic link, by a
//! magic link of /proc, or because somebody renames a directory meanwhile. Only regular files are opened, and nothing that could
//! block, as a FIFO without a writer does.
//!
//! An input that is not what the task takes ends as `app_error`, and whatever the system refuses as `io_error`.

use crate::limits::{ADDRESSES_MAX, HOST_MAX, IO_INPUT_MAX, LOOK_UPS_MAX};
use bytes::Bytes;
use offload_event_loop::Context;
use offload_event_loop::io_pool::{IoError, IoHandle, Lane, TaskId};
use offload_protocol::nouns::{DescribedTask, MediaType, OutcomeCode, TaskDescription, TaskOffer};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::json;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

const READ: &str = "fs.read";
const STAT: &str = "fs.stat";
const LOOK_UP: &str = "dns.lookup";

/// A job of one of these tasks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IoTask {
    Read { path: String },
    Stat { path: String },
    LookUp { host: String },
}

/// The output and its media type, or the outcome and why.
pub(crate) type IoEnd = Result<(MediaType, Bytes), (OutcomeCode, String)>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct PathInput {
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct HostInput {
    host: String,
}

impl IoTask {
    /// The job of this task with this input. The loop reads it, because it is short.
    ///
    /// # Errors
    /// Why the input is not what the task takes.
    pub(crate) fn of(task: &str, input: &[u8]) -> Result<IoTask, String> {
        if input.len() > IO_INPUT_MAX {
            let length = input.len();
            return Err(format!("the input has {length} bytes, {task} takes at most {IO_INPUT_MAX}"));
        }
        let wrong = |error: serde_json::Error| format!("the input is not what this task takes: {error}");
        let path = || serde_json::from_slice(input).map(|PathInput { path }| path).map_err(wrong);
        match task {
            READ => path().map(|path| IoTask::Read { path }),
            STAT => path().map(|path| IoTask::Stat { path }),
            LOOK_UP => {
                let HostInput { host } = serde_json::from_slice(input).map_err(wrong)?;
                let is_name = (1..=HOST_MAX).contains(&host.len()) && !host.contains('\0');
                let wrong =
                    format!("the host has {} bytes; it must have 1 to {HOST_MAX}, and no NUL", host.len());
                if is_name { Ok(IoTask::LookUp { host }) } else { Err(wrong) }
            }
            _ => Err(format!("{task} is no task of the supervisor")),
        }
    }

    /// Does it on a thread of `io`, with files of at most `max_bytes`. `done` is called on the loop, later, exactly once.
    pub(crate) fn submit(
        self,
        io: &IoHandle,
        root: &Root,
        max_bytes: usize,
        done: impl FnOnce(IoEnd) + 'static,
    ) -> TaskId {
        let (io, root) = (io.on_lane(Lane::Slow), root.clone());
        match self {
            IoTask::Read { path } => {
                let open = {
                    let path = path.clone();
                    move || root.open_file(&path)
                };
                io.fs_read_with(open, max_bytes, move |_, result| {
                    let output = result.map(|contents| (MediaType::OCTET_STREAM, contents.into()));
                    done(output.map_err(|error| failure(&format!("cannot read {path:?}"), &error)));
                })
            }
            IoTask::Stat { path } => {
                let stat = {
                    let path = path.clone();
                    move || root.stat(&path)
                };
                io.submit(stat, move |_: &mut Context, result| {
                    let output = result.and_then(|stat| stat.map_err(IoError::Io));
                    done(output.map_err(|error| failure(&format!("cannot look at {path:?}"), &error)));
                })
            }
            IoTask::LookUp { host } => {
                let named = host.clone();
                io.dns_lookup(host, 0, move |_, result| {
                    let output = result.map(|addresses| document(&addresses_of(&addresses)));
                    done(output.map_err(|error| failure(&format!("cannot look up {named:?}"), &error)));
                })
            }
        }
    }
}

fn addresses_of(addresses: &[SocketAddr]) -> serde_json::Value {
    let addresses: Vec<String> =
        addresses.iter().take(ADDRESSES_MAX).map(|address| address.ip().to_string()).collect();
    json!({ "addresses": addresses })
}

fn document(value: &serde_json::Value) -> (MediaType, Bytes) {
    (MediaType::JSON, value.to_string().into())
}

/// The outcome of a job that failed with `error`, while it did `what`.
fn failure(what: &str, error: &IoError) -> (OutcomeCode, String) {
    let code = match error {
        IoError::Panicked(_) => OutcomeCode::IoPanic,
        IoError::TimedOut { .. } => OutcomeCode::Timeout,
        IoError::Cancelled => OutcomeCode::Cancelled,
        _ => OutcomeCode::IoError,
    };
    (code, format!("{what}: {}", reason(error)))
}

fn reason(error: &IoError) -> String {
    let errno = match error {
        IoError::Io(error) => Errno::from_io_error(error),
        IoError::TooLarge { max_bytes } => {
            return format!("it has more than {max_bytes} bytes, the limit is max_payload");
        }
        _ => None,
    };
    match errno {
        Some(Errno::XDEV) => "it leads out of the directory that may be read (io.root)".to_owned(),
        Some(Errno::AGAIN) => "directories above it are being renamed".to_owned(),
        _ => error.to_string(),
    }
}

/// The directory below which files may be read. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Root(Arc<OwnedFd>);

impl Root {
    /// The directory at `path`, whatever becomes of the path later.
    ///
    /// # Errors
    /// If it is no directory that can be opened, or the kernel has no `openat2` (before Linux 5.6).
    pub(crate) fn open(path: &Path) -> io::Result<Root> {
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Root(Arc::new(open(path, directory, Mode::empty())?));
        root.look_up(".", OFlags::PATH)?;
        Ok(root)
    }

    fn look_up(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        let mut look_ups = 0;
        loop {
            look_ups += 1;
            match openat2(&self.0, path, flags, Mode::empty(), resolve) {
                // Something was renamed meanwhile, so the kernel does not know whether `..` stayed below the directory.
                Err(Errno::AGAIN) if look_ups < LOOK_UPS_MAX => {}
                result => return Ok(result?),
            }
        }
    }

    /// A regular file. What else there may be at the path is not opened: that could wait, or do something.
    fn open_file(&self, path: &str) -> io::Result<File> {
        regular(&self.look_up(path, OFlags::PATH)?)?;
        // Whatever was put in its place since then does not block either.
        let file = self.look_up(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        regular(&file)?;
        Ok(File::from(file))
    }

    fn stat(&self, path: &str) -> io::Result<(MediaType, Bytes)> {
        let file = self.look_up(path, OFlags::PATH)?;
        regular(&file)?;
        let stat = fstat(&file)?;
        let modified_ms = i128::from(stat.st_mtime) * 1000 + i128::from(stat.st_mtime_nsec) / 1_000_000;
        let modified_ms = i64::try_from(modified_ms).unwrap_or(i64::MAX);
        let mode = format!("{:04o}", stat.st_mode & 0o7777);
        Ok(document(&json!({"bytes": stat.st_size, "modified_ms": modified_ms, "mode": mode})))
    }
}

fn regular(file: &OwnedFd) -> io::Result<()> {
    let is = match FileType::from_raw_mode(fstat(file)?.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    };
    Err(io::Error::other(format!("it is {is}, and only regular files are read")))
}

/// What these tasks promise and say of themselves.
pub fn offers() -> Vec<(TaskOffer<'static>, DescribedTask)> {
    let path = r#"{"path":"notes.txt"}"#;
    let read = "the bytes of a regular file below the directory io.root, at most max_payload";
    let stat = "size, time of change and mode of a regular file below the directory io.root";
    let look_up = "the addresses of a host, as the system knows them";
    vec![
        offer(READ, read, MediaType::OCTET_STREAM, path, &schema("path", None)),
        offer(STAT, stat, MediaType::JSON, path, &schema("path", None)),
        offer(LOOK_UP, look_up, MediaType::JSON, r#"{"host":"localhost"}"#, &schema("host", Some(HOST_MAX))),
    ]
}

fn offer(
    name: &'static str,
    description: &str,
    produces: MediaType,
    example: &str,
    schema: &serde_json::Value,
) -> (TaskOffer<'static>, DescribedTask) {
    let offer =
        TaskOffer { idempotent: true, lane: offload_protocol::nouns::Lane::Io, ..TaskOffer::new(name) };
    let about = TaskDescription {
        description: description.to_owned(),
        accepts: vec![MediaType::JSON],
        produces,
        ..TaskDescription::default()
    };
    let example = example.as_bytes().into();
    (offer, DescribedTask { about, example, schema: schema.to_string().into() })
}

fn schema(name: &str, longest: Option<usize>) -> serde_json::Value {
    let mut text = json!({"type": "string", "minLength": 1});
    if let Some(longest) = longest {
        text["maxLength"] = longest.into();
    }
    json!({"type": "object", "properties": {name: text}, "required": [name], "additionalProperties": false})
}

#[cfg(test)]
mod tests;
