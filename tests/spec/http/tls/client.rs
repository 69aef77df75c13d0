//! A client of TLS that can do what curl cannot: stop, close halfway, and send what nobody should.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use tests::harness::PATIENCE;

/// Trusts one certificate, whatever it says of itself.
#[derive(Debug)]
struct OnlyThis {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OnlyThis {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match *shown == self.certificate {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::General("another certificate".to_owned())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// `offered` is what it can speak (ALPN).
fn connection(certificate: &Path, offered: &[&str]) -> ClientConnection {
    let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate of ours");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(OnlyThis { certificate, provider: Arc::clone(&provider) });
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().dangerous().with_custom_certificate_verifier(verifier);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

/// The first message of a client.
pub(super) fn hello(certificate: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    connection(certificate, &[]).write_tls(&mut bytes).unwrap();
    bytes
}

/// A connection whose handshake is complete, over which HTTP/1.1 is spoken.
pub(super) struct SecureClient {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
    host: String,
}

impl SecureClient {
    #[track_caller]
    pub(super) fn connect(address: &str, certificate: &Path) -> SecureClient {
        SecureClient::connect_offering(&[], address, certificate)
    }

    #[track_caller]
    pub(super) fn connect_offering(offered: &[&str], address: &str, certificate: &Path) -> SecureClient {
        let socket = TcpStream::connect(address).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = StreamOwned::new(connection(certificate, offered), socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        }
        SecureClient { stream: BufReader::new(stream), host: address.to_owned() }
    }

    /// The connection below HTTP.
    pub(super) fn tls(&mut self) -> &mut ClientConnection {
        &mut self.stream.get_mut().conn
    }

    /// The connection below TLS.
    pub(super) fn socket(&mut self) -> &mut TcpStream {
        &mut self.stream.get_mut().sock
    }

    /// Writes what TLS has to say.
    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        let stream = self.stream.get_mut();
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut stream.sock)?;
        }
        Ok(())
    }

    /// Sends bytes, encrypted.
    pub(super) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends a request; the body comes later.
    #[track_caller]
    pub(super) fn request(&mut self, method: &str, path: &str, token: &str, length: usize) {
        let host = &self.host;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
        );
        self.send(head.as_bytes()).expect("the connection is there");
    }

    /// The status and the body of the next answer.
    #[track_caller]
    pub(super) fn answer(&mut self) -> (u16, Vec<u8>) {
        let (mut status, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("a line");
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            status = status.or_else(|| line.split(' ').nth(1)?.parse().ok());
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().expect("a number");
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("the body");
        (status.expect("a status"), body)
    }

    /// The kind of the frame of HTTP/2 that comes next.
    #[track_caller]
    pub(super) fn frame_kind(&mut self) -> u8 {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).expect("a frame");
        head[3]
    }

    /// The status of a GET.
    #[track_caller]
    pub(super) fn ask(&mut self, path: &str) -> u16 {
        self.request("GET", path, "none", 0);
        self.answer().0
    }

    /// What comes until the connection ends, and whether it ended as TLS says that it should.
    #[track_caller]
    pub(super) fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        let is_whole = self.stream.read_to_end(&mut bytes).is_ok();
        (bytes, is_whole)
    }
}
