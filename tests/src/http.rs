//! A supervisor that answers HTTP, and the smallest client: it writes bytes as they are told and understands the answers. What a
//! library would refuse to send is just what has to be tried.

use crate::harness::{Daemon, PATIENCE, read_once};
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A supervisor with an HTTP address of its own.
#[derive(Debug)]
pub struct HttpDaemon {
    /// The supervisor.
    pub daemon: Daemon,
    /// Where it answers.
    pub address: String,
    /// The token that it wants to see.
    pub token: String,
}

impl HttpDaemon {
    /// Starts `offload serve --http 127.0.0.1:0` with these arguments.
    ///
    /// # Panics
    /// If it does not become ready in time.
    #[track_caller]
    pub fn start(arguments: &[&str]) -> HttpDaemon {
        let all: Vec<&str> = ["--http", "127.0.0.1:0"].iter().chain(arguments).copied().collect();
        HttpDaemon::of(Daemon::start(&all))
    }

    /// A supervisor that was started with an HTTP address.
    ///
    /// # Panics
    /// If it was not.
    #[track_caller]
    pub fn of(daemon: Daemon) -> HttpDaemon {
        let is_ready = |line: &str| line.contains("\"ready\"");
        let ready = daemon.stdout.find(is_ready, PATIENCE).expect("it is ready");
        let ready: Value = serde_json::from_str(&ready).expect("a document");
        let address = ready["http"].as_str().expect("it answers HTTP").to_owned();
        let token_file = ready["http_token_file"].as_str().expect("it has a token");
        let token = std::fs::read_to_string(token_file).expect("our own file").trim().to_owned();
        HttpDaemon { daemon, address, token }
    }

    /// A connection.
    ///
    /// # Panics
    /// If there is none to be had.
    #[track_caller]
    pub fn connect(&self) -> HttpConnection {
        self.connected(TcpStream::connect(&self.address).expect("it listens"))
    }

    /// A connection from another address of this machine, which counts as another client.
    ///
    /// # Panics
    /// If there is none to be had.
    #[track_caller]
    pub fn connect_from(&self, address: [u8; 4]) -> HttpConnection {
        self.connected(stream_from(address, &self.address))
    }

    fn connected(&self, stream: TcpStream) -> HttpConnection {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        HttpConnection {
            stream: BufReader::new(stream),
            host: self.address.clone(),
            token: self.token.clone(),
        }
    }

    /// One request on a connection of its own, and its answer.
    ///
    /// # Panics
    /// If there is no whole answer.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut connection = self.connect();
        connection.send(method, path, fields, body);
        connection.answer().expect("a whole answer")
    }

    /// How many connections it has, that of this question among them.
    ///
    /// # Panics
    /// If it does not say.
    #[track_caller]
    pub fn connections(&self) -> usize {
        let metrics = self.ask("GET", "/metrics", &[], b"").text();
        let line = metrics.lines().find(|line| line.starts_with("offload_http_connections "));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a number")
    }

    /// Calls a task.
    ///
    /// # Panics
    /// If there is no whole answer.
    #[track_caller]
    pub fn call(&self, task: &str, fields: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
        self.ask("POST", &format!("/v1/tasks/{task}"), fields, body.as_ref())
    }
}

/// A connection over HTTP/1.1.
#[derive(Debug)]
pub struct HttpConnection {
    stream: BufReader<TcpStream>,
    host: String,
    token: String,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The header fields, their names in lower case.
    pub fields: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
    /// The body broke off: the connection ended before it did.
    pub is_broken: bool,
}

impl Answer {
    /// The value of this field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The status and the `code` of a problem.
    ///
    /// # Panics
    /// If it is no problem document.
    #[track_caller]
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        (self.status, problem["code"].as_str().unwrap_or_default().to_owned())
    }
}

impl HttpConnection {
    /// The head of a request with the fields that every request needs, and these.
    pub fn head(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> String {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            head += &format!("Authorization: Bearer {}\r\n", self.token);
        }
        fields.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        head + "\r\n"
    }

    /// Sends a request with a body of known length.
    ///
    /// # Panics
    /// If the connection is gone.
    #[track_caller]
    pub fn send(&mut self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) {
        let length = body.len().to_string();
        let mut all = fields.to_vec();
        if !body.is_empty() || method == "POST" {
            all.push(("Content-Length", &length));
        }
        let request = [self.head(method, path, &all).as_bytes(), body].concat();
        self.write(&request);
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// If the connection is gone.
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes).expect("the connection is there");
    }

    /// Sends bytes, if somebody is there.
    ///
    /// # Errors
    /// Nobody is.
    pub fn try_write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// The next answer; None if the connection ends instead.
    ///
    /// # Panics
    /// If it does neither in time, or what comes is no answer.
    #[track_caller]
    pub fn answer(&mut self) -> Option<Answer> {
        let (status, fields) = self.head_of_answer()?;
        let field =
            |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let (body, is_broken) = match (field("content-length"), field("transfer-encoding")) {
            (Some(length), _) => self.body_of(length.parse().expect("a number")),
            (None, Some("chunked")) => self.chunks(),
            _ => (Vec::new(), false),
        };
        Some(Answer { status, fields, body, is_broken })
    }

    /// The status and the fields of the next answer; its body is to be read after that.
    ///
    /// # Panics
    /// As [`HttpConnection::answer`].
    #[track_caller]
    pub fn head_of_answer(&mut self) -> Option<(u16, Vec<(String, String)>)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {first:?}"));
        let mut fields = Vec::new();
        while let Some(line) = self.line().filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {line:?}"));
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if status == 100 { self.head_of_answer() } else { Some((status, fields)) }
    }

    /// The next line; None at the end.
    ///
    /// # Panics
    /// If nothing comes in time.
    #[track_caller]
    pub fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => Some(String::from_utf8_lossy(&line).trim_end().to_owned()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("nothing comes: {error}"),
        }
    }

    /// So many bytes of a body, and whether it broke off before.
    pub fn body_of(&mut self, length: usize) -> (Vec<u8>, bool) {
        let mut body = vec![0; length];
        let mut came = 0;
        while came < length {
            match read_once(&mut self.stream, &mut body[came..]) {
                Ok(0) | Err(_) => break,
                Ok(count) => came += count,
            }
        }
        body.truncate(came);
        (body, came < length)
    }

    fn chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let size = self.line().and_then(|line| usize::from_str_radix(&line, 16).ok());
            let Some(size) = size else { return (body, true) };
            let (chunk, is_broken) = self.body_of(size);
            body.extend(chunk);
            if is_broken || self.line().is_none() {
                return (body, true);
            }
            if size == 0 {
                return (body, false);
            }
        }
    }

    /// Whether the other end closes the connection, whatever it says before.
    ///
    /// # Panics
    /// If it does not in time.
    #[track_caller]
    pub fn ends(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("it does not end: {error}"),
        }
    }
}

/// A connection to this address from another one of this machine.
///
/// # Panics
/// If there is none to be had.
pub fn stream_from(from: [u8; 4], to: &str) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from((from, 0))).expect("an address of this machine");
    let to: SocketAddr = to.parse().expect("an address");
    connect(&socket, &to).expect("it listens");
    TcpStream::from(socket)
}
