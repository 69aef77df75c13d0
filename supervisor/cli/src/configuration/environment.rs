//! The variables `OFFLOAD_*`, and the default path of the socket, which depends on the environment.
//!
//! The environment is passed in as a function, so that tests need not change the real one.

use super::key::ValueKind;
use super::table::TABLE;
use super::{ConfigError, Layer, Origin};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Reads the variables `OFFLOAD_*` through `variable`. An empty variable counts as not set, except that of a path,
/// which is an error: it usually comes from a script in which a variable is not set, and the default would name another
/// supervisor than the intended one.
///
/// # Errors
/// [`ConfigError`] naming the variable that is not understood.
pub(crate) fn read_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Layer, ConfigError> {
    let mut layer = Layer::new(Origin::Environment);
    for key in TABLE {
        let name = key.variable();
        let Some(text) = variable(&name).filter(|text| !text.is_empty() || key.kind == ValueKind::Path)
        else {
            continue;
        };
        let value = key.parse(&text).map_err(|reason| ConfigError(format!("{name}: {reason}")))?;
        layer.set(key, value, name);
    }
    Ok(layer)
}

/// The default path of the socket: `$XDG_RUNTIME_DIR/offload/offload.sock`, else the same
/// under `/run/user/UID` if that directory exists, else `$HOME/.offload/offload.sock`, else nowhere.
///
/// `run_user` is `/run/user`. A variable that holds no absolute path is passed over, as the XDG specification demands.
pub(crate) fn default_socket(
    variable: impl Fn(&str) -> Option<OsString>,
    run_user: &Path,
    uid: u32,
) -> Option<PathBuf> {
    let directory = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = || Some(run_user.join(uid.to_string())).filter(|path| path.is_dir());
    directory("XDG_RUNTIME_DIR")
        .or_else(of_user)
        .map(|runtime| runtime.join("offload"))
        .or_else(|| directory("HOME").map(|home| home.join(".offload")))
        .map(|directory| directory.join("offload.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
    }

    #[test]
    fn an_empty_variable_is_not_set_unless_it_is_for_a_path() {
        let layer =
            read_environment(environment(&[("OFFLOAD_SPARES", ""), ("OFFLOAD_WORKERS", "3")])).unwrap();
        assert_eq!(layer.values.keys().copied().collect::<Vec<_>>(), ["pool.workers"]);
        let error = read_environment(environment(&[("OFFLOAD_SOCKET", "")])).unwrap_err();
        assert!(error.to_string().starts_with("OFFLOAD_SOCKET: the path of the socket is empty"), "{error}");
    }

    #[test]
    fn a_variable_that_is_not_understood_or_out_of_bounds_is_named() {
        for (name, value) in [
            ("OFFLOAD_WORKERS", "-1"),
            ("OFFLOAD_WORKERS", "0"),
            ("OFFLOAD_RUN_TIMEOUT", "10"),
            ("OFFLOAD_RUN_TIMEOUT", "0s"),
            ("OFFLOAD_WORKER", "'"),
            ("OFFLOAD_AFFINITY", "maybe"),
            ("OFFLOAD_WEIGHTS", "a"),
            ("OFFLOAD_WEIGHTS", "a=0"),
        ] {
            let error = read_environment(|asked| (asked == name).then(|| OsString::from(value))).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}");
        }
    }

    #[test]
    fn the_socket_is_in_the_runtime_directory_of_the_user() {
        let variables = environment(&[("XDG_RUNTIME_DIR", "/run/user/7"), ("HOME", "/home/me")]);
        let socket = default_socket(variables, Path::new("/nonexistent"), 7);
        assert_eq!(socket, Some("/run/user/7/offload/offload.sock".into()));
    }

    #[test]
    fn without_the_variable_the_directory_of_the_user_is_looked_for() {
        let run_user = tempfile::tempdir().unwrap();
        std::fs::create_dir(run_user.path().join("7")).unwrap();
        let variables = || environment(&[("XDG_RUNTIME_DIR", "relative/is/ignored"), ("HOME", "/home/me")]);
        let found = default_socket(variables(), run_user.path(), 7);
        assert_eq!(found, Some(run_user.path().join("7/offload/offload.sock")));
        let other = default_socket(variables(), run_user.path(), 8);
        assert_eq!(other, Some("/home/me/.offload/offload.sock".into()));
    }

    #[test]
    fn with_nothing_set_there_is_no_place() {
        assert_eq!(default_socket(environment(&[]), Path::new("/nonexistent"), 7), None);
    }
}
