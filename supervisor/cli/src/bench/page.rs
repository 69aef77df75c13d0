//! `--report FILE.html`: the result as one page, with plots. It needs nothing from elsewhere, so it can be kept, and sent to others.
//!
//! The figures are in it as a JSON document. Names of tasks and messages come from outside, so nothing of them can end the element
//! that holds the document, and the page puts them into the text of elements only. Its policy names the one style and the one script
//! by their digests, as the page of the HTTP front does.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use offload_supervisor::calendar::utc;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::time::{SystemTime, UNIX_EPOCH};

const DOCUMENT: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPTS: [&str; 3] =
    [include_str!("page/plot.js"), include_str!("page/compare.js"), include_str!("page/main.js")];

/// What a page shows: a comparison of some sizes (`reports`), or an advice.
#[derive(Serialize)]
pub(super) struct Page<'a, Content: Serialize> {
    #[serde(skip)]
    pub(super) title: String,
    /// How and where it was measured.
    pub(super) about: String,
    /// What makes the figures worth less.
    pub(super) warnings: &'a [String],
    #[serde(flatten)]
    pub(super) content: Content,
    /// The same for those who see no plots.
    #[serde(skip)]
    pub(super) text: String,
}

impl<Content: Serialize> Page<'_, Content> {
    /// The page.
    pub(super) fn html(&self) -> String {
        let script = format!("'use strict';\n(() => {{\n{}}})();", SCRIPTS.concat());
        let policy = format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; base-uri 'none'; form-action 'none'",
            digest(STYLE),
            digest(&script)
        );
        let data = serde_json::to_string(self).expect("numbers and names can always be written");
        // Each part is put in once, from the back, so that nothing in one can be taken for the place of another.
        let parts = [
            ("{{policy}}", policy),
            ("{{title}}", escaped(&self.title)),
            ("{{style}}", STYLE.to_owned()),
            ("{{title}}", escaped(&self.title)),
            ("{{text}}", escaped(&self.text)),
            ("{{data}}", in_a_script(&data)),
            ("{{script}}", script),
        ];
        let mut rest = DOCUMENT;
        let mut page = String::new();
        for (place, part) in parts {
            let (before, behind) = rest.split_once(place).expect("the document has a place for it");
            page.push_str(before);
            page.push_str(&part);
            rest = behind;
        }
        page + rest
    }
}

/// The name and version of this program, the day, and where.
pub(super) fn measured_with(machine: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let day: String = utc(now).chars().take_while(|letter| *letter != 'T').collect();
    format!("offload {}, {day}, {machine}", env!("CARGO_PKG_VERSION"))
}

fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// As the text of an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A JSON document as the text of a `script`: without `<` nothing in it ends that element or begins a comment.
fn in_a_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const HOSTILE: &str = "</script><script>alert(1)</script><!--{{script}}{{text}} \u{2028} & \"'";

    fn page(text: &str) -> String {
        let (warnings, content) = ([text.to_owned()], json!({"reports": [{"task": text}]}));
        let about = text.to_owned();
        Page { title: text.to_owned(), about, warnings: &warnings, content, text: text.to_owned() }.html()
    }

    #[test]
    fn no_name_can_break_out_of_its_place() {
        let (tame, hostile) = (page("tame"), page(HOSTILE));
        for tag in ["<script", "</script", "<!--", "<pre", "</title"] {
            assert_eq!(tame.matches(tag).count(), hostile.matches(tag).count(), "{tag}");
        }
        assert!(!hostile.contains("<script>alert"));
        let data = hostile.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!((&data["about"], &data["reports"][0]["task"]), (&json!(HOSTILE), &json!(HOSTILE)));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = page("average");
        let addresses = page.matches("://").count();
        assert_eq!(
            addresses,
            page.matches("http://www.w3.org/2000/svg").count(),
            "the name of SVG, and no other"
        );
        for word in ["@import", "url(", "fetch(", "XMLHttpRequest", "import(", " src=", "innerHTML", "eval("]
        {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}
