//! The variables `OFFLOAD_*`, and the place that the environment gives for the socket.
//!
//! The environment is handed in as a function, so that tests need not change the real one.

use super::units::{parse_duration, parse_size};
use super::weights::parse_weights;
use super::words::split_words;
use super::{ConfigError, Layer};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Reads the variables `OFFLOAD_*` through `variable`. An empty one counts as not set, but for `OFFLOAD_SOCKET`: it comes
/// from a script whose own variable is not set, and the default would be another supervisor than the one that is meant.
///
/// # Errors
/// [`ConfigError`] naming the variable that is not understood.
pub(crate) fn read_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Layer, ConfigError> {
    let environment = Environment { variable: &variable };
    Ok(Layer {
        socket: variable("OFFLOAD_SOCKET").map(PathBuf::from),
        drain_timeout: environment.read("OFFLOAD_DRAIN_TIMEOUT", parse_duration)?,
        max_jobs: environment.read("OFFLOAD_MAX_JOBS", parse_number)?,
        max_bytes: environment.read("OFFLOAD_MAX_BYTES", parse_size)?,
        max_payload: environment.read("OFFLOAD_MAX_PAYLOAD", parse_size)?,
        commands: environment.read("OFFLOAD_WORKER", split_words)?.map(|words| vec![words]),
        workers: environment.read("OFFLOAD_WORKERS", parse_number)?,
        spares: environment.read("OFFLOAD_SPARES", parse_number)?,
        run_timeout: environment.read("OFFLOAD_RUN_TIMEOUT", parse_duration)?,
        max_attempts: environment.read("OFFLOAD_MAX_ATTEMPTS", parse_number)?,
        backoff_min: environment.read("OFFLOAD_BACKOFF_MIN", parse_duration)?,
        backoff_max: environment.read("OFFLOAD_BACKOFF_MAX", parse_duration)?,
        max_restarts: environment.read("OFFLOAD_MAX_RESTARTS", parse_number)?,
        restart_window: environment.read("OFFLOAD_RESTART_WINDOW", parse_duration)?,
        hello_timeout: environment.read("OFFLOAD_HELLO_TIMEOUT", parse_duration)?,
        hang_timeout: environment.read("OFFLOAD_HANG_TIMEOUT", parse_duration)?,
        max_jobs_per_worker: environment.read("OFFLOAD_MAX_JOBS_PER_WORKER", parse_number)?,
        max_rss: environment.read("OFFLOAD_MAX_RSS", parse_size)?,
        max_age: environment.read("OFFLOAD_MAX_AGE", parse_duration)?,
        affinity: environment.read("OFFLOAD_AFFINITY", parse_bool)?,
        short_slots: environment.read("OFFLOAD_SHORT_SLOTS", parse_number)?,
        max_jobs_per_client: environment.read("OFFLOAD_MAX_JOBS_PER_CLIENT", parse_number)?,
        keep_results: environment.read("OFFLOAD_KEEP_RESULTS", parse_duration)?,
        keep_keys: environment.read("OFFLOAD_KEEP_KEYS", parse_duration)?,
        keep_dead_letters: environment.read("OFFLOAD_KEEP_DEAD_LETTERS", parse_duration)?,
        max_kept_bytes: environment.read("OFFLOAD_MAX_KEPT_BYTES", parse_size)?,
        weights: environment.read("OFFLOAD_WEIGHTS", parse_weights)?,
        io_threads: environment.read("OFFLOAD_IO_THREADS", parse_number)?,
    })
}

/// Where the socket is unless somebody names another place: `$XDG_RUNTIME_DIR/offload/offload.sock`, else the same
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

struct Environment<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Environment<'_> {
    fn get(&self, name: &str) -> Option<OsString> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    fn read<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = value.to_str().ok_or_else(|| ConfigError(format!("{name} is not UTF-8")))?;
        parse(text).map(Some).map_err(|reason| ConfigError(format!("{name}: {reason}")))
    }
}

fn parse_number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a whole number, or too large"))
}

fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn environment(variables: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
    }

    #[test]
    fn variables_are_read_like_flags() {
        let layer = read_environment(environment(&[
            ("OFFLOAD_WORKERS", "3"),
            ("OFFLOAD_WORKER", "python3 'my worker.py'"),
            ("OFFLOAD_MAX_PAYLOAD", "2MiB"),
            ("OFFLOAD_RUN_TIMEOUT", "5m"),
            ("OFFLOAD_SOCKET", ""),
            ("OFFLOAD_SPARES", ""),
            ("OFFLOAD_HELLO_TIMEOUT", "2s"),
            ("OFFLOAD_HANG_TIMEOUT", "3s"),
            ("OFFLOAD_MAX_JOBS_PER_WORKER", "4"),
            ("OFFLOAD_MAX_RSS", "5MiB"),
            ("OFFLOAD_MAX_AGE", "6h"),
            ("OFFLOAD_AFFINITY", "true"),
            ("OFFLOAD_SHORT_SLOTS", "1"),
            ("OFFLOAD_MAX_JOBS_PER_CLIENT", "8"),
            ("OFFLOAD_KEEP_RESULTS", "2h"),
            ("OFFLOAD_KEEP_KEYS", "3h"),
            ("OFFLOAD_KEEP_DEAD_LETTERS", "4h"),
            ("OFFLOAD_MAX_KEPT_BYTES", "5MiB"),
            ("OFFLOAD_WEIGHTS", "a=2,b=3"),
        ]));
        let expected = Layer {
            socket: Some(PathBuf::new()),
            workers: Some(3),
            commands: Some(vec![vec!["python3".to_owned(), "my worker.py".to_owned()]]),
            max_payload: Some(2 << 20),
            run_timeout: Some(Duration::from_secs(300)),
            hello_timeout: Some(Duration::from_secs(2)),
            hang_timeout: Some(Duration::from_secs(3)),
            max_jobs_per_worker: Some(4),
            max_rss: Some(5 << 20),
            max_age: Some(Duration::from_secs(6 * 3600)),
            affinity: Some(true),
            short_slots: Some(1),
            max_jobs_per_client: Some(8),
            keep_results: Some(Duration::from_secs(2 * 3600)),
            keep_keys: Some(Duration::from_secs(3 * 3600)),
            keep_dead_letters: Some(Duration::from_secs(4 * 3600)),
            max_kept_bytes: Some(5 << 20),
            weights: Some([("a".to_owned(), 2), ("b".to_owned(), 3)].into()),
            ..Layer::default()
        };
        assert_eq!(layer, Ok(expected));
    }

    #[test]
    fn a_variable_that_is_not_understood_is_named() {
        for (name, value) in [
            ("OFFLOAD_WORKERS", "-1"),
            ("OFFLOAD_RUN_TIMEOUT", "10"),
            ("OFFLOAD_WORKER", "'"),
            ("OFFLOAD_AFFINITY", "maybe"),
            ("OFFLOAD_WEIGHTS", "a"),
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
