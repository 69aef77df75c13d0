//! How settings of the interface over HTTP go together.

use super::Values;
use super::table::SOCKET;
use offload_http::{Address, Route, RouteTable, lock_path};
use offload_supervisor::units::show_size;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the keys of the interface over HTTP begin with.
pub(super) const HTTP_KEYS: &str = "http.";
/// Where HTTP is answered.
pub(super) const LISTEN: &str = "http.listen";
/// The file of the token beside the supervisor's own socket, if no other is named.
pub(crate) const TOKEN_FILE: &str = "http.token";
/// Links that are followed from one to the next, as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// Whoever reaches the port can try tokens, so it takes a second setting to let other machines try.
fn addresses_are_of_this_machine(values: &Values) -> Result<(), String> {
    let is_beyond =
        |text: &&String| text.parse::<Address>().is_ok_and(|address| address.is_beyond_this_machine());
    match values.http.listen.iter().find(is_beyond).filter(|_| !values.http.is_public) {
        Some(address) => Err(format!(
            "{address} can be reached from other machines: use 127.0.0.1, or say --http-public if you mean it"
        )),
        None => Ok(()),
    }
}

pub(super) fn addresses_go_together(values: &Values) -> Result<(), String> {
    addresses_are_of_this_machine(values)?;
    let mut seen = Vec::new();
    for text in &values.http.listen {
        let Ok(address) = text.parse::<Address>() else { continue };
        if seen.contains(&address) && !is_another_each_time(&address) {
            return Err(format!("{address} is there twice: leave one of them out"));
        }
        if let Some(other) = seen.iter().find(|other| are_one_port(other, &address)) {
            return Err(format!("{other} and {address} overlap: leave one of them out"));
        }
        seen.push(address);
    }
    Ok(())
}

/// Port 0 stands for any port that is free.
fn is_another_each_time(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == 0)
}

/// Whether a connection to the same address could be of both. Linux lets only one of them listen.
fn are_one_port(one: &Address, other: &Address) -> bool {
    let (Address::Tcp(one), Address::Tcp(other)) = (one, other) else { return false };
    let has_all_of = |wide: IpAddr, narrow: IpAddr| match wide {
        IpAddr::V4(_) => wide.is_unspecified() && narrow.is_ipv4(),
        // IPv4 comes to such a socket, too.
        IpAddr::V6(_) => wide.is_unspecified(),
    };
    let [a, b] = [one, other].map(|address| address.ip().to_canonical());
    one.port() == other.port() && one.port() != 0 && (a == b || has_all_of(a, b) || has_all_of(b, a))
}

/// All that a supervisor makes, or writes to, is a file of its own: neither another of these, nor one that it reads. `socket` is its own
/// socket, if that is known, and `file` the configuration.
pub(super) fn files_are_different(
    values: &Values,
    socket: Option<&Path>,
    file: Option<&Path>,
) -> Result<(), (&'static str, String)> {
    let http = &values.http;
    // A service manager may have opened the sockets, and then none is listed.
    if http.listen.is_empty() && http.token_file.is_none() && http.access_log.is_none() {
        return Ok(());
    }
    // A certificate and its key may be one file: what is only read is not compared with itself.
    let read = [
        (file, "the configuration file"),
        (http.tls.certificate.as_deref(), "the certificate for TLS"),
        (http.tls.key.as_deref(), "the key for TLS"),
    ];
    let read = read.into_iter().filter_map(|(path, what)| Some((path?.to_owned(), what.to_owned())));
    let mut files: Vec<(PathBuf, String)> = read.collect();
    let mut add = |key: &'static str, path: PathBuf, what: String| {
        if let Some((_, other)) = files.iter().find(|(known, _)| is_same_file(known, &path)) {
            let twice = format!(
                "{} is there twice: it is {other}, and {what}; name another path for one",
                path.display()
            );
            return Err((key, twice));
        }
        files.push((path, what));
        Ok(())
    };
    if let Some(socket) = socket {
        add(SOCKET, socket.to_owned(), "the supervisor's own socket".to_owned())?;
        add(SOCKET, lock_path(socket), "the lock of the supervisor's own socket".to_owned())?;
    }
    for address in values.http.listen.iter().filter_map(|text| text.parse::<Address>().ok()) {
        let Address::Unix(path) = &address else { continue };
        add(LISTEN, path.clone(), format!("the socket {address}"))?;
        add(LISTEN, lock_path(path), format!("the lock of {address}"))?;
    }
    let of_default = || socket.map(|socket| socket.with_file_name(TOKEN_FILE));
    if let Some(path) = values.http.token_file.clone().or_else(of_default) {
        add("http.token_file", path, "the file of the token".to_owned())?;
    }
    match values.http.access_log.clone() {
        Some(path) => add("http.access_log", path, "the access log".to_owned()),
        None => Ok(()),
    }
}

/// Whatever the paths are: links are followed, and the files need not be there.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|about| (about.dev(), about.ino()));
    one == other
        || identity(one).is_some_and(|its| identity(other) == Some(its))
        || place(one).is_some_and(|its| place(other) == Some(its))
}

/// The folder and the name of the file that is meant, also if it is yet to be made.
fn place(path: &Path) -> Option<(PathBuf, OsString)> {
    let folder = |path: &Path| match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = path.read_link() else { break };
        path = folder(&path).join(target);
    }
    Some((folder(&path).canonicalize().ok()?, path.file_name()?.to_owned()))
}

pub(super) fn routes_go_together(values: &Values) -> Result<(), String> {
    let is_home = |route: &Route| route.method.as_str() == "GET" && route.path == "/";
    if values.http.has_page && values.routes.iter().any(is_home) {
        return Err(
            "a route for GET / is not reached while http.page is on: leave one of them out".to_owned()
        );
    }
    RouteTable::new(values.routes.clone()).map(drop).map_err(|error| error.to_string())
}

/// A route can only lower the limit. This is checked where routes are served, and not in `run` or `map`: these read the same file,
/// and may have a lower `max_payload` for themselves.
pub(super) fn bodies_are_within_payloads(values: &Values) -> Result<(), String> {
    let most = values.pool.core.max_payload;
    for (index, route) in values.routes.iter().enumerate() {
        if let Some(length) = route.max_body.filter(|length| *length > most) {
            let [length, most] = [length, most].map(show_size);
            return Err(format!(
                "max_body of route {}, {} {}: {length} is over max_payload, {most}: no input can be longer than that",
                index + 1,
                route.method,
                route.path
            ));
        }
    }
    Ok(())
}
