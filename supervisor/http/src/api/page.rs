//! The page at `/`: the supervisor in a browser. It has no data of its own and no rights: whoever opens it shows the token, and
//! the page asks this interface like any other client.
//!
//! It is one document without anything from elsewhere. Its policy names the one style and the one script that may run by their
//! digests, so that nothing which a task returns could ever become a part of it.

use super::NeedsNoToken;
use crate::body::Body;
use crate::respond::Response;
use crate::router::{Found, Parameters};
use crate::server::Server;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
};
use sha2::{Digest, Sha256};
use std::future::ready;
use std::rc::Rc;

const DOCUMENT: &str = include_str!("../page/index.html");
const STYLE: &str = include_str!("../page/style.css");
const SCRIPTS: [&str; 5] = [
    include_str!("../page/api.js"),
    include_str!("../page/draw.js"),
    include_str!("../page/plots.js"),
    include_str!("../page/job.js"),
    include_str!("../page/main.js"),
];

impl Server {
    /// Serves the page at `/`, to whoever may connect: it asks for the token itself. It needs the routes of
    /// [`Server::mount_api`].
    pub fn mount_page(&self) {
        let page = Rc::new(Page::new());
        self.look_up(move |head| match (head.uri.path(), &head.method) {
            ("/", &Method::GET | &Method::HEAD) => {
                head.extensions.insert(NeedsNoToken);
                let page = Rc::clone(&page);
                let handler = Rc::new(move |_, _| Box::pin(ready(page.response())) as _);
                Found::Handler(handler, Parameters::default())
            }
            ("/", _) => Found::OtherMethods(vec![Method::GET]),
            _ => Found::Nothing,
        });
    }
}

struct Page {
    document: Bytes,
    headers: HeaderMap,
}

impl Page {
    fn new() -> Page {
        let script = format!("'use strict';\n(() => {{\n{}}})();", SCRIPTS.concat());
        let document = DOCUMENT.replace("{{style}}", STYLE).replace("{{script}}", &script);
        let policy = format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; img-src blob:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            digest(STYLE),
            digest(&script)
        );
        let mut headers = HeaderMap::new();
        let policy = HeaderValue::try_from(policy).expect("visible ASCII");
        headers.insert(CONTENT_SECURITY_POLICY, policy);
        let others = [
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ];
        headers.extend(others.map(|(name, value)| (name, HeaderValue::from_static(value))));
        Page { document: document.into(), headers }
    }

    fn response(&self) -> Response {
        let mut response = Response::new(Body::from(self.document.clone()));
        response.headers_mut().clone_from(&self.headers);
        response
    }
}

/// How a policy names a style or a script.
fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_supervisor::views::OpenState;

    #[test]
    fn the_page_knows_each_state_of_a_job_that_has_not_ended() {
        let [draw, job] = [SCRIPTS[1], SCRIPTS[3]];
        let live = job.lines().find(|line| line.starts_with("const isLive = ")).expect("the list");
        let tones =
            draw.split_once("const TONES = {").expect("the list").1.split_once('}').expect("its end").0;
        for state in OpenState::ALL.map(OpenState::as_str) {
            assert!(live.contains(&format!("'{state}'")), "{state} in {live}");
            assert!(tones.contains(&format!("{state}: ")), "{state} in {tones}");
        }
        assert_eq!(live.matches('\'').count(), 2 * OpenState::ALL.len(), "{live}");
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_makes_no_markup_from_texts() {
        let page = Page::new();
        let document = std::str::from_utf8(&page.document).unwrap();
        assert!(!document.contains("{{"), "everything is filled in");
        assert_eq!((document.matches("</script>").count(), document.matches("</style>").count()), (1, 1));
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "style=\"",
            "src=\"",
            "href=\"",
            "//cdn",
            "https://",
            "localStorage",
        ] {
            assert!(!document.contains(word), "{word}");
        }
    }
}
