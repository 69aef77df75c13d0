//! The table of `supervisor/http/README.md`: which test shows which rule.

use std::path::Path;
use tests::harness::workspace;

/// All files with tests: their paths and what they say.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder of ours") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((path.display().to_string(), std::fs::read_to_string(&path).expect("a text")));
        }
    }
}

#[test]
fn each_test_that_the_table_names_is_there() {
    let mut all = Vec::new();
    for folder in ["tests", "supervisor", "worker/src", "protocol/src"] {
        sources(&workspace().join(folder), &mut all);
    }
    let table = std::fs::read_to_string(workspace().join("supervisor/http/README.md")).expect("it is there");
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let names = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(|name| name.contains("::"));
    let mut count = 0;
    for name in names.filter(|name| !name.starts_with("Remote")) {
        let (file, function) = name.split_once("::").expect("it has both");
        let ends = [format!("/{file}.rs"), format!("/{file}/tests.rs"), format!("/{file}/main.rs")];
        let has_it = |path: &str, text: &str| {
            ends.iter().any(|end| path.ends_with(end)) && text.contains(&format!("fn {function}("))
        };
        assert!(all.iter().any(|(path, text)| has_it(path, text)), "there is no test {name}");
        count += 1;
    }
    assert!(count > 80, "{count} names are found");
}
