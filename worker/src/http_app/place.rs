//! Where an application listens.
//!
//! **A socket** is in a folder of its own, which is removed as soon as the application answers: the adapter keeps a handle of it, so
//! nothing is left behind when both are killed, and nobody else finds it (`folder.rs`).
//!
//! **A port** is reserved for as long as the adapter lives, by a socket that is bound to it and does not listen. So no other
//! adapter is given the same one, and whoever answers there is this application. Linux lets another socket listen there if it has the option
//! SO_REUSEADDR, which servers set in order to be restarted.

use super::folder::Folder;
use crate::limits::HTTP_APP_CONNECT_MAX;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;

/// What stands for the path of the socket in a command.
const SOCKET: &str = "{socket}";
/// What stands for the port in a command.
const PORT: &str = "{port}";

/// Checks that a command says where its application has to listen.
///
/// # Errors
/// A sentence for the person who wrote it.
pub fn check_command(words: &[String]) -> Result<(), String> {
    let has = |place: &str| words.iter().skip(1).any(|word| word.contains(place));
    match (has(SOCKET), has(PORT)) {
        (true, false) | (false, true) => Ok(()),
        (true, true) => Err(format!("an application listens at {SOCKET} or at {PORT}, not at both")),
        (false, false) => Err(format!(
            "it does not say where to listen: write {SOCKET} for the path of a Unix socket, or {PORT} for a port of 127.0.0.1, as in \
             `uvicorn app:app --uds {SOCKET}` or `env PORT={PORT} node server.js`"
        )),
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) enum Place {
    Named(Folder),
    /// A socket that needs no name any more.
    Held(OwnedFd),
    Port {
        port: u16,
        _reserved: OwnedFd,
    },
}

impl Place {
    /// A place for the application of this command, and the command with that in it.
    ///
    /// # Errors
    /// There is no place: no folder can be made, or all ports are taken.
    pub(super) fn for_command(words: &[OsString]) -> io::Result<(Place, Vec<OsString>)> {
        let has_port = words.iter().any(|word| filled(word, PORT, b"") != *word);
        let (place, pattern, value) = match has_port {
            true => {
                let (port, _reserved) = reserve_port()?;
                (Place::Port { port, _reserved }, PORT, port.to_string().into_bytes())
            }
            false => {
                let folder = Folder::new()?;
                let path = folder.socket().into_os_string().into_vec();
                (Place::Named(folder), SOCKET, path)
            }
        };
        Ok((place, words.iter().map(|word| filled(word, pattern, &value)).collect()))
    }

    /// A new connection.
    ///
    /// # Errors
    /// Nobody listens there, or the connection cannot be made. Where too many connections wait already, as at a stopped
    /// application, this waits until the time of the job, or of the start, is over for the supervisor.
    pub(super) fn connect(&self) -> io::Result<OwnedFd> {
        let stream: OwnedFd = match self {
            Place::Named(folder) => UnixStream::connect(folder.socket())?.into(),
            Place::Held(socket) => {
                UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))?.into()
            }
            Place::Port { port, .. } => {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
                let stream = TcpStream::connect_timeout(&address, HTTP_APP_CONNECT_MAX)?;
                stream.set_nodelay(true)?;
                stream.into()
            }
        };
        rustix::io::ioctl_fionbio(&stream, true)?;
        Ok(stream)
    }

    /// The application listens, so its socket needs no name any more. If that fails, it keeps the name.
    pub(super) fn forget_name(&mut self) {
        let Place::Named(folder) = self else { return };
        if let Ok(handle) = rustix::fs::open(folder.socket(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            *self = Place::Held(handle);
        }
    }
}

/// A port that nobody else gets, and the socket that keeps it.
fn reserve_port() -> io::Result<(u16, OwnedFd)> {
    let reserved = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::io::ioctl_fioclex(&reserved)?;
    sockopt::set_socket_reuseaddr(&reserved, true)?;
    bind(&reserved, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let bound = SocketAddrV4::try_from(getsockname(&reserved)?)?;
    Ok((bound.port(), reserved))
}

/// The word with `value` in each place of `pattern`.
fn filled(word: &OsString, pattern: &str, value: &[u8]) -> OsString {
    let (mut rest, mut all) = (word.as_bytes(), Vec::new());
    while let Some(at) = rest.windows(pattern.len()).position(|window| window == pattern.as_bytes()) {
        all.extend_from_slice(&rest[..at]);
        all.extend_from_slice(value);
        rest = &rest[at + pattern.len()..];
    }
    all.extend_from_slice(rest);
    OsString::from_vec(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    fn words(command: &str) -> Vec<OsString> {
        command.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_command_says_where_to_listen_once() {
        let check = |command: &str| check_command(&command.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!((check("a --uds={socket}"), check("a {port} {port}")), (Ok(()), Ok(())));
        assert!(check("a {port} {socket}").unwrap_err().contains("not at both"));
        assert!(check("a --port 80").unwrap_err().contains("where to listen"));
        assert!(check("{socket} a").is_err());
    }

    #[test]
    fn a_socket_is_reached_after_its_name_is_gone() {
        let (mut place, command) = Place::for_command(&words("app --uds={socket}")).unwrap();
        let path = PathBuf::from(command[1].to_str().unwrap().strip_prefix("--uds=").unwrap());
        assert!(place.connect().is_err());
        place.forget_name();
        let listener = UnixListener::bind(&path).unwrap();
        place.forget_name();
        assert!(!path.parent().unwrap().exists());
        let ours = place.connect().unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        rustix::io::write(&ours, b"x").unwrap();
        let mut byte = [0];
        theirs.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn a_port_is_of_one_application_alone() {
        let (place, command) = Place::for_command(&words("app 127.0.0.1:{port}")).unwrap();
        let address = command[1].to_str().unwrap().to_owned();
        // Listeners of the standard library have SO_REUSEADDR.
        let listener = TcpListener::bind(&address).unwrap();
        let ours = place.connect().unwrap();
        listener.accept().unwrap().0.write_all(b"x").unwrap();
        drop((ours, listener));
        let others: Vec<_> = (0..200).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let taken = |other: &TcpListener| other.local_addr().unwrap().to_string() == address;
        assert!(!others.iter().any(taken));
        assert!(TcpListener::bind(&address).is_ok(), "it may listen there again");
    }
}
