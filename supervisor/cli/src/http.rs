//! The HTTP interface of `serve`: where it listens, and the file with the token that its clients show.
//!
//! ```text
//!   --http ADDR, LISTEN_FDS ---> listeners --.
//!   the token file (made if need be) --------+--> offload_http::Server with the routes of its own interface
//!   --http-host, --http-cors, routes, log ---|
//!   certificate and key, for TLS ------------'
//! ```

mod log_file;
mod private_file;
mod tls;

use super::failure::Failure;
use super::startable::why_no_folder;
use super::sys;
use crate::configuration::{HttpValues, TOKEN_FILE, Values};
use log_file::{LogFile, MadeFile};
use offload_event_loop::LoopHandle;
use offload_http::api::{Access, SharedTokens, Tokens};
use offload_http::{
    AccessLog, AccessLogFormat, Address, BadAddress, Bound, Cors, RouteTable, Server, SharedRoutes,
    TrustedProxies,
};
use offload_supervisor::printer::{Printer, PrinterHandle};
use offload_supervisor::service::{Exchange, Service};
use private_file::{Links, read_private};
use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tls::LiveTls;

/// Longest token file that is read, in bytes.
const TOKEN_FILE_MAX: u64 = 4096;

/// Random bytes of a token that is made here.
const TOKEN_BYTES: usize = 32;

/// Sockets that a service manager may pass.
const PASSED_MAX: i32 = 64;

/// What is decided before the supervisor starts, so that a mistake in it costs nobody anything. It listens already.
pub(crate) struct Interface {
    bound: Vec<Bound>,
    access: Access,
    live: Live,
    connections: usize,
    has_page: bool,
    proxies: TrustedProxies,
    cancels_on_disconnect: bool,
    access_log: Option<OpenLog>,
}

/// Looks at the files and folders that the interface needs, without listening anywhere.
///
/// # Errors
/// The key to blame, and a sentence: one of them is missing or of no use.
pub(crate) fn check_files(values: &HttpValues) -> Result<(), (&'static str, String)> {
    let key = if values.tls.certificate.is_some() { "http.tls.certificate" } else { "http.tls.key" };
    LiveTls::read(&values.tls).map_err(|why| (key, why))?;
    let addresses = values.listen.iter().filter_map(|text| text.parse::<Address>().ok());
    for address in addresses {
        check_place(&address).map_err(|why| ("http.listen", why))?;
    }
    let why_no_tokens = |path: &Path| match path.symlink_metadata() {
        Ok(_) => read_tokens(path).err(),
        Err(_) => why_no_folders(path),
    };
    if let Some(why) = values.token_file.as_deref().and_then(why_no_tokens) {
        return Err(("http.token_file", why));
    }
    let why_no_log = |path: &Path| match path.metadata() {
        Ok(_) => LogFile::try_open(path).err(),
        Err(_) => why_no_folder_of(path),
    };
    match values.access_log.as_deref().and_then(why_no_log) {
        Some(why) => Err(("http.access_log", why)),
        None => Ok(()),
    }
}

/// # Errors
/// Why there can be no Unix socket there, as far as that can be seen without making it.
fn check_place(address: &Address) -> Result<(), String> {
    let Address::Unix(path) = address else { return Ok(()) };
    match why_no_folder_of(path) {
        Some(why) => Err(why),
        None => address.check_path().map_err(|error| format!("{}: {error}", path.display())),
    }
}

fn why_no_folder_of(path: &Path) -> Option<String> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).and_then(why_no_folder)
}

/// The same for a file whose folders are made if they are not there.
fn why_no_folders(path: &Path) -> Option<String> {
    let is_there = |folder: &&Path| folder.symlink_metadata().is_ok();
    path.ancestors().skip(1).find(is_there).and_then(why_no_folder)
}

/// What a reload exchanges.
#[derive(Clone)]
pub(crate) struct Live {
    tokens: SharedTokens,
    /// Where clients find the token.
    pub(crate) token_file: PathBuf,
    routes: SharedRoutes,
    tls: Option<LiveTls>,
    /// The file of the access log is opened again, because it may have been renamed.
    access_log: Option<(PathBuf, PrinterHandle)>,
}

impl Live {
    /// Reads the token file and the files for TLS again, opens the access log again, and takes the routes of this configuration.
    /// Nothing changes before what is returned is done.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn read_again(&self, values: &Values) -> Result<Exchange, String> {
        let tokens = read_tokens(&self.token_file)?;
        let routes = table(values)?;
        let tls = self.tls.clone().map(|tls| tls.read_again().map(|read| (tls, read))).transpose()?;
        let log = self.access_log.as_ref();
        let log = log.map(|(path, lines)| LogFile::open(path).map(|log| (lines.clone(), log))).transpose()?;
        let live = self.clone();
        Ok(Exchange::new(move || {
            live.tokens.replace(tokens);
            live.routes.replace(routes);
            if let Some((tls, read)) = tls {
                tls.exchange(&read);
            }
            if let Some((lines, LogFile { file, made })) = log {
                lines.continue_in(file);
                made.into_iter().for_each(MadeFile::stays);
            }
        }))
    }
}

fn proxies(values: &HttpValues) -> Result<TrustedProxies, Failure> {
    let parsed = values.trusted_proxies.iter().map(|text| text.parse());
    let parsed: Result<Vec<_>, _> = parsed.collect();
    parsed.map(TrustedProxies::new).map_err(|error| Failure::Usage(error.to_string()))
}

/// The access log, what writes it, and its file if that was made.
type OpenLog = (AccessLog, Printer, Option<MadeFile>);

fn access_log(values: &HttpValues) -> Result<Option<OpenLog>, Failure> {
    let Some(path) = &values.access_log else { return Ok(None) };
    let format = match values.access_log_format.as_str() {
        "json" => AccessLogFormat::Json,
        "common" => AccessLogFormat::Common,
        _ => AccessLogFormat::Combined,
    };
    let LogFile { file, made } = LogFile::open(path).map_err(Failure::Usage)?;
    let printer = Printer::to(file, Box::new(move |lost| format.lost(lost)));
    Ok(Some((AccessLog::new(printer.handle(), format), printer, made)))
}

fn table(values: &Values) -> Result<RouteTable, String> {
    RouteTable::new(values.routes.clone()).map_err(|error| error.to_string())
}

impl Interface {
    /// None if it is to listen nowhere. The token file is read, or made if it is not there; its default place is beside the socket.
    ///
    /// # Errors
    /// [`Failure::Usage`], if the token file cannot be used, or it cannot listen there.
    pub(crate) fn prepare(values: &Values, socket: &Path) -> Result<Option<Interface>, Failure> {
        let routes = SharedRoutes::new(table(values).map_err(Failure::Usage)?);
        let values = &values.http;
        let mut bound = listen_fds()?;
        bound.extend(listeners(&values.listen)?);
        if bound.is_empty() {
            return Ok(None);
        }
        bound.iter().try_for_each(|bound| check_reach(bound, values.is_public))?;
        let token_file = values.token_file.clone().unwrap_or_else(|| socket.with_file_name(TOKEN_FILE));
        let tokens = read_or_make_tokens(&token_file).map_err(Failure::Usage)?;
        let tls = LiveTls::read(&values.tls).map_err(Failure::Usage)?;
        let access_log = access_log(values)?;
        let lines = access_log.as_ref().map(|(_, printer, _)| printer.handle());
        let live = Live {
            tokens: SharedTokens::new(tokens),
            token_file,
            routes,
            tls,
            access_log: values.access_log.clone().zip(lines),
        };
        let access = Access {
            tokens: Some(live.tokens.clone()),
            hosts: values.hosts.clone(),
            cors: Cors::new(values.origins.clone()),
        };
        Ok(Some(Interface {
            bound,
            access,
            live,
            connections: values.max_connections,
            has_page: values.has_page,
            proxies: proxies(values)?,
            cancels_on_disconnect: values.cancels_on_disconnect,
            access_log,
        }))
    }

    /// What a reload exchanges.
    pub(crate) fn live(&self) -> &Live {
        &self.live
    }

    /// Whether connections over TCP speak TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.live.tls.is_some()
    }

    /// Connections that are to be set aside.
    pub(crate) fn connections(&self) -> usize {
        self.connections
    }

    /// Begins to answer, and returns where, and what has to stay as long as it answers: dropping it writes the last lines of the
    /// access log.
    ///
    /// # Errors
    /// The system refuses to watch the sockets.
    pub(crate) fn start(
        self,
        service: &Service,
        handle: &LoopHandle,
    ) -> io::Result<(Vec<Address>, Option<Printer>)> {
        let server = Server::new(service, handle);
        server.set_connections_max(service.other_connections());
        server.set_trusted_proxies(self.proxies);
        server.set_cancel_on_disconnect(self.cancels_on_disconnect);
        let (mut printer, mut made) = (None, None);
        if let Some((log, its_printer, its_file)) = self.access_log {
            server.set_access_log(log);
            (printer, made) = (Some(its_printer), its_file);
        }
        if let Some(tls) = &self.live.tls {
            server.set_tls(tls.in_use());
        }
        server.mount_api(self.access);
        if self.has_page {
            server.mount_page();
        }
        server.mount_routes(self.live.routes);
        let addresses: io::Result<_> =
            self.bound.into_iter().map(|bound| server.accept_from(bound)).collect();
        let addresses = addresses?;
        made.into_iter().for_each(MadeFile::stays);
        Ok((addresses, printer))
    }
}

/// The sockets that a service manager has opened for this process: `LISTEN_PID` says that they are for it, `LISTEN_FDS` how many
/// there are, from descriptor 3 on. Those for another process are left alone.
fn listen_fds() -> Result<Vec<Bound>, Failure> {
    let variable = |name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned());
    let count = passed_sockets(variable("LISTEN_PID"), variable("LISTEN_FDS"), std::process::id());
    (3..3 + count.map_err(Failure::Usage)?).map(descriptor).collect()
}

/// How many sockets these variables say that a process gets.
fn passed_sockets(process: Option<String>, count: Option<String>, own: u32) -> Result<i32, String> {
    let Some(process) = process else { return Ok(0) };
    let bad = |name: &str, what: &str, text: &str| {
        format!("{name} is {what}, not {text:?}: unset it, or set it right")
    };
    let process: u32 = process.parse().map_err(|_| bad("LISTEN_PID", "the ID of a process", &process))?;
    if process != own {
        return Ok(0);
    }
    let count = count.unwrap_or_default();
    let number = count.parse().ok().filter(|number| (0..=PASSED_MAX).contains(number));
    number.ok_or_else(|| bad("LISTEN_FDS", &format!("a number of sockets up to {PASSED_MAX}"), &count))
}

/// A socket that somebody else has opened may be reached from anywhere, too.
fn check_reach(bound: &Bound, is_public: bool) -> Result<(), Failure> {
    match bound.address() {
        Ok(address) if address.is_beyond_this_machine() && !is_public => Err(Failure::Usage(format!(
            "{address} can be reached from other machines: use 127.0.0.1, or say --http-public if you mean it"
        ))),
        _ => Ok(()),
    }
}

/// The sockets of these addresses, in this order. Those that were handed to this process are taken first: what is opened here could have
/// one of their numbers otherwise.
fn listeners(addresses: &[String]) -> Result<Vec<Bound>, Failure> {
    let parse = |text: &String| text.parse().map_err(|error: BadAddress| Failure::Usage(error.to_string()));
    let addresses: Vec<Address> = addresses.iter().map(parse).collect::<Result<_, _>>()?;
    let take = |address: &Address| match address {
        Address::Descriptor(number) => descriptor(*number).map(Some),
        Address::Tcp(_) | Address::Unix(_) => Ok(None),
    };
    let taken: Vec<Option<Bound>> = addresses.iter().map(take).collect::<Result<_, _>>()?;
    let listeners = addresses.iter().zip(taken);
    listeners.map(|(address, taken)| taken.map_or_else(|| bind(address), Ok)).collect()
}

fn descriptor(number: i32) -> Result<Bound, Failure> {
    let useless = |error| format!("descriptor {number} is of no use: {error}");
    let bound = sys::take_descriptor(number).and_then(|socket| Bound::of(socket).map_err(useless));
    bound.map_err(Failure::Usage)
}

fn read_or_make_tokens(path: &Path) -> Result<Tokens, String> {
    match make_token(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            let why = why_no_folders(path).unwrap_or_else(|| error.to_string());
            return Err(format!("cannot make the token file {}: {why}", path.display()));
        }
    }
    read_tokens(path)
}

/// Makes a file with a new token, unless there is one already. It gets its name when the token is in it, so it is never there
/// without one.
fn make_token(path: &Path) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The folder of the socket is made by whoever takes the socket, and that comes later.
    if !folder.exists() {
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .recursive(true)
            .create(folder)?;
    }
    let temporary = folder.join(format!(".http.token-{}", std::process::id()));
    let made = write_token(&temporary).and_then(|()| std::fs::hard_link(&temporary, path));
    let removed = std::fs::remove_file(&temporary);
    made.and(removed)
}

fn write_token(path: &Path) -> io::Result<()> {
    // One of this name is left over from a process that had this number, or somebody has put it there to read what is written.
    let _ = std::fs::remove_file(path);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
    let mut random = [0_u8; TOKEN_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "{token}")
}

/// Reads a token file that nobody else can have read or written.
fn read_tokens(path: &Path) -> Result<Tokens, String> {
    let told = |reason: String| format!("the token file {}: {reason}", path.display());
    let bytes = read_private(path, TOKEN_FILE_MAX, Links::Refused).map_err(told)?;
    let text = String::from_utf8(bytes).map_err(|_| told("it is no text".to_owned()))?;
    Tokens::parse(&text).map_err(told)
}

fn bind(address: &Address) -> Result<Bound, Failure> {
    let misplaced = |why| Failure::Usage(format!("cannot listen for HTTP at {address}: {why}"));
    check_place(address).map_err(misplaced)?;
    Bound::at(address).map_err(|error| not_bound(address, &error))
}

/// Why nobody can be answered at this address, and what to do about it.
fn not_bound(address: &Address, error: &io::Error) -> Failure {
    let remedy = match (address, error.kind()) {
        (Address::Tcp(_), io::ErrorKind::AddrInUse) => {
            "; another program listens there: choose another port, or end that program"
        }
        (Address::Tcp(_), io::ErrorKind::PermissionDenied) => {
            "; ports below 1024 are root's: choose a higher one, as in 127.0.0.1:8080"
        }
        (Address::Tcp(_), io::ErrorKind::AddrNotAvailable) => {
            "; this machine has no such address: 127.0.0.1 is one"
        }
        _ => "",
    };
    Failure::Usage(format!("cannot listen for HTTP at {address}: {error}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn values(listen: &[&str]) -> Values {
        let mut values = Values::default();
        values.http.listen = listen.iter().map(|&text| text.to_owned()).collect();
        values
    }

    #[test]
    fn without_an_address_there_is_no_interface_and_no_token_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Interface::prepare(&values(&[]), &folder.path().join("o.sock")).unwrap().is_none());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn variables_that_say_nothing_sound_of_sockets_are_refused() {
        let passed =
            |process: &str, count: &str| passed_sockets(Some(process.to_owned()), Some(count.to_owned()), 7);
        assert_eq!([passed("7", "2"), passed("7", "0"), passed("8", "junk")], [Ok(2), Ok(0), Ok(0)]);
        assert_eq!(passed_sockets(None, Some("2".to_owned()), 7), Ok(0));
        for (process, count) in [("7", "junk"), ("7", ""), ("7", "-1"), ("7", "65"), ("", "1"), ("7x", "1")] {
            let refused = passed(process, count).unwrap_err();
            assert!(refused.contains("LISTEN_"), "{refused}");
        }
    }

    #[test]
    fn the_token_is_made_once_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("inner/o.sock");
        let interface = Interface::prepare(&values(&["127.0.0.1:0"]), &socket).unwrap().unwrap();
        let token_file = &interface.live().token_file;
        assert_eq!(*token_file, folder.path().join("inner/http.token"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(token_file), mode(socket.parent().unwrap())), (0o600, 0o700));
        let token = std::fs::read_to_string(token_file).unwrap();
        assert_eq!(token.trim().len(), 2 * TOKEN_BYTES);
        Interface::prepare(&values(&["127.0.0.1:0"]), &socket).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(token_file).unwrap(), token, "it stays");
    }

    #[test]
    fn a_token_file_that_others_can_read_or_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let refusal = |values: &Values| match Interface::prepare(values, &folder.path().join("o.sock")) {
            Err(Failure::Usage(message)) => message,
            _ => panic!("it is refused"),
        };
        let mut named = values(&["127.0.0.1:0"]);
        named.http.token_file = Some(file.clone());
        std::fs::write(&file, "0123456789abcdef").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(refusal(&named).contains("chmod 600"));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&file, "short").unwrap();
        assert!(refusal(&named).contains("at least 16"));
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/null", &file).unwrap();
        assert!(refusal(&named).contains("token file"));
    }
}
