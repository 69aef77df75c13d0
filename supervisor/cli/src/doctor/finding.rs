//! What a check has found, as people and scripts read it.

use crate::text;
use serde_json::json;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// As it should be.
    Fine,
    /// It works, and is slower or less safe than it could be.
    Odd,
    /// It does not work.
    Wrong,
}

impl Verdict {
    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Verdict::Fine => "ok",
            Verdict::Odd => "warn",
            Verdict::Wrong => "fail",
        }
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The name of the check.
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    /// One sentence.
    pub(super) says: String,
    /// What to do about it; empty if nothing is to be done.
    pub(super) advice: String,
}

impl Finding {
    pub(super) fn fine(check: &'static str, says: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Fine, says: says.into(), advice: String::new() }
    }

    pub(super) fn odd(check: &'static str, says: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Odd, says: says.into(), advice: advice.into() }
    }

    pub(super) fn wrong(check: &'static str, says: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Wrong, says: says.into(), advice: advice.into() }
    }

    /// A line for what was found, and one for what to do.
    fn lines(&self) -> String {
        let line =
            format!("{:<4}  {:<11}  {}\n", self.verdict.word(), self.check, text::printable(&self.says));
        match self.advice.as_str() {
            "" => line,
            advice => line + &format!("{:19}-> {}\n", "", text::printable(advice)),
        }
    }
}

/// The worst verdict.
pub(super) fn worst(findings: &[Finding]) -> Verdict {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Fine)
}

/// All findings as text.
pub(super) fn render(findings: &[Finding]) -> String {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count() as u64;
    let all: String = findings.iter().map(Finding::lines).collect();
    let (wrong, odd) = (count(Verdict::Wrong), count(Verdict::Odd));
    format!("{all}{}, {}\n", text::count(wrong, "failure"), text::count(odd, "warning"))
}

/// All findings as a document.
pub(super) fn document(findings: &[Finding]) -> String {
    let one = |finding: &Finding| {
        let advice = Some(&finding.advice).filter(|advice| !advice.is_empty());
        json!({ "check": finding.check, "verdict": finding.verdict.word(), "says": finding.says, "advice": advice })
    };
    let checks: Vec<_> = findings.iter().map(one).collect();
    json!({ "verdict": worst(findings).word(), "checks": checks }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_done_stands_below_what_was_found() {
        let findings = [Finding::fine("user", "1000"), Finding::odd("memory", "little\u{1b}", "buy some")];
        let expected = "ok    user         1000\nwarn  memory       little\\u{1b}\n                   -> buy some\n\
                        0 failures, 1 warning\n";
        assert_eq!(render(&findings), expected);
        assert_eq!(worst(&findings), Verdict::Odd);
        let document: serde_json::Value = serde_json::from_str(&document(&findings)).unwrap();
        assert_eq!((&document["verdict"], &document["checks"][0]["advice"]), (&"warn".into(), &().into()));
    }
}
