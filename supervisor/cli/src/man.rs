//! `offload man`: prints manual pages, generated from the same definitions as `--help`, or writes all of them.

use super::examples::visible_command_line;
use super::failure::{Failure, OK, VerbResult};
use super::output;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Command};
use std::path::PathBuf;

/// Print a manual page: `offload man | man -l -`
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The verb whose page to print, such as submit or dead retry [default: the page of offload itself]
    #[arg(conflicts_with = "all")]
    verb: Vec<String>,

    /// Write the pages of all verbs into this folder, which is there: offload.1, offload-submit.1 and so on
    #[arg(long, value_name = "DIR", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    all: Option<PathBuf>,
}

impl Man {
    /// Runs the verb.
    pub(crate) fn run(self) -> VerbResult {
        if let Some(folder) = &self.all {
            let written = clap_mangen::generate_to(visible_command_line(), folder);
            written.map_err(|error| {
                Failure::Unwritten(format!("cannot write the pages to {}: {error}", folder.display()))
            })?;
            return Ok(OK);
        }
        let mut page = Vec::new();
        let written = clap_mangen::Man::new(find(&self.verb)?).render(&mut page);
        written.map_err(|error| Failure::internal("cannot write the page", error))?;
        output::print(&page)?;
        Ok(OK)
    }
}

fn find(verb: &[String]) -> Result<Command, Failure> {
    let mut found = visible_command_line();
    found.build();
    for word in verb {
        found = found.find_subcommand(word).cloned().ok_or_else(|| {
            Failure::Usage(format!("no verb {:?}; `offload --help` lists them", verb.join(" ")))
        })?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(words: &[&str]) -> Result<String, Failure> {
        let mut page = Vec::new();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        clap_mangen::Man::new(find(&words)?).render(&mut page).unwrap();
        Ok(String::from_utf8(page).unwrap())
    }

    #[test]
    fn the_page_of_offload_itself_says_how_to_stream() {
        assert!(page(&[]).unwrap().contains("stream"));
    }

    #[test]
    fn each_verb_has_a_page_and_hidden_ones_have_none() {
        assert!(page(&["submit"]).unwrap().contains("idempotency"));
        assert!(page(&["dead", "retry"]).unwrap().contains("offload"));
        for words in [&["worker-exec"][..], &["nonsense"], &["dead", "nonsense"]] {
            assert!(page(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn all_pages_are_written_and_none_of_what_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        Man { verb: Vec::new(), all: Some(folder.path().to_owned()) }.run().unwrap();
        let name =
            |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let names: Vec<String> = folder.path().read_dir().unwrap().map(name).collect();
        for page in ["offload.1", "offload-submit.1", "offload-dead-retry.1"] {
            assert!(names.iter().any(|name| name == page), "{names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("exec-worker")), "{names:?}");
        let nowhere = Man { verb: Vec::new(), all: Some("/no/such/folder".into()) }.run().unwrap_err();
        assert_eq!(nowhere.exit_code(), 74);
    }
}
