//! Certificates for 127.0.0.1 that sign themselves, made by `openssl`.

use std::path::Path;
use std::process::Command;
use tests::harness::run;

/// What most servers have.
pub(super) const EC: [&str; 4] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

/// Makes a certificate and its key in `NAME.pem` and `NAME.key`, the key for its owner alone.
#[track_caller]
pub(super) fn certify(folder: &Path, name: &str, kind: &[&str]) {
    request(folder, name, &[&["-x509", "-days", "2"], kind].concat(), "pem");
}

/// The same, but it ended yesterday.
#[track_caller]
pub(super) fn certify_expired(folder: &Path, name: &str) {
    request(folder, name, &EC, "csr");
    let path = |end: &str| folder.join(format!("{name}.{end}"));
    let mut openssl = Command::new("openssl");
    openssl.args(["x509", "-req", "-days", "-1", "-copy_extensions", "copy", "-in"]).arg(path("csr"));
    run(openssl.arg("-signkey").arg(path("key")).arg("-out").arg(path("pem")), b"").ok();
}

#[track_caller]
fn request(folder: &Path, name: &str, arguments: &[&str], end: &str) {
    let path = |end: &str| folder.join(format!("{name}.{end}"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-new", "-nodes"]).args(arguments);
    openssl.args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]);
    run(openssl.arg("-out").arg(path(end)).arg("-keyout").arg(path("key")), b"").ok();
}
