//! The result beside that of an earlier run, for those who want to know whether a change made something slower.
//!
//! The rounds of two runs are no pairs, so all rounds of the one are compared with all of the other. Two runs of one program
//! differ by more than their rounds do: a tolerance allows for that, and for what others use of the machine now.

use super::super::failure::Failure;
use super::report::{BenchReport, Subject};
use super::rows::{BesideBaseline, NoiseRow, Row, SLOWER};
use super::statistics::{Ratio, Verdict};
use crate::limits::BASELINE_BYTES_MAX;
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The reports of an earlier run.
pub(super) struct Baseline {
    file: PathBuf,
    reports: Vec<EarlierReport>,
}

/// What is read of a [`BenchReport`].
#[derive(Debug, Deserialize)]
struct EarlierReport {
    #[serde(flatten)]
    subject: Subject,
    strategies: Vec<EarlierRow>,
}

#[derive(Debug, Deserialize)]
struct EarlierRow {
    strategy: String,
    jobs_per_s: f64,
    jobs_per_s_of_rounds: Vec<f64>,
}

impl Baseline {
    /// Reads a file with what `--json` has printed.
    ///
    /// # Errors
    /// It cannot be read, or is no such file.
    pub(super) fn read(file: &Path) -> Result<Baseline, Failure> {
        let name = file.display();
        let text = read(file).map_err(|error| Failure::Unreadable(format!("cannot read {name}: {error}")))?;
        let reports: Result<Vec<_>, _> =
            serde_json::Deserializer::from_str(&text).into_iter::<EarlierReport>().collect();
        let not_one = |why: String| {
            Failure::Usage(format!(
                "--baseline: {name} is no report of `offload bench compare --json`: {why}"
            ))
        };
        match reports {
            Ok(reports) if reports.is_empty() => Err(not_one("it is empty".to_owned())),
            Ok(reports) => Ok(Baseline { file: file.to_owned(), reports }),
            Err(error) => Err(not_one(error.to_string())),
        }
    }

    /// The report on the same work, here.
    ///
    /// # Errors
    /// A usage error that says what is another one.
    fn of(&self, subject: &Subject) -> Result<&EarlierReport, Failure> {
        let is_same_work = |report: &&EarlierReport| {
            let Subject { task, size, inputs_digest, .. } = &report.subject;
            (task, size, inputs_digest) == (&subject.task, &subject.size, &subject.inputs_digest)
        };
        let refused = |why: String| Failure::Usage(format!("--baseline: {} {why}", self.file.display()));
        let Some(found) = self.reports.iter().find(is_same_work) else {
            let works: Vec<_> = self.reports.iter().map(|report| report.subject.work()).collect();
            return Err(refused(format!("is of {}, and this is {}", works.join("; "), subject.work())));
        };
        let (then, now) = (&found.subject, subject);
        if then.machine != now.machine {
            let [then, now] = [then, now].map(|of| format!("{} x {}", of.machine.cores, of.machine.model));
            return Err(refused(format!("was measured on another machine ({then}), and this is {now}")));
        }
        if then.workers != now.workers {
            let (then, now) = (then.workers, now.workers);
            return Err(refused(format!("was measured with --workers {then}, and this is --workers {now}")));
        }
        Ok(found)
    }
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(BASELINE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 <= BASELINE_BYTES_MAX {
        true => Ok(text),
        false => Err(io::Error::other(format!("it has more than {BASELINE_BYTES_MAX} bytes"))),
    }
}

/// Says what became slower, if there is an earlier run.
pub(super) struct Judge {
    pub(super) baseline: Option<Baseline>,
    /// How much less is no difference, as a share.
    pub(super) tolerance: f64,
}

impl Judge {
    /// Whether there will be something to compare with; to be asked before anything is measured.
    ///
    /// # Errors
    /// The earlier run was on something else, or elsewhere.
    pub(super) fn check(&self, subject: &Subject) -> Result<(), Failure> {
        self.baseline.as_ref().map_or(Ok(()), |baseline| baseline.of(subject).map(drop))
    }

    /// Puts each strategy beside the earlier run.
    pub(super) fn judge(&self, report: &mut BenchReport) {
        let earlier = self.baseline.as_ref().and_then(|baseline| baseline.of(&report.subject).ok());
        let allowed = self.allowed(&report.noise);
        for row in &mut report.strategies {
            let earlier = earlier.and_then(|earlier| {
                earlier.strategies.iter().find(|earlier| earlier.strategy == row.strategy)
            });
            row.baseline = earlier.and_then(|earlier| beside(row, earlier, allowed));
        }
    }

    /// What others use of the machine is missing here, so it is allowed for.
    fn allowed(&self, noise: &NoiseRow) -> f64 {
        (self.tolerance + noise.foreign + noise.stolen).min(self.tolerance.max(ALLOWED_MAX))
    }
}

/// Whatever others use of the machine, it does not excuse more than this.
const ALLOWED_MAX: f64 = 0.5;

fn beside(row: &Row, earlier: &EarlierRow, allowed: f64) -> Option<BesideBaseline> {
    let ratio = Ratio::of_runs(&row.jobs_per_s_of_rounds, &earlier.jobs_per_s_of_rounds)?;
    let verdict = match ratio.verdict_beyond(allowed) {
        Verdict::More => "faster",
        Verdict::Less => SLOWER,
        Verdict::NoDifference => "no_difference",
        Verdict::Unclear => "unclear",
        Verdict::TooFewRounds => "too_few_rounds",
    };
    let (low, high) = ratio.interval.unzip();
    Some(BesideBaseline { jobs_per_s: earlier.jobs_per_s, ratio: ratio.ratio, low, high, allowed, verdict })
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    /// An earlier run whose strategies did so many jobs a second, and now all did a hundred, with some noise.
    fn judged(rate: f64, foreign: f64) -> BenchReport {
        let rates = |rate: f64| (0..10).map(|round| rate * (1.0 + f64::from(round % 3) / 100.0)).collect();
        let mut now = report();
        now.strategies.iter_mut().for_each(|row| row.jobs_per_s_of_rounds = rates(100.0));
        let earlier = EarlierRow {
            strategy: "offloaded".to_owned(),
            jobs_per_s: rate,
            jobs_per_s_of_rounds: rates(rate),
        };
        let earlier = EarlierReport { subject: now.subject.clone(), strategies: vec![earlier] };
        let baseline = Baseline { file: "before.json".into(), reports: vec![earlier] };
        (now.noise.foreign, now.noise.stolen) = (foreign, 0.0);
        Judge { baseline: Some(baseline), tolerance: 0.05 }.judge(&mut now);
        now
    }

    #[test]
    fn what_became_slower_is_told_with_the_interval_and_what_did_not_is_not() {
        let verdict = |rate, foreign| judged(rate, foreign).strategies[1].baseline.as_ref().unwrap().verdict;
        assert_eq!([111.0, 100.0, 90.0].map(|rate| verdict(rate, 0.0)), [SLOWER, "no_difference", "faster"]);
        // What others use of the machine may be the reason, up to a half of it.
        assert_eq!((verdict(111.0, 0.2), verdict(300.0, 0.9)), ("no_difference", SLOWER));
        let slower = judged(200.0, 0.0);
        assert!(slower.is_slower() && slower.text().contains("Beside the baseline: offloaded 0.50 (0."));
        let complaint = slower.complaint().unwrap();
        assert!(
            complaint.contains("average 20000: jobs/s beside the baseline: offloaded 0.50 (0.50 to 0.5"),
            "{complaint}"
        );
        assert!(!judged(100.0, 0.0).is_slower());
        assert!(slower.strategies[0].baseline.is_none(), "the earlier run knows nothing of it");
    }

    #[test]
    fn an_earlier_run_on_something_else_or_elsewhere_is_refused() {
        let now = report();
        let reports = vec![EarlierReport { subject: now.subject.clone(), strategies: Vec::new() }];
        let baseline = Baseline { file: "before.json".into(), reports };
        assert!(baseline.of(&now.subject).is_ok());
        let refused = |change: fn(&mut Subject)| {
            let mut subject = now.subject.clone();
            change(&mut subject);
            baseline.of(&subject).unwrap_err().message().unwrap()
        };
        for (message, expected) in [
            (refused(|subject| subject.size = Some(7)), "is of average 20000, and this is average 7"),
            (refused(|subject| subject.task = "json".to_owned()), "this is json 20000"),
            (refused(|subject| subject.inputs_digest = Some(String::new())), "is of average 20000"),
            (refused(|subject| subject.machine.cores = 8), "another machine (4 x M), and this is 8 x M"),
            (refused(|subject| subject.workers = 3), "with --workers 2, and this is --workers 3"),
        ] {
            assert!(message.contains(expected), "{message}");
        }
    }
}
