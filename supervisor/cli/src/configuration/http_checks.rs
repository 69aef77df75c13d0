//! How settings of the interface over HTTP go together.

use super::Values;
use offload_http::{Address, RouteTable};

/// Whoever reaches the port can try tokens, so it takes a second setting to let other machines try.
pub(super) fn addresses_are_of_this_machine(values: &Values) -> Result<(), String> {
    let is_beyond =
        |text: &&String| text.parse::<Address>().is_ok_and(|address| address.is_beyond_this_machine());
    match values.http.listen.iter().find(is_beyond).filter(|_| !values.http.is_public) {
        Some(address) => Err(format!(
            "{address} can be reached from other machines: use 127.0.0.1, or say --http-public if you mean it"
        )),
        None => Ok(()),
    }
}

pub(super) fn routes_go_together(values: &Values) -> Result<(), String> {
    RouteTable::new(values.routes.clone()).map(drop).map_err(|error| error.to_string())
}
