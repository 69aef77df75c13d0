//! The files of a certificate and its key. They are read at the start and at each reload, and always both.

use super::private_file::{Links, open_regular, read_at_most, read_private};
use crate::configuration::TlsValues;
use offload_http::Tls;
use std::path::{Path, PathBuf};

/// Longest file with certificates, or with a key, in bytes.
const PEM_FILE_MAX: u64 = 256 << 10;

/// A certificate and a key in use, and where they are.
#[derive(Clone)]
pub(super) struct LiveTls {
    tls: Tls,
    certificate: PathBuf,
    key: PathBuf,
}

impl LiveTls {
    /// None if there is to be no TLS.
    ///
    /// # Errors
    /// A sentence: a file cannot be used, or the two do not go together.
    pub(super) fn read(values: &TlsValues) -> Result<Option<LiveTls>, String> {
        match (values.certificate.clone(), values.key.clone()) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => {
                Ok(Some(LiveTls { tls: read(&certificate, &key)?, certificate, key }))
            }
            (Some(_), None) => Err("a certificate for TLS needs its key: --http-tls-key".to_owned()),
            (None, Some(_)) => Err("a key for TLS needs its certificate: --http-tls-certificate".to_owned()),
        }
    }

    /// What the server uses, now and after an exchange.
    pub(super) fn in_use(&self) -> &Tls {
        &self.tls
    }

    /// What the files have now, for [`LiveTls::exchange`].
    ///
    /// # Errors
    /// As [`LiveTls::read`].
    pub(super) fn read_again(&self) -> Result<Tls, String> {
        read(&self.certificate, &self.key)
    }

    /// From now on this is in use.
    pub(super) fn exchange(&self, tls: &Tls) {
        self.tls.replace(tls);
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Tls, String> {
    let of =
        |what: &str, path: &Path, reason: String| format!("the {what} for TLS, {}: {reason}", path.display());
    let chain = open_regular(certificate, Links::Followed).and_then(|file| read_at_most(file, PEM_FILE_MAX));
    let chain = chain.map_err(|reason| of("certificate", certificate, reason))?;
    let secret = read_private(key, PEM_FILE_MAX, Links::Followed).map_err(|reason| of("key", key, reason))?;
    Tls::from_pem(&chain, &secret)
        .map_err(|error| format!("TLS with {} and {}: {error}", certificate.display(), key.display()))
}
