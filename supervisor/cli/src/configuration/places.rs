//! Which configuration file is read: the one that is named, or the first one in the usual places.
//!
//! ```text
//!   --config FILE, OFFLOAD_CONFIG              named; /dev/null stands for none
//!   $XDG_CONFIG_HOME/offload/config.toml       found, of the user; ~/.config/... if the variable is not set
//!   /etc/offload/config.toml                   found, of the machine; the only place of these for root
//! ```
//!
//! A file that was only found must not be one that others could have put there, because it names programs that are started:
//! it belongs to this user or to root, and nobody else may write to it. So that no user decides what root starts, root
//! looks into no home.

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name that stands for no file.
const NO_FILE: &str = "/dev/null";

/// The file of the machine.
const OF_THE_MACHINE: &str = "/etc/offload/config.toml";

/// The file of a user, in the folder for configurations.
const OF_A_USER: &str = "offload/config.toml";

/// Write permission for everybody.
const OTHERS_MAY_WRITE: u32 = 0o002;
/// Write permission for the group or for everybody.
const ANYBODY_ELSE_MAY_WRITE: u32 = 0o022;

/// A configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    /// The user who runs this, if nobody has named the file.
    finder: Option<u32>,
}

impl ConfigFile {
    /// The file that somebody named.
    pub(crate) fn named(path: &Path) -> ConfigFile {
        ConfigFile { path: path.to_owned(), finder: None }
    }

    /// Whether this name stands for no file.
    pub(crate) fn stands_for_none(path: &Path) -> bool {
        path == Path::new(NO_FILE)
    }

    /// The file that is read: the named one, else the first that is in one of `places`. `uid` is the user who runs this.
    pub(crate) fn choose(named: Option<&Path>, places: Vec<PathBuf>, uid: u32) -> Option<ConfigFile> {
        match named {
            Some(path) if ConfigFile::stands_for_none(path) => None,
            Some(path) => Some(ConfigFile::named(path)),
            // Where this user may not look, there is nothing for this user.
            None => {
                let path = places.into_iter().find(|path| path.metadata().is_ok())?;
                Some(ConfigFile { path, finder: Some(uid) })
            }
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that nobody else decides what is in a file that was found.
    ///
    /// # Errors
    /// A sentence about the owner or the mode.
    pub(super) fn check_owner(&self, about: &Metadata) -> Result<(), String> {
        let Some(uid) = self.finder else { return Ok(()) };
        let unwanted = if uid == 0 { ANYBODY_ELSE_MAY_WRITE } else { OTHERS_MAY_WRITE };
        let remedy = "or name it with --config if that is right";
        match (about.uid(), about.mode() & 0o777) {
            (owner, _) if owner != 0 && owner != uid => {
                Err(format!("it belongs to user {owner}: make it yours, {remedy}"))
            }
            (_, mode) if mode & unwanted != 0 => {
                Err(format!("others may write to it (mode {mode:03o}): say chmod go-w, {remedy}"))
            }
            _ => Ok(()),
        }
    }
}

/// The usual places, the first that counts first. The environment is passed in, so that tests need not change the real one.
pub(crate) fn usual_places(variable: impl Fn(&str) -> Option<OsString>, uid: u32) -> Vec<PathBuf> {
    // The XDG specification demands that a path which is not absolute is passed over.
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = || folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    let of_user = if uid == 0 { None } else { of_user() };
    of_user.map(|folder| folder.join(OF_A_USER)).into_iter().chain([PathBuf::from(OF_THE_MACHINE)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    fn places(variables: &'static [(&str, &str)], uid: u32) -> Vec<String> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        usual_places(variable, uid).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn the_users_file_goes_before_the_machines_and_root_has_only_that() {
        let home = &[("HOME", "/home/me")];
        assert_eq!(places(home, 7), ["/home/me/.config/offload/config.toml", OF_THE_MACHINE]);
        let both = &[("XDG_CONFIG_HOME", "/cfg"), ("HOME", "/home/me")];
        assert_eq!(places(both, 7), ["/cfg/offload/config.toml", OF_THE_MACHINE]);
        let relative = &[("XDG_CONFIG_HOME", "cfg"), ("HOME", "/home/me")];
        assert_eq!(places(relative, 7)[0], "/home/me/.config/offload/config.toml");
        assert_eq!(places(both, 0), [OF_THE_MACHINE]);
        assert_eq!(places(&[], 7), [OF_THE_MACHINE]);
    }

    #[test]
    fn a_named_file_is_read_whether_it_is_there_or_not_and_of_the_others_the_first_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        let choose = |named: Option<&Path>| {
            let found = ConfigFile::choose(named, vec![first.clone(), second.clone()], 7);
            found.map(|file| file.path)
        };
        assert_eq!(choose(None), None);
        write(&second, "").unwrap();
        assert_eq!(choose(None), Some(second.clone()));
        write(&first, "").unwrap();
        assert_eq!(choose(None), Some(first.clone()));
        assert_eq!(choose(Some(Path::new("/none"))), Some("/none".into()));
        assert_eq!(choose(Some(Path::new(NO_FILE))), None);
    }

    #[test]
    fn what_others_could_have_written_is_not_read_unless_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        write(&path, "").unwrap();
        let me = path.metadata().unwrap().uid();
        let check = |mode, finder| {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let file = ConfigFile { path: path.clone(), finder };
            file.check_owner(&path.metadata().unwrap())
        };
        assert_eq!(check(0o644, Some(me)), Ok(()));
        assert!(check(0o666, Some(me)).unwrap_err().contains("(mode 666): say chmod go-w"));
        assert_eq!(check(0o666, None), Ok(()));
        let as_another = check(0o644, Some(me + 1));
        assert!(as_another.is_ok() == (me == 0), "what belongs to root is everybody's: {as_another:?}");
        // Root is stricter, and to root another owner is one.
        let root = check(0o664, Some(0));
        assert!(root.unwrap_err().contains(if me == 0 { "mode 664" } else { "belongs to user" }));
    }
}
