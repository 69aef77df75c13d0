//! A worker program: its command line, an optional wrapper program in front of it, and its environment.

use offload_protocol::limits::NAME_MAX;
use offload_protocol::nouns::cut;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The running executable, even if the file on disk was replaced, so that supervisor and worker have the same version.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// Where programs are searched if the supervisor itself has no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program that can be started as a worker any number of times.
///
/// Its environment has `LANG=C.UTF-8`, `TZ=UTC`, the supervisor's `PATH` and `HOME`, and the variables that
/// [`Program::with_environment`] names. Other variables of the supervisor are not for workers. Variables of
/// [`Program::with_variable`] override all of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    name: String,
    words: Vec<String>,
    shim: Vec<String>,
    passed_variables: Vec<String>,
    own_variables: Vec<(String, String)>,
    folder: Option<PathBuf>,
    /// Where this process was when the program was named: it may be elsewhere when it starts the program again.
    named_in: Option<PathBuf>,
}

impl Program {
    /// A program with its arguments. A first word without `/` is looked up in `PATH` at each start; a path that is not absolute is that
    /// from where this process is now. The name of the program is the command, cut to 64 bytes.
    ///
    /// A program that uses the SDK confines itself and ends with its parent. For any other one, `offload serve` adds a
    /// wrapper that does so; an embedding program has to, with [`Program::with_shim`]. Otherwise such a worker is not
    /// confined and may outlive this process.
    pub fn command(words: Vec<String>) -> Program {
        let name = cut(&words.join(" "), NAME_MAX).to_owned();
        let (shim, passed_variables, own_variables) = (Vec::new(), Vec::new(), Vec::new());
        let named_in = std::env::current_dir().ok();
        Program { name, words, shim, passed_variables, own_variables, folder: None, named_in }
    }

    /// This executable itself, started as `offload worker`. With `faults` it also offers the task `fault`. Only for an
    /// executable whose `main` begins with `if the first argument is "worker" { return offload_worker::builtin::serve(..) }`:
    /// see [`Program::own`].
    pub fn builtin(faults: bool) -> Program {
        let arguments: &[&str] = if faults { &["worker", "--allow-faults"] } else { &["worker"] };
        Program::own("builtin", arguments)
    }

    /// This executable itself, started with these arguments, under this name. Only for an executable that runs a worker then: one
    /// that starts a pool instead is refused that, with [`StartError::IsWorker`](crate::StartError::IsWorker).
    pub fn own(name: &str, arguments: &[&str]) -> Program {
        let mut words = vec![OWN_EXECUTABLE.to_owned()];
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        Program { name: name.to_owned(), ..Program::command(words) }
    }

    /// Its arguments, if it is this executable itself.
    pub(crate) fn own_arguments(&self) -> Option<&[String]> {
        self.words.split_first().filter(|(word, _)| *word == OWN_EXECUTABLE).map(|(_, arguments)| arguments)
    }

    /// The words in front of its command.
    pub fn shim(&self) -> &[String] {
        &self.shim
    }

    /// Starts `words` instead, followed by the program's own words. The wrapper is expected to prepare the process
    /// (parent-death signal, confinement) and then to execute the program in its place.
    pub fn with_shim(self, words: Vec<String>) -> Program {
        Program { shim: words, ..self }
    }

    /// Passes on these variables of the supervisor's own environment, if they are set. `LANG` and `TZ` may be among
    /// them. For programs that embed this library; `offload serve` has no setting for it.
    pub fn with_environment(self, names: Vec<String>) -> Program {
        Program { passed_variables: names, ..self }
    }

    /// Sets a variable in the environment of the program, whatever the supervisor's own value is. If one name is set
    /// twice, the later value counts. Every process of the same user can read the variable, so it must not hold a
    /// secret.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Program {
        self.own_variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the program in this folder, which is that from where this process is now. A path in its first word, if it is not
    /// absolute, is that from this folder.
    #[must_use]
    pub fn in_folder(self, folder: PathBuf) -> Program {
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        Program { folder: Some(folder), ..self }
    }

    /// The name in tables and logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The command, complete except for its descriptors.
    ///
    /// Executables are searched here and not by `Command`, for two reasons. With a changed environment `Command`
    /// searches only after a fork, whose cost grows with our memory; given a path it can use the cheap vfork. And a
    /// wrapper that cannot find its program could report that only by an exit code, which looks like a crash.
    pub(super) fn to_command(&self) -> io::Result<Command> {
        let path = path_variable();
        let (word, arguments) = split_first(&self.words)?;
        let named_in = self.named_in.as_deref();
        let executable = find_executable_in(word, &path, self.folder.as_deref().or(named_in))?;
        let mut command = if self.shim.is_empty() {
            let mut command = Command::new(executable);
            command.arg0(word);
            command
        } else {
            let (shim, shim_arguments) = split_first(&self.shim)?;
            let mut command = Command::new(find_executable_in(shim, &path, named_in)?);
            command.arg0(shim).args(shim_arguments).arg(executable);
            command
        };
        command.args(arguments).env_clear().envs(self.environment(path));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        Ok(command)
    }

    fn environment(&self, path: OsString) -> Vec<(String, OsString)> {
        let mut variables = vec![
            ("LANG".to_owned(), "C.UTF-8".into()),
            ("TZ".to_owned(), "UTC".into()),
            ("PATH".to_owned(), path),
        ];
        let passed = ["HOME".to_owned()].into_iter().chain(self.passed_variables.iter().cloned());
        variables.extend(passed.filter_map(|name| std::env::var_os(&name).map(|value| (name, value))));
        variables.extend(self.own_variables.iter().map(|(name, value)| (name.clone(), value.into())));
        variables
    }
}

fn split_first(words: &[String]) -> io::Result<(&String, &[String])> {
    words.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the command has no words"))
}

fn path_variable() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into())
}

/// The file that this word of a command names: itself if it has a `/`, and otherwise the first executable file of this name in
/// the folders of `PATH`.
///
/// # Errors
/// There is none, or it may not be executed.
pub fn find_executable(word: &str) -> io::Result<PathBuf> {
    find_executable_from(word, None)
}

/// As [`find_executable`], for a program that is started in this folder: a path is that from there.
///
/// # Errors
/// There is none, or it may not be executed.
pub fn find_executable_from(word: &str, folder: Option<&Path>) -> io::Result<PathBuf> {
    find_executable_in(word, &path_variable(), folder)
}

fn find_executable_in(word: &str, path: &OsStr, folder: Option<&Path>) -> io::Result<PathBuf> {
    if word.contains('/') {
        let file = match folder {
            // Complete, because it is executed from another folder than this one.
            Some(folder) => std::path::absolute(folder.join(word))?,
            None => word.into(),
        };
        check_executable(&file)?;
        return Ok(file);
    }
    // Like a shell, goes on past a file that may not be executed, and reports that file if there is no other.
    let mut refused = None;
    for folder in std::env::split_paths(path) {
        let candidate = folder.join(word);
        match check_executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused = Some(error),
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| {
        let searched = path.to_string_lossy();
        io::Error::new(io::ErrorKind::NotFound, format!("no `{word}` in PATH ({searched})"))
    }))
}

fn check_executable(file: &Path) -> io::Result<()> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let about = std::fs::metadata(file)?;
    if !about.is_file() {
        let what = if about.is_dir() { "it is a directory" } else { "it is no regular file" };
        return refused(format!("permission denied: {what}"));
    }
    match access(file, Access::EXEC_OK) {
        Err(Errno::ACCESS) => refused(format!(
            "permission denied: it may not be executed; `chmod +x {}` allows it",
            file.display()
        )),
        checked => Ok(checked?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &str) -> Vec<String> {
        command.split(' ').map(str::to_owned).collect()
    }

    /// Program, arguments: what would be executed.
    fn executed(program: &Program) -> Vec<String> {
        let command = program.to_command().unwrap();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_str().unwrap().to_owned()).collect()
    }

    fn kind_of_failure(program: &Program) -> io::ErrorKind {
        program.to_command().unwrap_err().kind()
    }

    #[test]
    fn a_word_without_a_slash_is_looked_up_and_one_with_a_slash_is_not() {
        let found = executed(&Program::command(words("sh -c true")));
        assert!(found[0].starts_with('/') && found[0].ends_with("/sh"), "{found:?}");
        assert_eq!(found[1..], ["-c", "true"]);
        assert_eq!(executed(&Program::command(words("/bin/sh")))[0], "/bin/sh");
    }

    /// Where this process is cannot be changed here, as other tests need it. So the program has another place.
    #[test]
    fn a_path_is_that_from_where_the_program_was_named_wherever_the_process_is_now() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/bin/sh", folder.path().join("tool")).unwrap();
        let named_in = Some(folder.path().to_owned());
        let program = Program { named_in, ..Program::command(words("./tool -c true")) };
        assert_eq!(PathBuf::from(&executed(&program)[0]), folder.path().join("./tool"));
        let named_here = Program::command(words("./tool")).named_in;
        assert_eq!(named_here, std::env::current_dir().ok());
        let in_folder = Program::command(words("./tool")).in_folder("src".into());
        assert_eq!(in_folder.folder, Some(std::env::current_dir().unwrap().join("src")));
    }

    #[test]
    fn a_shim_stands_in_front_of_the_program() {
        let program =
            Program::command(words("/bin/sh -c true")).with_shim(words("/proc/self/exe worker-exec --"));
        assert_eq!(executed(&program), ["/proc/self/exe", "worker-exec", "--", "/bin/sh", "-c", "true"]);
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_found_out_behind_a_shim_too() {
        let shim = words("/bin/sh");
        let missing = Program::command(words("no-such-program")).with_shim(shim.clone());
        let folder = Program::command(words("/")).with_shim(shim.clone());
        let no_program = Program::command(words("/dev/null")).with_shim(shim);
        assert_eq!(kind_of_failure(&missing), io::ErrorKind::NotFound);
        assert_eq!(kind_of_failure(&folder), io::ErrorKind::PermissionDenied);
        assert_eq!(kind_of_failure(&no_program), io::ErrorKind::PermissionDenied);
        assert_eq!(kind_of_failure(&Program::command(Vec::new())), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_variable_of_its_own_replaces_what_was_there_before() {
        let program = Program::command(words("/bin/sh")).with_variable("TZ", "CET");
        let command =
            program.with_variable("COLOUR", "red").with_variable("COLOUR", "blue").to_command().unwrap();
        let value = |name: &str| command.get_envs().find(|(other, _)| *other == name).unwrap().1.unwrap();
        assert_eq!((value("TZ"), value("COLOUR")), (OsStr::new("CET"), OsStr::new("blue")));
    }

    #[test]
    fn the_builtin_worker_is_this_executable() {
        assert_eq!(Program::builtin(false).name(), "builtin");
        assert_eq!(executed(&Program::builtin(true)), ["/proc/self/exe", "worker", "--allow-faults"]);
    }

    #[test]
    fn a_program_is_named_after_its_command() {
        assert_eq!(Program::command(words("python3 worker.py")).name(), "python3 worker.py");
        assert_eq!(Program::command(vec!["x".repeat(100)]).name().len(), NAME_MAX);
    }
}
