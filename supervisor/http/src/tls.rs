//! TLS under HTTP, if it is compiled in (the feature `tls`). rustls does the cryptography, and never touches a socket:
//!
//! ```text
//!   socket --> records --> session --> plain text --> guard --> hyper
//!   socket <-- records <-- session <--------------------------- hyper
//! ```
//!
//! What a handshake computes is computed on the loop: 0.3 ms with an elliptic key, 0.9 ms with RSA of 2048 bits. So all connections of a
//! server share a part of each turn of the loop for that (turns.rs), and whoever takes too long is treated like a head that takes too
//! long. Everything that rustls holds for a connection is bounded (session.rs).

#[cfg(not(feature = "tls"))]
#[path = "tls/none.rs"]
mod session;
#[cfg(feature = "tls")]
mod session;

pub(crate) use session::{Acceptor, Session};

use session::Keys;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A certificate with its key, which can be exchanged while servers use it, from any thread. Clones are the same one.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Keys>>);

/// Why a certificate and a key cannot be used: a sentence. Its `Debug` is the sentence, too: that is what Rust prints of an error that `main` returns.
#[derive(Clone, PartialEq, Eq)]
pub struct BadTls(String);

impl fmt::Display for BadTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for BadTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for BadTls {}

/// It shows no key.
impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tls")
    }
}

impl Tls {
    /// A chain of certificates, the server's own first, and the key that belongs to it, both in PEM. The key is one of RSA (2048 to
    /// 8192 bits), ECDSA (P-256, P-384) or Ed25519, without a passphrase. Whether the certificate has expired is for clients to see.
    ///
    /// # Errors
    /// [`BadTls`]: something is missing, unsound or of an unknown kind, the two do not belong together, or TLS is not compiled in.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Tls, BadTls> {
        Ok(Tls(Arc::new(RwLock::new(Keys::from_pem(certificates, key)?))))
    }

    /// From now on new connections get what `other` has now. Those that are open keep what they have.
    pub fn replace(&self, other: &Tls) {
        let keys = other.keys();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    fn keys(&self) -> Keys {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The version of TLS that a request came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl TlsVersion {
    /// `TLSv1.2` or `TLSv1.3`, as other servers log it.
    pub fn as_str(self) -> &'static str {
        match self {
            TlsVersion::Tls12 => "TLSv1.2",
            TlsVersion::Tls13 => "TLSv1.3",
        }
    }
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused_with_the_reason() {
        let reason = Tls::from_pem(b"", b"").unwrap_err().to_string();
        let expected = if cfg!(feature = "tls") { "no certificate" } else { "built without TLS" };
        assert!(reason.contains(expected), "{reason}");
    }
}
