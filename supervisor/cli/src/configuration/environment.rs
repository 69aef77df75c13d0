//! The variables `OFFLOAD_*`, and the default path of the socket, which depends on the environment.
//!
//! The environment is passed in as a function, so that tests need not change the real one.

use super::key::ValueKind;
use super::table::TABLE;
use super::{ConfigError, Key, Layer, Origin};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Reads the variables `OFFLOAD_*` of these keys through `variable`. An empty variable is an error: it usually comes
/// from a script in which a variable is not set, and the default would be something else than was intended.
///
/// # Errors
/// [`ConfigError`] naming the variable that is not understood.
pub(crate) fn read_environment(
    keys: impl IntoIterator<Item = &'static Key>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Layer, ConfigError> {
    let mut layer = Layer::new(Origin::Environment);
    for key in keys {
        let name = key.variable();
        let Some(text) = variable(&name) else { continue };
        let value = match text.is_empty() && !matches!(key.kind, ValueKind::Path | ValueKind::File) {
            true => Err("it is empty: unset it for the default, or give it a value".to_owned()),
            false => key.parse(&text),
        };
        layer.set(key, value.map_err(|reason| ConfigError(format!("{name}: {reason}")))?, name);
    }
    Ok(layer)
}

/// The variable that names the configuration file.
pub(crate) const FILE_VARIABLE: &str = "OFFLOAD_CONFIG";

/// What the variables of settings begin with.
const PREFIX: &str = "OFFLOAD_";

/// Whether a variable with so many wrong letters is taken for a misspelt one: of every four letters behind the prefix one may be wrong, and
/// at most two. Other programs have variables of this prefix, too, and a supervisor gives some to its workers; none of those is so near.
fn is_misspelt(name: &str, wrong: usize) -> bool {
    (1..=2.min((name.len() - PREFIX.len()) / 4)).contains(&wrong)
}

/// A sentence for each of these variables that is none of ours, but nearly is.
pub(crate) fn misspelt_variables(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let known: Vec<String> = TABLE.iter().map(Key::variable).chain([FILE_VARIABLE.to_owned()]).collect();
    let nearest = |name: &str| {
        let near = known.iter().map(|known| (strsim::damerau_levenshtein(name, known), known));
        near.min().filter(|(wrong, _)| is_misspelt(name, *wrong)).map(|(_, known)| known.as_str())
    };
    let mut told: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with(PREFIX))
        .filter_map(|name| {
            nearest(&name)
                .map(|near| format!("the variable {name} is unknown and sets nothing; did you mean {near}?"))
        })
        .collect();
    told.sort();
    told
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
    fn an_empty_variable_is_an_error_whatever_it_is_for() {
        for key in TABLE {
            let name = key.variable();
            let variable = |asked: &str| (asked == name).then(OsString::new);
            let error = read_environment(TABLE, variable).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}");
            assert!(error.to_string().contains("is empty"), "{error}");
        }
    }

    #[test]
    fn only_the_variables_of_the_wanted_keys_are_looked_at() {
        let socket = TABLE.iter().filter(|key| key.name == "supervisor.socket");
        let variables = environment(&[("OFFLOAD_WORKERS", "no number"), ("OFFLOAD_SOCKET", "/run/x")]);
        let layer = read_environment(socket, variables).unwrap();
        assert_eq!(layer.values.keys().copied().collect::<Vec<_>>(), ["supervisor.socket"]);
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
            let error =
                read_environment(TABLE, |asked| (asked == name).then(|| OsString::from(value))).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}");
        }
    }

    #[test]
    fn a_variable_that_is_nearly_one_of_ours_is_told_and_no_other() {
        let told = |names: &[&str]| misspelt_variables(names.iter().map(OsString::from));
        assert_eq!(
            told(&["PATH", "OFFLOAD_WOKERS", "OFFLOAD_WORKERS", "OFFLOAD_CONFIGS"]),
            [
                "the variable OFFLOAD_CONFIGS is unknown and sets nothing; did you mean OFFLOAD_CONFIG?",
                "the variable OFFLOAD_WOKERS is unknown and sets nothing; did you mean OFFLOAD_WORKERS?",
            ]
        );
        for key in TABLE {
            assert!(told(&[&key.variable()]).is_empty(), "{}", key.variable());
        }
        // What supervisors, workers, shells and tests use.
        let others = [
            "OFFLOAD_ADAPTER_TASKS",
            "OFFLOAD_BIN",
            "OFFLOAD_CASES",
            "OFFLOAD_CLIENT",
            "OFFLOAD_COMPLETE",
            "OFFLOAD_CORE",
            "OFFLOAD_GENERATION",
            "OFFLOAD_JSONL_IN",
            "OFFLOAD_JSONL_OUT",
            "OFFLOAD_LIMIT_FSIZE",
            "OFFLOAD_LIMIT_NOFILE",
            "OFFLOAD_LIMIT_STACK",
            "OFFLOAD_MARK",
            "OFFLOAD_MAX_MEMORY",
            "OFFLOAD_PAYLOAD_MAX",
            "OFFLOAD_SIM_SEEDS",
            "OFFLOAD_TEST_PROGRAMS",
            "OFFLOAD_",
            "OFFLOAD",
        ];
        assert!(told(&others).is_empty(), "{:?}", told(&others));
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
