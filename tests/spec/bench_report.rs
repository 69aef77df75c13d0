//! `offload bench compare --report` and `advise --report`: the page with plots, as a browser shows it.

use std::path::Path;
use std::process::Command;
use tests::harness::{private_folder, run_offload, workspace};

/// Looks at a page with `tests/browser/report.py`; what that says of the plots.
fn in_a_browser(page: &Path, flags: &[&str]) -> String {
    let mut python = Command::new("python3");
    let output = python.arg(workspace().join("tests/browser/report.py")).arg(page).args(flags).output();
    let output = output.expect("python3 can be run");
    let (plots, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{plots}\n{said}");
    plots.into_owned()
}

/// Few and short rounds: what is looked at is the page.
fn compare(flags: &[&str], page: &Path) -> String {
    let page = page.to_str().expect("a path");
    let verb = ["bench", "compare", "--rounds", "6", "--seconds", "0.3", "--report", page];
    run_offload(&[&verb[..], flags].concat()).ok().text()
}

#[test]
fn a_page_has_the_plots_of_a_comparison_and_of_several_sizes() {
    let folder = private_folder();
    let page = folder.path().join("page.html");
    let printed = compare(&["--size", "20000,200000", "--json"], &page);
    assert_eq!(printed.lines().count(), 2, "the report is printed all the same: {printed}");
    let plots = in_a_browser(&page, &["--other-figures"]);
    for plot in ["crossover", "throughput-average-20000", "latency-average-200000", "lag-average-20000"] {
        assert!(plots.contains(plot), "{plots}");
    }
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(printed.lines().all(|report| html.contains(report)), "the figures are in it: {printed}");
}

#[test]
fn a_page_of_work_of_ones_own_shows_the_strategies_that_are_possible() {
    let folder = private_folder();
    let page = folder.path().join("page.html");
    let text = compare(&["--exec", "cat", "--input", "</script><script>alert(1)</script>"], &page);
    assert!(text.contains("one_worker"), "{text}");
    assert!(in_a_browser(&page, &[]).contains("throughput-exec"), "a plot of it");
}

#[test]
fn a_page_of_advice_shows_where_the_lines_cross() {
    let folder = private_folder();
    let page = folder.path().join("page.html");
    let path = page.to_str().expect("a path");
    let verb = ["bench", "advise", "--workers", "2", "--seconds", "0.5", "--report", path];
    let text = run_offload(&verb).ok().text();
    assert!(in_a_browser(&page, &[]).contains("crossover"), "the plot");
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(text.lines().all(|line| html.contains(&line.replace('>', "&gt;"))), "the text is in it, too");
}

#[test]
fn a_page_that_cannot_be_written_is_known_before_anything_is_measured() {
    let ran = run_offload(&["bench", "compare", "--seconds", "600", "--report", "/nonexistent/page.html"]);
    ran.code(74);
}
