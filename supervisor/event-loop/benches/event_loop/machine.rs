//! On which machine and when: a figure without it says nothing.

use std::process::Command;

pub(crate) fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = first_line("/proc/sys/kernel/osrelease");
    let load = first_line("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "{cores} cores of {}, Linux {kernel}, {}, {}; load before the run {load}",
        model(),
        said_by("rustc", &["--version"]),
        said_by("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
    )
}

fn model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.map_or("an unknown model", |line| line.trim_start_matches([' ', '\t', ':'])).to_owned()
}

fn first_line(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    match Command::new(program).args(arguments).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => format!("{program}: {error}"),
    }
}
