//! The socket that clients connect to, and how it is created.
//!
//! ```text
//! check the path -> private directory -> lock -> bind under a name of our own -> chmod 0600 -> rename over the name
//! ```
//!
//! The order ensures that nothing is changed before it is certain that no other supervisor uses the socket, and that
//! the socket is private and listening as soon as it can be found. A socket that a killed supervisor left behind is
//! replaced. Any other file of that name is left alone.

use super::connection::Connection;
use super::directory::{PrivateDirectory, is_socket};
use super::lock::{Lock, LockAnswer};
use super::peer::is_same_user;
use super::socket_state::{self, Identity, SocketState};
use crate::input_file::FilePlaces;
use crate::limits::{OTHER_USERS_PER_CALL_MAX, SOCKET_PATH_MAX};
use crate::origin::Origin;
use interprocess::local_socket::traits::Listener as _;
use interprocess::local_socket::{GenericFilePath, ListenerNonblockingMode, ListenerOptions, ToFsName};
use interprocess::os::unix::uds_local_socket as uds;
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Why the socket cannot be created.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// Another supervisor owns the socket. That supervisor is not disturbed.
    AlreadyRunning {
        /// The socket.
        socket: PathBuf,
        /// The process that owns the socket. None if that process has only just begun.
        pid: Option<u32>,
        /// Whether there is a socket to connect to.
        listens: bool,
    },
    /// The socket must not or cannot be at this path: choose another path, or repair what is wrong there.
    Unsuitable {
        /// The path that is unsuitable: the socket, its directory or a directory above that.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A system call failed.
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The path that it was attempted with.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
}

impl BindError {
    pub(super) fn io(doing: &'static str, path: &Path, error: impl Into<io::Error>) -> BindError {
        BindError::Io { doing, path: path.to_owned(), error: error.into() }
    }

    /// For errors of the event loop.
    pub(crate) fn other(doing: &'static str, error: &impl fmt::Display) -> BindError {
        BindError::Io { doing, path: PathBuf::from("the socket"), error: io::Error::other(error.to_string()) }
    }

    pub(super) fn unsuitable(path: &Path, reason: impl Into<String>) -> BindError {
        BindError::Unsuitable { path: path.to_owned(), reason: reason.into() }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::AlreadyRunning { socket, pid, listens } => {
                let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
                let state =
                    if *listens { "" } else { ", but does not listen there now: it is starting or ending" };
                write!(formatter, "another supervisor{pid} owns {}{state}", socket.display())
            }
            BindError::Unsuitable { path, reason } => {
                write!(formatter, "cannot use {}: {reason}", path.display())
            }
            BindError::Io { doing, path, error } => {
                write!(formatter, "cannot {doing} {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BindError::AlreadyRunning { .. } | BindError::Unsuitable { .. } => None,
            BindError::Io { error, .. } => Some(error),
        }
    }
}

/// Why no connection was accepted.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptError {
    /// Descriptors or memory are used up. The connection still waits, so the socket stays readable: pause before
    /// accepting again, or the event loop spins.
    Exhausted(io::Error),
    /// The socket itself failed and cannot be used any more.
    Io(io::Error),
}

impl From<io::Error> for AcceptError {
    fn from(error: io::Error) -> AcceptError {
        match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => AcceptError::Exhausted(error),
            _ => AcceptError::Io(error),
        }
    }
}

impl fmt::Display for AcceptError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptError::Exhausted(error) => write!(formatter, "cannot accept for now: {error}"),
            AcceptError::Io(error) => write!(formatter, "cannot accept: {error}"),
        }
    }
}

impl std::error::Error for AcceptError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AcceptError::Exhausted(error) | AcceptError::Io(error) => Some(error),
        }
    }
}

/// The socket that clients connect to. Dropping it removes the socket and then releases the lock.
#[must_use = "dropping it removes the socket"]
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    name: PathBuf,
    socket: Rc<uds::Listener>,
    /// Device and inode of the socket's file, by which it is recognized.
    identity: Identity,
    origin: Origin,
    /// Readable after a change in the directory.
    changes: Option<Rc<OwnedFd>>,
    other_users: Cell<u64>,
    directory: PrivateDirectory,
    /// The socket is ours while this lock is held. It is the last field, so that it is released last.
    lock: Lock,
}

impl Listener {
    /// Listens at `path`, which has at most [`SOCKET_PATH_MAX`] bytes, in a directory that only our user can enter.
    /// The directory is created if it does not exist.
    ///
    /// # Errors
    /// See [`BindError`]. No error affects a supervisor that listens at `path` already.
    pub fn bind(path: &Path) -> Result<Listener, BindError> {
        let name = name_of(path)?;
        let directory = PrivateDirectory::open_or_create(parent_of(path))?;
        let lock = take_lock(&directory, &name, path)?;
        refuse_other_file(&directory, &name, path)?;
        let (socket, identity) =
            open_socket(&directory, &lock, &name).map_err(|error| BindError::io("listen at", path, error))?;
        Ok(Listener {
            path: path.to_owned(),
            name,
            socket: Rc::new(socket),
            identity,
            origin: Origin::here(),
            changes: socket_state::watch_changes(&directory).map(Rc::new),
            other_users: Cell::new(0),
            directory,
            lock,
        })
    }

    /// Generations of earlier supervisors that were killed and may have left processes behind.
    pub fn generations(&self) -> &[String] {
        self.lock.generations()
    }

    /// Writes these generations to the lock file, so that the next supervisor can find the processes that outlive
    /// their supervisor if this one is killed: the generation of this supervisor, and those of earlier ones that have
    /// processes left.
    ///
    /// # Errors
    /// If the lock file cannot be written.
    pub fn set_generations(&mut self, generations: Vec<String>) -> io::Result<()> {
        self.lock.set_generations(generations)
    }

    /// The path of the socket, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor to watch: readable while connections wait to be accepted.
    pub fn socket(&self) -> Rc<uds::Listener> {
        Rc::clone(&self.socket)
    }

    /// A descriptor that is readable after changes in the directory; then call [`Listener::state`]. None if the
    /// kernel does not report changes.
    pub fn changes(&self) -> Option<Rc<OwnedFd>> {
        self.changes.clone()
    }

    /// Whether the directory has changed since the last call.
    pub fn has_changed(&self) -> bool {
        self.changes.as_deref().is_some_and(socket_state::has_changed)
    }

    /// Whether clients still find the socket, and no other supervisor can take it over.
    pub fn state(&self) -> SocketState {
        if !self
            .lock
            .identity()
            .is_ok_and(|lock| socket_state::is_at(&socket_state::lock_path(&self.path), lock))
        {
            return SocketState::LockLost;
        }
        match socket_state::is_at(&self.path, self.identity) {
            true => SocketState::Sound,
            false => SocketState::SocketLost,
        }
    }

    /// Puts a new socket in the place of one that was lost. Afterwards [`Listener::socket`] is another descriptor to
    /// watch. Call this only while the lock is still held.
    ///
    /// # Errors
    /// The same as for [`Listener::bind`]. The old socket stays, but no client can find it.
    pub fn listen_again(&mut self) -> Result<(), BindError> {
        refuse_other_file(&self.directory, &self.name, &self.path)?;
        let (socket, identity) = open_socket(&self.directory, &self.lock, &self.name)
            .map_err(|error| BindError::io("listen at", &self.path, error))?;
        self.socket = Rc::new(socket);
        self.identity = identity;
        Ok(())
    }

    /// Number of peers that were turned away because they belong to another user.
    pub fn other_users(&self) -> u64 {
        self.other_users.get()
    }

    /// Accepts the next connection, which accepts payloads of up to `payload_max` bytes, and files while there are places.
    /// `None` if no more connections
    /// wait.
    ///
    /// A peer of another user is closed before one byte of it is read. After many of them in a row `None` is returned
    /// early, so that they cannot hold up the event loop; the socket is still readable then.
    ///
    /// # Errors
    /// See [`AcceptError`].
    pub fn accept(&self, payload_max: usize, files: &FilePlaces) -> Result<Option<Connection>, AcceptError> {
        for _ in 0..OTHER_USERS_PER_CALL_MAX {
            let stream = match self.socket.accept() {
                Ok(stream) => UnixStream::from(OwnedFd::from(stream)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // This peer went away before it was accepted. Others may wait behind it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error.into()),
            };
            if is_same_user(&stream) {
                return Ok(Some(Connection::new(stream, payload_max, files.clone())));
            }
            self.other_users.set(self.other_users.get().saturating_add(1));
        }
        Ok(None)
    }
}

impl Drop for Listener {
    /// Removes the socket, unless another socket has been put in its place. A forked child leaves it to its parent, which listens on.
    fn drop(&mut self) {
        if self.origin.is_here()
            && let Ok(Some(stat)) = self.directory.look_up(&self.name)
            && socket_state::identity_of(&stat) == self.identity
        {
            // An error cannot be reported here. The next supervisor replaces what remains.
            let _ = self.directory.remove(&self.name);
        }
    }
}

fn name_of(path: &Path) -> Result<PathBuf, BindError> {
    let length = path.as_os_str().as_bytes().len();
    if length > SOCKET_PATH_MAX {
        let reason = format!("the path has {length} bytes; a socket's has at most {SOCKET_PATH_MAX}");
        return Err(BindError::unsuitable(path, reason));
    }
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(BindError::unsuitable(path, "it has a zero byte"));
    }
    match path.file_name() {
        Some(name) => Ok(PathBuf::from(name)),
        None => Err(BindError::unsuitable(path, "it does not end with a file name")),
    }
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn take_lock(directory: &PrivateDirectory, name: &Path, path: &Path) -> Result<Lock, BindError> {
    let mut lock_name = OsString::from(name);
    lock_name.push(".lock");
    match Lock::try_take(directory, Path::new(&lock_name)) {
        Ok(LockAnswer::Got(lock)) => Ok(lock),
        Ok(LockAnswer::Taken { pid }) => {
            let listens = directory.look_up(name).is_ok_and(|stat| stat.is_some_and(|stat| is_socket(&stat)));
            Err(BindError::AlreadyRunning { socket: path.to_owned(), pid, listens })
        }
        Err(error) => Err(BindError::io("take the lock of", path, error)),
    }
}

fn refuse_other_file(directory: &PrivateDirectory, name: &Path, path: &Path) -> Result<(), BindError> {
    match directory.look_up(name) {
        Ok(Some(stat)) if !is_socket(&stat) => {
            Err(BindError::unsuitable(path, "there is a file of this name that is no socket"))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(BindError::io("look at", path, error)),
    }
}

/// Listens under a temporary name, and gives the socket its real name once it is private.
fn open_socket(
    directory: &PrivateDirectory,
    lock: &Lock,
    name: &Path,
) -> io::Result<(uds::Listener, Identity)> {
    // Only the holder of the lock uses this name, so a file of this name was left behind by a holder that is dead.
    let temporary = PathBuf::from(format!(".{}.new", lock.inode()?));
    directory.remove(&temporary)?;
    let result =
        listen(directory, &temporary).and_then(|socket| Ok((socket, publish(directory, &temporary, name)?)));
    if result.is_err() {
        // The first error is the one to report.
        let _ = directory.remove(&temporary);
    }
    result
}

fn listen(directory: &PrivateDirectory, temporary: &Path) -> io::Result<uds::Listener> {
    let path = directory.short_path(temporary);
    ListenerOptions::new()
        .name(path.as_os_str().to_fs_name::<GenericFilePath>()?)
        .nonblocking(ListenerNonblockingMode::Both)
        // The file is renamed, and we remove it ourselves.
        .reclaim_name(false)
        .create_sync_as()
}

/// Makes the socket private, then gives it its real name. Returns the identity of its file.
fn publish(directory: &PrivateDirectory, temporary: &Path, name: &Path) -> io::Result<Identity> {
    directory.make_private(temporary)?;
    let stat = directory.look_up(temporary)?.ok_or(io::ErrorKind::NotFound)?;
    directory.rename(temporary, name)?;
    Ok(socket_state::identity_of(&stat))
}

#[cfg(test)]
mod tests {
    use super::super::tests::private_folder;
    use super::*;

    #[test]
    fn a_forked_child_leaves_the_socket_to_its_parent_and_its_maker_removes_it() {
        let folder = private_folder();
        let path = folder.path().join("socket");
        let mut listener = Listener::bind(&path).unwrap();
        listener.origin = Origin::elsewhere();
        drop(listener);
        assert!(path.exists());
        drop(Listener::bind(&path).unwrap());
        assert!(!path.exists());
    }
}
