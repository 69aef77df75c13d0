//! Tests of a job log with its results, and of logs that somebody else has damaged.

use super::*;
use crate::digest::digest_of_bytes;
use crate::render::refused;
use proptest::prelude::*;

fn work() -> LoggedWork {
    LoggedWork { task: "task".to_owned(), form: Form::Raw, command: None, output_dir: None }
}

fn work_in(folder: &Path) -> LoggedWork {
    LoggedWork { output_dir: Some(folder.to_owned()), ..work() }
}

fn open_for(path: &Path, mode: LogMode, work: LoggedWork) -> Result<(JobLog, Arc<DoneJobs>), Failure> {
    JobLog::open(path, mode, work, &mut ProtectedFiles::default())
}

fn open(path: &Path, mode: LogMode) -> Result<(JobLog, Arc<DoneJobs>), Failure> {
    open_for(path, mode, work())
}

fn notes(digest: &str) -> Notes {
    Notes { input_digest: Some(digest.to_owned()), ..Notes::default() }
}

fn result(index: u64, outcome: OutcomeCode) -> NumberedResult {
    NumberedResult { index, finished: refused("task", outcome, String::new()), notes: notes("sha256:a") }
}

/// Adds a job that is ok, and what is printed of it.
fn add_ok(log: &mut JobLog, index: u64, printed: &str) -> Printed {
    let mut result = result(index, OutcomeCode::Ok);
    let place = log.add_printed(printed.as_bytes()).unwrap();
    result.notes.printed = Some(place);
    log.add_lines(&[result]).unwrap();
    place
}

#[test]
fn what_counts_is_not_run_again_and_what_has_failed_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (mut log, done) = open(&path, LogMode::Fresh).unwrap();
    assert_eq!(done.verdict(0, &notes("sha256:a")), Verdict::Run);
    let place = add_ok(&mut log, 5, "five");
    log.add_lines(&[result(6, OutcomeCode::AppError), result(7, OutcomeCode::Cancelled)]).unwrap();
    assert!(matches!(open(&path, LogMode::Resume), Err(Failure::Usage(why)) if why.contains("another map")));
    drop((log, done));

    let (log, done) = open(&path, LogMode::Resume).unwrap();
    assert_eq!(done.verdict(5, &notes("sha256:a")), Verdict::Done(place));
    assert_eq!(done.verdict(5, &notes("sha256:b")), Verdict::Run, "its input is another one");
    assert_eq!(done.verdict(6, &notes("sha256:a")), Verdict::Run);
    let named = Notes { file: Some("x".into()), ..notes("sha256:a") };
    assert_eq!(done.verdict(5, &named), Verdict::Run, "the line would have another name");
    drop((log, done));

    let (log, done) = open(&path, LogMode::RetryFailed).unwrap();
    let verdicts = [5, 6, 7].map(|index| done.verdict(index, &notes("sha256:a")));
    assert_eq!(verdicts, [Verdict::Done(place), Verdict::Run, Verdict::LeftOut]);
    drop((log, done));
    assert!(matches!(open(&path, LogMode::Fresh), Err(Failure::Usage(why)) if why.contains("--resume")));
}

#[test]
fn only_the_very_input_that_has_failed_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (mut log, _) = open(&path, LogMode::Fresh).unwrap();
    add_ok(&mut log, 0, "zero");
    let named = |digest: Option<&str>, name: &str| Notes {
        input_digest: digest.map(str::to_owned),
        file: Some(name.into()),
        ..Notes::default()
    };
    let failed = |index, notes| NumberedResult { notes, ..result(index, OutcomeCode::AppError) };
    log.add_lines(&[
        failed(1, notes("sha256:a")),
        failed(2, named(Some("sha256:a"), "x")),
        failed(3, named(None, "missing")),
        failed(4, Notes::default()),
    ])
    .unwrap();
    drop(log);
    let (_, done) = open(&path, LogMode::RetryFailed).unwrap();
    for (index, notes, verdict) in [
        (0, notes("sha256:b"), Verdict::LeftOut),
        (0, Notes::default(), Verdict::LeftOut),
        (1, notes("sha256:a"), Verdict::Run),
        (1, notes("sha256:b"), Verdict::LeftOut),
        (2, named(Some("sha256:a"), "x"), Verdict::Run),
        (2, named(Some("sha256:a"), "y"), Verdict::LeftOut),
        (2, named(Some("sha256:b"), "x"), Verdict::LeftOut),
        (2, named(None, "x"), Verdict::Run),
        (3, named(Some("sha256:a"), "missing"), Verdict::Run),
        (3, named(Some("sha256:a"), "other"), Verdict::LeftOut),
        (4, notes("sha256:a"), Verdict::LeftOut),
        (5, notes("sha256:a"), Verdict::LeftOut),
    ] {
        assert_eq!(done.verdict(index, &notes), verdict, "{index}: {notes:?}");
    }
    let said = done.left_out();
    assert!(said[0].starts_with("1 job is not in the job log and was left out"), "{said:?}");
    assert!(said[1].starts_with("7 jobs have another input than the job log has under"), "{said:?}");
}

#[test]
fn the_later_line_of_a_job_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (mut log, _) = open(&path, LogMode::Fresh).unwrap();
    add_ok(&mut log, 0, "first");
    let later = add_ok(&mut log, 0, "second");
    add_ok(&mut log, 1, "x");
    log.add_lines(&[result(1, OutcomeCode::Timeout)]).unwrap();
    drop(log);
    let (_, done) = open(&path, LogMode::Resume).unwrap();
    assert_eq!(done.verdict(0, &notes("sha256:a")), Verdict::Done(later));
    assert_eq!(done.verdict(1, &notes("sha256:a")), Verdict::Run);
}

#[test]
fn a_log_of_other_work_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    add_ok(&mut open(&path, LogMode::Fresh).unwrap().0, 0, "x");
    for (other, said) in [
        (LoggedWork { task: "other".to_owned(), ..work() }, "its task is task"),
        (LoggedWork { form: Form::JsonLines, ..work() }, "with --raw"),
        (LoggedWork { command: Some(vec!["sha256sum".to_owned()]), ..work() }, "another command"),
        (work_in(folder.path()), "without --output-dir"),
    ] {
        let refused = open_for(&path, LogMode::Resume, other);
        assert!(matches!(refused, Err(Failure::Usage(why)) if why.contains(said)), "{said}");
    }
}

/// Adds a job that is ok and whose output, three bytes, is in the file `x`.
fn add_ok_with_file(log: &mut JobLog) -> NumberedResult {
    let mut result = result(0, OutcomeCode::Ok);
    result.finished.report.receipt.output_bytes = 3;
    result.notes.output_name = Some("x".into());
    result.notes.output_digest = Some(digest_of_bytes(b"abc"));
    result.notes.printed = Some(log.add_printed(b"line").unwrap());
    log.add_lines(&[result.clone()]).unwrap();
    result
}

#[test]
fn an_output_that_is_gone_or_another_one_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let result = add_ok_with_file(&mut open_for(&path, LogMode::Fresh, work_in(folder.path())).unwrap().0);
    let (_log, done) = open_for(&path, LogMode::Resume, work_in(folder.path())).unwrap();
    assert_eq!(done.verdict(0, &result.notes), Verdict::Run);
    for (content, verdict) in
        [("abc", Verdict::Done(Printed::new(0, b"line"))), ("abcd", Verdict::Run), ("abd", Verdict::Run)]
    {
        std::fs::write(folder.path().join("x"), content).unwrap();
        assert_eq!(done.verdict(0, &result.notes), verdict, "{content}");
    }
}

#[test]
fn the_folder_of_the_outputs_is_a_part_of_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    add_ok_with_file(&mut open_for(&path, LogMode::Fresh, work_in(Path::new("out"))).unwrap().0);
    let again = |work| open_for(&path, LogMode::Resume, work).map(|_| ());
    let refused = |work, said: &str| match again(work) {
        Err(Failure::Usage(why)) => assert!(why.contains(said), "{why}"),
        other => panic!("{other:?}"),
    };
    again(work_in(Path::new("out/"))).unwrap();
    refused(work_in(Path::new("other")), "its outputs are in out/ (--output-dir out/ goes on with it)");
    refused(work_in(Path::new("./out")), "its outputs are in out/");
    refused(work(), "its outputs are in out/");
    // So were lines until there were these two members.
    let lines = std::fs::read_to_string(&path).unwrap();
    let mut line: serde_json::Value = serde_json::from_str(lines.trim()).unwrap();
    line["output_digest"].take();
    line["output_dir"].take();
    let index_first = format!("{{\"index\":0,{}\n", &line.to_string()[1..]);
    std::fs::write(&path, index_first.replace(",\"index\":0", "")).unwrap();
    refused(work_in(Path::new("out")), "it is of an older version");
    refused(work(), "it is of an older version");
}

#[test]
fn what_belongs_to_somebody_else_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let refuses = |mode, said: &str| {
        let refused = open(&path, mode);
        assert!(matches!(refused, Err(Failure::Usage(why)) if why.contains(said)), "{mode:?}");
    };
    std::fs::write(results_path(&path), "precious").unwrap();
    refuses(LogMode::Fresh, "is there already");
    refuses(LogMode::Resume, "is there already");
    assert!(!path.exists());
    assert_eq!(std::fs::read(results_path(&path)).unwrap(), b"precious");
    std::fs::remove_file(results_path(&path)).unwrap();
    for other in ["my notes", "my notes\n", "[1, 2]\n{}\n"] {
        std::fs::write(&path, other).unwrap();
        refuses(LogMode::Resume, "something else");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
    }
    for torn in ["", "{\"in", "{\"index\":1,\"input"] {
        std::fs::write(&path, torn).unwrap();
        open(&path, LogMode::Resume).unwrap();
    }
}

#[test]
fn a_device_is_no_log() {
    assert!(matches!(open(Path::new("/dev/null"), LogMode::Fresh), Err(Failure::NoPlace(_))));
}

proptest! {
    /// However much of the two files is on disk, and whatever stands there in its place: what counts is whole.
    #[test]
    fn of_a_log_that_was_cut_off_exactly_the_whole_lines_count_whose_results_are_there(
        printed in proptest::collection::vec("[a-z]{0,9}", 1..8),
        lines_left in 0.0f64..=1.0,
        results_left in 0.0f64..=1.0,
        torn in "(?s).{0,20}",
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut log, _) = open(&path, LogMode::Fresh).unwrap();
        let places: Vec<_> =
            printed.iter().enumerate().map(|(index, text)| add_ok(&mut log, index as u64, text)).collect();
        drop(log);
        let cut = |path: &Path, left: f64| {
            let bytes = std::fs::read(path).unwrap();
            let left = (bytes.len() as f64 * left) as usize;
            std::fs::write(path, &bytes[..left]).unwrap();
            bytes[..left].to_vec()
        };
        let left = cut(&path, lines_left);
        prop_assume!(left.len() >= 9 || torn.is_empty());
        let lines = left.iter().filter(|byte| **byte == b'\n').count();
        let results = cut(&results_path(&path), results_left).len() as u64;
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(torn.as_bytes()).unwrap();

        let (mut log, done) = open(&path, LogMode::Resume).unwrap();
        // The torn piece may end the line before it by chance; then that is whole, or no line.
        let added = add_ok(&mut log, 100, "added");
        drop((log, done));
        let (log, done) = open(&path, LogMode::Resume).unwrap();
        prop_assert_eq!(done.verdict(100, &notes("sha256:a")), Verdict::Done(added));
        for (index, place) in places.iter().enumerate().take(lines) {
            match done.verdict(index as u64, &notes("sha256:a")) {
                Verdict::Done(_) => {
                    let read = place.read(&log.results().unwrap()).unwrap();
                    prop_assert_eq!(read, printed[index].as_bytes(), "others may have written the same there");
                }
                verdict => prop_assert!(verdict == Verdict::Run && place.end() > results),
            }
        }
        for index in lines + 1..printed.len() {
            prop_assert_eq!(done.verdict(index as u64, &notes("sha256:a")), Verdict::Run);
        }
        prop_assert_eq!(added.read(&log.results().unwrap()).unwrap(), b"added");
    }
}
