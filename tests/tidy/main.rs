//! Rules of this project that the compiler does not check.

mod all;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::harness::workspace;

/// The crates of the product, with those that each may depend on: arrows point from the program to the wire, and none
/// back. ARCHITECTURE.md draws them.
const MAY_DEPEND_ON: [(&str, &[&str]); 7] = [
    ("protocol", &[]),
    ("worker", &["offload-protocol"]),
    ("supervisor/event-loop", &[]),
    ("supervisor/core", &["offload-protocol"]),
    ("supervisor", &["offload-core", "offload-event-loop", "offload-protocol"]),
    ("supervisor/http", &["offload-event-loop", "offload-protocol", "offload-supervisor"]),
    (
        "supervisor/cli",
        &[
            "offload-core",
            "offload-event-loop",
            "offload-http",
            "offload-protocol",
            "offload-supervisor",
            "offload-worker",
        ],
    ),
];

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") && !entry.file_name().to_string_lossy().starts_with('.')
        {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let files = rust_files(workspace());
    assert!(files.len() > 80, "the sources are not where they are looked for");
    files.into_iter().map(|file| (file.clone(), std::fs::read_to_string(file).unwrap())).collect()
}

/// The rooms that a file names, as `crate::ROOM`.
fn rooms_used(source: &str) -> BTreeSet<String> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::").skip(1).map(room_at_the_start_of).collect::<Vec<_>>())
        .collect()
}

fn room_at_the_start_of(text: &str) -> String {
    text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
}

/// The rooms of the library or of the Python package with those that each uses, the highest first, as ARCHITECTURE.md draws
/// them below `heading`. The last line of the drawing has those that use no other.
fn drawn_rooms(heading: &str) -> Vec<(String, BTreeSet<String>)> {
    let architecture = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let drawing = architecture.split(heading).nth(1).unwrap().split("```").nth(1).unwrap();
    let lines = drawing.lines().filter_map(|line| line.split_once("──►"));
    let words = |text: &str| text.split(", ").map(|word| word.trim().to_owned()).collect::<BTreeSet<_>>();
    let mut rooms = Vec::new();
    for (room, used) in lines {
        let used = words(used.split(':').next().unwrap());
        match room.trim() {
            "" => rooms.extend(used.into_iter().map(|room| (room, BTreeSet::new()))),
            room => rooms.push((room.to_owned(), used)),
        }
    }
    rooms
}

/// The rooms of the library, each with the other ones that its files name.
fn rooms_in_the_sources() -> BTreeMap<String, BTreeSet<String>> {
    let folder = workspace().join("supervisor/src");
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in rust_files(&folder) {
        let inside = file.strip_prefix(&folder).unwrap();
        let room = inside.iter().next().unwrap().to_string_lossy().trim_end_matches(".rs").to_owned();
        let source = std::fs::read_to_string(&file).unwrap();
        assert!(!source.contains("crate::{"), "{}: one line for each room", file.display());
        let used = rooms_used(&source).into_iter().filter(|used| *used != room);
        rooms.entry(room.clone()).or_default().extend(used);
    }
    rooms.remove("lib");
    rooms
}

/// Nothing that is drawn points up, so no two rooms use each other.
fn check_the_drawing(heading: &str, found: &BTreeMap<String, BTreeSet<String>>) {
    let drawn = drawn_rooms(heading);
    for (position, (room, used)) in drawn.iter().enumerate() {
        let below: BTreeSet<_> = drawn[position + 1..].iter().map(|(room, _)| room).collect();
        for used in used {
            assert!(below.contains(used), "{room} uses {used}, which is not drawn below it");
        }
    }
    let drawn: BTreeMap<_, _> = drawn.into_iter().collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), drawn.keys().collect::<Vec<_>>());
    for (room, used) in found {
        assert_eq!(*used, drawn[room], "{room}: on the left what it uses, on the right what is drawn");
    }
}

#[test]
fn the_rooms_of_the_library_are_as_they_are_drawn_and_use_only_those_below() {
    check_the_drawing("### Rooms of the library\n", &rooms_in_the_sources());
}

/// The Python files of the package: of each its name, and what is in it.
fn python_files() -> Vec<(String, String)> {
    let folder = workspace().join("worker/python/offload");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "py"));
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    files.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

/// The rooms that a Python file imports: `from ._wire import ...`, `from . import _messages as messages`.
fn rooms_imported(source: &str) -> BTreeSet<String> {
    let rest = source.lines().filter_map(|line| line.trim_start().strip_prefix("from ."));
    let words = rest.flat_map(|line| match line.strip_prefix(" import ") {
        Some(rooms) => rooms.split(", ").map(room_at_the_start_of).collect::<Vec<_>>(),
        None => vec![room_at_the_start_of(line)],
    });
    words.collect()
}

#[test]
fn the_rooms_of_the_python_package_are_as_they_are_drawn_and_use_only_those_below() {
    let rooms = python_files().into_iter().filter(|(name, _)| name != "__init__");
    let found = rooms.map(|(name, source)| (name, rooms_imported(&source))).collect();
    check_the_drawing("### Rooms of the Python package\n", &found);
}

#[test]
fn every_python_file_says_why_it_exists_and_stays_readable() {
    for (name, source) in python_files() {
        assert!(source.starts_with(r#"""""#), "{name}.py begins without a word of explanation");
        assert!(source.lines().count() <= 500, "{name}.py has {} lines", source.lines().count());
    }
}

#[test]
fn the_core_knows_no_clock_no_descriptor_no_thread_and_no_random_order() {
    let forbidden = [
        "Instant",
        "SystemTime",
        "std::net",
        "std::fs",
        "std::io",
        "std::thread",
        "HashMap",
        "HashSet",
        "rustix",
        "nix::",
    ];
    for file in rust_files(&workspace().join("supervisor/core/src")) {
        let source = std::fs::read_to_string(&file).unwrap();
        for word in forbidden {
            let found =
                source.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(word));
            assert!(!found, "{} uses {word}", file.display());
        }
    }
}

/// The names on the left in a table of a manifest.
fn table(manifest: &str, name: &str) -> BTreeSet<String> {
    let table = manifest.split(&format!("[{name}]\n")).nth(1).unwrap_or_default().split("\n[").next();
    let names = table.unwrap_or_default().lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| !name.is_empty() && !name.starts_with('#')).map(str::to_owned).collect()
}

fn dependencies(package: &str) -> BTreeSet<String> {
    table(&std::fs::read_to_string(workspace().join(package).join("Cargo.toml")).unwrap(), "dependencies")
}

#[test]
fn crates_point_in_one_direction() {
    for (package, allowed) in MAY_DEPEND_ON {
        let dependencies = dependencies(package);
        assert!(!dependencies.is_empty(), "the manifest of {package} was not understood");
        assert!(!dependencies.contains("tests") && !dependencies.contains("examples"), "{package}");
        let ours = dependencies.iter().filter(|name| name.starts_with("offload"));
        for name in ours {
            assert!(allowed.contains(&name.as_str()), "{package} depends on {name}");
        }
    }
}

/// What could read a clock, a file or a socket is no dependency of the core.
/// What is compiled into a package, directly or not, as cargo resolves it for this package alone.
fn compiled_into(package: &str) -> BTreeSet<String> {
    let arguments =
        ["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--package", package];
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output =
        Command::new(cargo).args(arguments).current_dir(workspace()).output().expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Whoever embeds the library compiles no command line, and a worker of somebody's own no built-in task.
#[test]
fn nobody_compiles_what_only_others_use() {
    let of_the_program = ["clap", "clap_complete", "clap_mangen", "indicatif", "ratatui"];
    let of_the_tasks = ["regex", "fancy-regex", "flate2", "pbkdf2"];
    for package in ["offload-supervisor", "offload-worker", "offload-event-loop", "offload-core"] {
        let compiled = compiled_into(package);
        assert!(compiled.contains(package), "{package}: {compiled:?}");
        for unwanted in of_the_program.iter().chain(&of_the_tasks) {
            assert!(!compiled.contains(*unwanted), "{package} compiles {unwanted}");
        }
    }
    assert!(
        compiled_into("offload").is_superset(&of_the_program.map(str::to_owned).into()),
        "else this proves nothing"
    );
}

#[test]
fn the_core_depends_on_nouns_only() {
    assert_eq!(dependencies("supervisor/core"), BTreeSet::from(["offload-protocol".to_owned()]));
    let of_the_protocol = ["bincode", "bytes", "serde"].map(str::to_owned);
    assert_eq!(dependencies("protocol"), BTreeSet::from(of_the_protocol));
}

#[test]
fn unsafe_code_is_only_where_it_is_expected() {
    for (file, source) in all_sources() {
        let is_expected = file.ends_with("sys.rs") || file.ends_with("tidy/main.rs");
        let is_used = ["unsafe {", "unsafe fn", "unsafe impl", "expect(unsafe_code", "allow(unsafe_code"]
            .iter()
            .any(|word| source.contains(word));
        assert!(is_expected || !is_used, "{}", file.display());
    }
}

#[test]
fn every_module_says_why_it_exists() {
    for (file, source) in all_sources() {
        assert!(source.starts_with("//!"), "{} begins without a word of explanation", file.display());
    }
}

#[test]
fn files_and_functions_stay_readable() {
    for (file, source) in all_sources() {
        let tests_begin = source.find("#[cfg(test)]\nmod tests {").unwrap_or(source.len());
        let lines = source[..tests_begin].lines().count();
        assert!(lines <= 500, "{} has {lines} lines", file.display());
    }
}

#[test]
fn nothing_is_left_unfinished() {
    let words = [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("FIX", "ME"),
        concat!("#[ig", "nore"),
    ];
    for (file, source) in all_sources() {
        for word in words {
            assert!(!source.contains(word), "{} contains {word}", file.display());
        }
    }
}

#[test]
fn every_dependency_is_pinned_and_explained() {
    let manifest = std::fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let table = manifest.split("[workspace.dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let architecture = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let names = table.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    let outside: Vec<_> = names.filter(|name| !name.starts_with("offload-")).collect();
    assert!(outside.len() > 15);
    for name in outside {
        assert!(
            architecture.contains(&format!("`{name}`")),
            "ARCHITECTURE.md does not say why {name} is used"
        );
    }
    assert!(workspace().join("Cargo.lock").exists());
}

/// The words of a document that look like the path of a source from the root of the workspace.
fn paths_named_in(document: &str) -> Vec<String> {
    let separators = |character: char| !character.is_alphanumeric() && !"/_-.".contains(character);
    let is_path = |word: &&str| {
        let begins = ["protocol/", "worker/src/", "supervisor/", "tests/", "examples/"];
        begins.iter().any(|folder| word.starts_with(folder)) && word.ends_with(".rs")
    };
    document.split(separators).filter(is_path).map(str::to_owned).collect()
}

#[test]
fn sources_that_the_documents_name_are_there() {
    let mut count = 0;
    let documents = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "supervisor/README.md",
        "supervisor/cli/README.md",
        "supervisor/http/README.md",
        "tests/README.md",
        "worker/README.md",
    ];
    for document in documents {
        for path in paths_named_in(&std::fs::read_to_string(workspace().join(document)).unwrap()) {
            assert!(workspace().join(&path).exists(), "{document} names {path}");
            count += 1;
        }
    }
    assert!(count > 20, "{count} names were found");
}

/// The sources of the package for Node.
fn scripts(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) =
        entries.filter(|path| !path.ends_with("node_modules")).partition(|path| path.is_dir());
    let is_script = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "js" || ending == "mjs");
    let below = folders.iter().flat_map(|folder| scripts(folder));
    files.into_iter().filter(is_script).chain(below).collect()
}

#[test]
fn the_package_for_node_needs_nothing_but_node_and_its_files_stay_readable() {
    let folder = workspace().join("worker/node");
    let files = scripts(&folder);
    assert!(files.len() > 30, "{} files", files.len());
    for file in files {
        let (source, name) = (std::fs::read_to_string(&file).unwrap(), file.display());
        assert!(source.starts_with("/**"), "{name} begins without a word of explanation");
        assert!(source.lines().count() <= 500, "{name} has {} lines", source.lines().count());
        let is_here = |from: &str| from.starts_with("node:") || from.starts_with('.');
        assert!(
            source.split(" from '").skip(1).all(is_here),
            "{name} imports what is neither Node's nor ours"
        );
    }
    let package = std::fs::read_to_string(folder.join("package.json")).unwrap();
    let version = format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(package.contains(&version) && !package.contains("ependencies"), "{package}");
}

/// The loop is used by its pool of threads, and knows nothing of it.
#[test]
fn the_event_loop_knows_nothing_of_the_io_pool() {
    let folder = workspace().join("supervisor/event-loop/src");
    for file in rust_files(&folder).into_iter().filter(|file| !file.starts_with(folder.join("io_pool"))) {
        let source = std::fs::read_to_string(&file).unwrap();
        assert!(!rooms_used(&source).contains("io_pool"), "{}", file.display());
    }
}

/// What is configured can be read without any verb of the command line. The table of bounds is everybody's.
#[test]
fn the_configuration_knows_no_verb() {
    for file in rust_files(&workspace().join("supervisor/cli/src/configuration")) {
        let source = std::fs::read_to_string(&file).unwrap();
        let used = rooms_used(&source);
        assert!(
            used.iter().all(|room| ["configuration", "limits"].contains(&room.as_str())),
            "{} uses {used:?}",
            file.display()
        );
    }
}
