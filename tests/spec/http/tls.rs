//! The interface over TLS: certificates, versions, reloads, and clients that never get as far as a request. What clients do once the
//! handshake is complete is in `sessions`. Certificates are made by the command `openssl`, which every system has that has curl, and
//! which can make those that no library of ours would.

mod certificates;
mod client;
mod sessions;

use certificates::{EC, certify, certify_expired};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use tests::harness::{PATIENCE, Ran, private_folder, run, run_offload, until};
use tests::http::HttpDaemon;

/// A supervisor whose HTTP is HTTPS, with two certificates of which it has the `first`.
pub(super) struct Secure {
    pub(super) http: HttpDaemon,
    folder: TempDir,
}

impl Secure {
    pub(super) fn start(arguments: &[&str]) -> Secure {
        let folder = private_folder();
        let server = Secure::in_folder(&folder);
        let http = HttpDaemon::start(&[&server.each_ref().map(String::as_str), arguments].concat());
        Secure { http, folder }
    }

    /// Makes the files; returns the flags that name them.
    fn in_folder(folder: &TempDir) -> [String; 4] {
        certify(folder.path(), "first", &EC);
        certify(folder.path(), "second", &EC);
        let file = |end: &str| {
            let file = folder.path().join(format!("server.{end}"));
            std::fs::copy(folder.path().join(format!("first.{end}")), &file).unwrap();
            file.display().to_string()
        };
        ["--http-tls-certificate".to_owned(), file("pem"), "--http-tls-key".to_owned(), file("key")]
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exchanges a file of the server.
    fn copy(&self, from: &str, to: &str) {
        std::fs::copy(self.path(from), self.path(to)).unwrap();
    }

    /// Asks by curl, which trusts only this certificate.
    fn ask(&self, certificate: &str, arguments: &[&str], path: &str) -> Ran {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "--cacert"]).arg(self.path(&format!("{certificate}.pem")));
        curl.args(["-H", &format!("Authorization: Bearer {}", self.http.token)]).args(arguments);
        run(curl.arg(format!("https://{}{path}", self.http.address)), b"")
    }

    /// One polite call, with its answer.
    fn is_served(&self) {
        let answer = self.ask("first", &["-d", "1000"], "/v1/tasks/primes").ok();
        assert_eq!(answer.text(), r#"{"count":168,"largest":997}"#);
    }

    /// A connection on which nothing is said yet.
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.http.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A measure without labels.
    fn measure(&self, name: &str) -> u64 {
        let text = self.ask("first", &[], "/metrics").ok().text();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse().expect("a number")
    }
}

/// What comes until the connection ends, in whatever way.
fn rest(mut stream: &TcpStream) -> Vec<u8> {
    let mut came = Vec::new();
    match stream.read_to_end(&mut came) {
        Ok(_) => came,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => came,
        Err(error) => panic!("it does not end: {error}"),
    }
}

#[test]
fn all_versions_are_answered_and_large_bodies_go_both_ways() {
    let server = Secure::start(&["--workers", "2"]);
    let file = server.path("body");
    let body: Vec<u8> = (0..3_000_000_u32).map(|number| (number * 7 % 251) as u8).collect();
    std::fs::write(&file, &body).unwrap();
    let data = format!("@{}", file.display());
    for (arguments, spoken) in [
        (["--http1.1", "--tlsv1.3"].as_slice(), "1.1"),
        (&["--http2", "--tlsv1.3"], "2"),
        (&["--http1.1", "--tls-max", "1.2"], "1.1"),
        (&["--http2", "--tls-max", "1.2"], "2"),
        (&["--no-alpn"], "1.1"),
    ] {
        let back =
            server.ask("first", &[arguments, &["--data-binary", &data]].concat(), "/v1/tasks/echo").ok();
        assert!(back.stdout == body, "{arguments:?}: {} bytes", back.stdout.len());
        let about = [&["-o", "/dev/null", "-w", "%{http_version} %{http_code}"], arguments].concat();
        assert_eq!(server.ask("first", &about, "/healthz").ok().text(), format!("{spoken} 200"));
        assert_eq!(server.ask("first", &about, "/nowhere").ok().text(), format!("{spoken} 404"));
    }
    let older = server.ask("first", &["--tls-max", "1.1"], "/healthz");
    assert_ne!(older.code, 0, "{older:?}");
    let unknown = server.ask("second", &[], "/healthz");
    assert_eq!(unknown.code, 60, "it shows the certificate that it was given: {unknown:?}");
}

#[test]
fn the_version_is_in_the_log_and_counted_and_the_line_ready_says_https() {
    let folder = private_folder();
    let (socket, log) = (folder.path().join("h.sock"), folder.path().join("log"));
    let at = format!("unix:{}", socket.display());
    let logging = ["--access-log", log.to_str().unwrap(), "--access-log-format", "json"];
    let server = Secure::start(&[["--http", &at].as_slice(), &logging].concat());
    server.ask("first", &["--tls-max", "1.2"], "/healthz?old").ok();
    server.ask("first", &[], "/healthz?new").ok();
    let plain = format!("curl -sS --unix-socket {} http://localhost/healthz?plain", socket.display());
    let plain = run(Command::new("sh").args(["-c", &plain]), b"").ok();
    assert_eq!(plain.text(), "ok\n", "a Unix socket has no TLS");
    for (query, version) in
        [("?old", Value::from("TLSv1.2")), ("?new", "TLSv1.3".into()), ("?plain", Value::Null)]
    {
        let line: Value = until(query, || {
            let text = std::fs::read_to_string(&log).unwrap();
            text.lines().find(|line| line.contains(query)).and_then(|line| serde_json::from_str(line).ok())
        });
        assert_eq!(line["tls"], version, "{line}");
    }
    let measures = server.ask("first", &[], "/metrics").ok().text();
    assert!(measures.contains("offload_http_tls_handshakes_total{version=\"TLSv1.2\"} 1\n"), "{measures}");
    let ready = server.http.daemon.stdout.find(|line| line.contains("\"ready\""), PATIENCE).unwrap();
    assert!(ready.contains("\"http_tls\":true"), "{ready}");
}

#[test]
fn a_reload_exchanges_certificate_and_key_together_or_keeps_both_and_says_why() {
    let server = Secure::start(&[]);
    let mut open = client::SecureClient::connect(&server.http.address, &server.path("first.pem"));
    assert_eq!(open.ask("/healthz"), 200);
    server.copy("second.pem", "server.pem");
    let refused = server.http.daemon.run(&["reload"]);
    assert!(refused.code != 0 && refused.stderr.contains("do not belong together"), "{refused:?}");
    server
        .http
        .daemon
        .stderr
        .find(|line| line.contains("do not belong together"), PATIENCE)
        .expect("it is logged");
    server.is_served();
    std::fs::set_permissions(server.path("server.key"), PermissionsExt::from_mode(0o640)).unwrap();
    let refused = server.http.daemon.run(&["reload"]);
    assert!(refused.code != 0 && refused.stderr.contains("chmod 600"), "{refused:?}");
    std::fs::set_permissions(server.path("server.key"), PermissionsExt::from_mode(0o600)).unwrap();
    server.copy("second.key", "server.key");
    server.http.daemon.run(&["reload"]).ok();
    server.ask("second", &[], "/healthz").ok();
    assert_eq!(server.ask("first", &[], "/healthz").code, 60);
    assert_eq!(open.ask("/healthz"), 200, "a connection that was open stays");
}

#[test]
fn who_speaks_no_tls_is_told_so_in_plain_text_or_closed() {
    let server = Secure::start(&[]);
    let plain = format!("http://{}/healthz", server.http.address);
    let told = run(Command::new("curl").args(["-sS", "-w", " %{http_code}", &plain]), b"").ok().text();
    assert!(told.contains("https://") && told.ends_with(" 400"), "{told}");
    let mut plain = server.connect();
    plain.write_all(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let told = rest(&plain);
    assert!(told.starts_with(b"HTTP/1.1 400 ") && told.ends_with(b"\r\n\r\n"), "no content for a HEAD");
    for bytes in [
        b"\0\0\0\x1foffload".as_slice(),
        b"\x15\x03\x01\0\x02\x02\x28",
        b"\x16\x03\x01\xff\xff\x01",
        b"\x80\x2e\x01",
    ] {
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let said = rest(&stream);
        assert!(said.is_empty() || said[0] == 21, "nothing but an alert: {said:?}");
    }
    server.is_served();
    let failed = || server.measure("offload_http_tls_handshakes_failed_total");
    until("all of them are counted", || (failed() == 5).then_some(()));
}

/// They stop at any byte of their first message, or after it.
fn stop_in_the_middle(server: &Secure, count: usize) -> Vec<TcpStream> {
    let hello = client::hello(&server.path("first.pem"));
    let stop = |number: usize| {
        let mut stream = server.connect();
        let length = hello.len() * number / (count - 1);
        // It may have had to give way before.
        let _ = stream.write_all(&hello[..length]);
        stream
    };
    (0..count).map(stop).collect()
}

#[test]
fn handshakes_that_stop_in_the_middle_hold_a_place_for_a_bounded_time_and_hold_nobody_up() {
    let server = Secure::start(&["--workers", "2"]);
    let stopped = stop_in_the_middle(&server, 300);
    (0..4).for_each(|_| server.is_served());
    assert_eq!(server.http.daemon.status()["ledger"]["balanced"], true);
    // Each of them ends, and nobody is told anything that is no TLS.
    for (number, stream) in stopped.iter().enumerate() {
        let said = rest(stream);
        assert!(said.first().is_none_or(|byte| matches!(byte, 21 | 22)), "{number}: {said:?}");
    }
    let failed = || server.measure("offload_http_tls_handshakes_failed_total");
    until("all of them are counted", || (failed() == 300).then_some(()));
}

#[test]
fn where_places_are_few_stopped_handshakes_give_way() {
    let server = Secure::start(&["--workers", "1", "--http-connections", "8"]);
    let stopped = stop_in_the_middle(&server, 60);
    (0..4).for_each(|_| server.is_served());
    assert!(stopped.len() == 60 && server.measure("offload_http_connections") <= 8);
}

#[test]
fn files_that_cannot_be_used_are_refused_at_the_start_with_the_reason() {
    let folder = private_folder();
    let at = |name: &str| folder.path().join(name);
    certify(folder.path(), "good", &EC);
    certify(folder.path(), "other", &["-newkey", "rsa:2048"]);
    certify(folder.path(), "strange", &["-newkey", "ed448"]);
    certify(folder.path(), "short", &["-newkey", "rsa:1024"]);
    let passphrase = ["pkey", "-aes256", "-passout", "pass:x", "-in"];
    let locked = at("locked.key");
    let mut openssl = Command::new("openssl");
    run(openssl.args(passphrase).arg(at("good.key")).arg("-out").arg(&locked), b"").ok();
    std::fs::write(at("broken.pem"), "-----BEGIN CERTIFICATE-----\nMIIB\n").unwrap();
    std::fs::write(at("nonsense.pem"), "-----BEGIN CERTIFICATE-----\nTUlJQg==\n-----END CERTIFICATE-----\n")
        .unwrap();
    let refusal = |certificate: Option<&str>, key: Option<&str>| {
        let mut arguments = vec!["serve".to_owned(), "--http".to_owned(), "127.0.0.1:0".to_owned()];
        for (flag, name) in [("--http-tls-certificate", certificate), ("--http-tls-key", key)] {
            let path = name.map(|name| at(name).display().to_string());
            arguments.extend(path.into_iter().flat_map(|path| [flag.to_owned(), path]));
        }
        let refused = run_offload(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(refused.code, 2, "{refused:?}");
        refused.stderr
    };
    for (certificate, key, reason) in [
        (Some("good.pem"), None, "--http-tls-key"),
        (None, Some("good.key"), "--http-tls-certificate"),
        (Some("none.pem"), Some("good.key"), "none.pem: No such file"),
        (Some("."), Some("good.key"), "no regular file"),
        (Some("good.key"), Some("good.key"), "no certificate"),
        (Some("good.pem"), Some("good.pem"), "chmod 600"),
        (Some("good.pem"), Some("other.key"), "do not belong together"),
        (Some("good.pem"), Some("locked.key"), "passphrase"),
        (Some("strange.pem"), Some("strange.key"), "not supported"),
        (Some("short.pem"), Some("short.key"), "not supported"),
        (Some("broken.pem"), Some("good.key"), "no sound PEM"),
        (Some("nonsense.pem"), Some("good.key"), "certificate cannot be used"),
    ] {
        let told = refusal(certificate, key);
        assert!(told.contains(reason), "{certificate:?} {key:?}: {told}");
    }
    let public = ["serve", "--http", "0.0.0.0:0", "--http-tls-certificate"].map(str::to_owned).to_vec();
    let files = [
        at("good.pem").display().to_string(),
        "--http-tls-key".to_owned(),
        at("good.key").display().to_string(),
    ];
    let told = run_offload(&[public, files.to_vec()].concat().iter().map(String::as_str).collect::<Vec<_>>());
    assert!(told.code == 2 && told.stderr.contains("--http-public"), "{told:?}");
}

#[test]
fn every_kind_of_key_that_the_documentation_names_works() {
    let folder = private_folder();
    let kinds: [(&str, &[&str]); 4] = [
        ("rsa", &["-newkey", "rsa:2048"]),
        ("p384", &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384"]),
        ("edwards", &["-newkey", "ed25519"]),
        ("rsa4096", &["-newkey", "rsa:4096"]),
    ];
    let server = Secure::start(&[]);
    for (name, kind) in kinds {
        certify(folder.path(), name, kind);
        for end in ["pem", "key"] {
            std::fs::copy(folder.path().join(format!("{name}.{end}")), server.path(&format!("server.{end}")))
                .unwrap();
        }
        std::fs::copy(folder.path().join(format!("{name}.pem")), server.path("now.pem")).unwrap();
        server.http.daemon.run(&["reload"]).ok();
        server.ask("now", &[], "/healthz").ok();
    }
}

/// It is for clients to refuse it, and for the owner to see why.
#[test]
fn an_expired_certificate_is_shown_and_clients_refuse_it() {
    let server = Secure::start(&[]);
    certify_expired(server.folder.path(), "expired");
    server.copy("expired.pem", "server.pem");
    server.copy("expired.key", "server.key");
    server.http.daemon.run(&["reload"]).ok();
    let refused = server.ask("expired", &[], "/healthz");
    assert!(refused.code == 60 && refused.stderr.contains("expired"), "{refused:?}");
    server.ask("expired", &["--insecure"], "/healthz").ok();
}

/// Links are what programs that renew certificates exchange.
#[test]
fn files_may_be_links_to_files_of_this_user_alone() {
    let server = Secure::start(&[]);
    let link = |from: &str, to: &str| {
        std::fs::remove_file(server.path(to)).unwrap();
        std::os::unix::fs::symlink(server.path(from), server.path(to)).unwrap();
    };
    link("second.pem", "server.pem");
    link("second.key", "server.key");
    server.http.daemon.run(&["reload"]).ok();
    server.ask("second", &[], "/healthz").ok();
    let readable: &Path = &server.path("second.key");
    std::fs::set_permissions(readable, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(server.http.daemon.run(&["reload"]).stderr.contains("chmod 600"));
}
