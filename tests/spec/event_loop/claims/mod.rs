//! One test for each claim, named after it: `s12_...` proves S12. The table in `tests/README.md` says which claims are proved
//! elsewhere, and which are not tested and why.

mod check_and_close;
mod heavy;
mod immediate_or_timeout;
mod offloading;
mod pending;
mod poll;
mod pool;
mod pool_tasks;
mod props;
mod structure;
mod threads;
mod ticks;
mod timers;

use tests::harness::workspace;

/// The claim and the rest of the name of every test in this folder.
fn tests_of_claims() -> Vec<(usize, String)> {
    let folder = workspace().join("tests/spec/event_loop/claims");
    let sources =
        std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()));
    let named = |line: &str| {
        let (number, rest) = line.strip_prefix("fn s")?.split_once('_')?;
        Some((number.parse().ok()?, rest.split_once('(')?.0.to_owned()))
    };
    sources.flat_map(|source| source.unwrap().lines().filter_map(named).collect::<Vec<_>>()).collect()
}

#[test]
fn the_table_of_the_readme_has_every_claim_in_its_order_and_every_test_beside_its_claim() {
    let readme = std::fs::read_to_string(workspace().join("tests/README.md")).unwrap();
    let rows: Vec<_> = readme.lines().filter(|line| line.starts_with("| S")).collect();
    assert_eq!(rows.len(), 72);
    for (row, claim) in rows.iter().zip(1..) {
        assert!(row.starts_with(&format!("| S{claim} ")), "instead of S{claim}: {row}");
    }
    let tests = tests_of_claims();
    assert!(tests.len() >= 72, "{} tests are found", tests.len());
    for (claim, name) in &tests {
        assert!(rows[claim - 1].contains(&format!("`{name}`")), "S{claim} does not name {name}");
    }
    let names_in_rows = rows.iter().flat_map(|row| row.split('`').skip(1).step_by(2));
    for name in names_in_rows.filter(|name| name.matches('_').count() >= 3 && !name.contains('/')) {
        assert!(tests.iter().any(|(_, test)| test == name), "there is no test {name}");
    }
}
