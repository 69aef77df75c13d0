//! `offload man`: prints manual pages, generated from the same definitions as `--help`.

use super::failure::{Failure, OK, VerbResult};
use super::{CommandLine, output};
use clap::{Args, Command, CommandFactory};

/// Print a manual page: `offload man | man -l -`
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The verb whose page to print [default: the page of offload itself]
    verb: Option<String>,
}

impl Man {
    /// Runs the verb.
    pub(crate) fn run(self) -> VerbResult {
        let mut page = Vec::new();
        let written = clap_mangen::Man::new(find(self.verb.as_deref())?).render(&mut page);
        written.map_err(|error| Failure::internal("cannot write the page", error))?;
        output::print(&page)?;
        Ok(OK)
    }
}

fn find(verb: Option<&str>) -> Result<Command, Failure> {
    let mut offload = CommandLine::command();
    offload.build();
    let Some(verb) = verb else { return Ok(offload) };
    let found = offload.find_subcommand(verb).filter(|found| !found.is_hide_set());
    found.cloned().ok_or_else(|| Failure::Usage(format!("no verb {verb:?}; `offload --help` lists them")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_offload_itself_says_how_to_stream() {
        let mut page = Vec::new();
        clap_mangen::Man::new(find(None).unwrap()).render(&mut page).unwrap();
        assert!(String::from_utf8(page).unwrap().contains("stream"));
    }

    #[test]
    fn each_verb_has_a_page_and_hidden_ones_have_none() {
        assert!(find(None).is_ok() && find(Some("submit")).is_ok());
        assert!(find(Some("worker-exec")).is_err() && find(Some("nonsense")).is_err());
    }
}
