//! How settings of the interface over HTTP go together.

use super::Values;
use offload_http::{Address, Route, RouteTable};
use std::net::SocketAddr;

/// Whoever reaches the port can try tokens, so it takes a second setting to let other machines try.
fn addresses_are_of_this_machine(values: &Values) -> Result<(), String> {
    let is_beyond =
        |text: &&String| text.parse::<Address>().is_ok_and(|address| address.is_beyond_this_machine());
    match values.http.listen.iter().find(is_beyond).filter(|_| !values.http.is_public) {
        Some(address) => Err(format!(
            "{address} can be reached from other machines: use 127.0.0.1, or say --http-public if you mean it"
        )),
        None => Ok(()),
    }
}

pub(super) fn addresses_go_together(values: &Values) -> Result<(), String> {
    addresses_are_of_this_machine(values)?;
    let listen = &values.http.listen;
    // Port 0 is another one each time.
    let is_one = |text: &String| text.parse::<SocketAddr>().is_ok_and(|address| address.port() != 0);
    let is_again = |(at, text): &(usize, &String)| listen[..*at].contains(text);
    let mut again = listen.iter().enumerate().filter(is_again).map(|(_, text)| text);
    match again.find(|text| is_one(text) || text.parse::<SocketAddr>().is_err()) {
        Some(address) => Err(format!("{address} is there twice: leave one of them out")),
        None => Ok(()),
    }
}

pub(super) fn routes_go_together(values: &Values) -> Result<(), String> {
    let is_home = |route: &Route| route.method.as_str() == "GET" && route.path == "/";
    if values.http.has_page && values.routes.iter().any(is_home) {
        return Err(
            "a route for GET / is not reached while http.page is on: leave one of them out".to_owned()
        );
    }
    RouteTable::new(values.routes.clone()).map(drop).map_err(|error| error.to_string())
}
