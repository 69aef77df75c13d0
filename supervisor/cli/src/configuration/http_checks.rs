//! How settings of the interface over HTTP go together.

use super::Values;
use offload_http::{Address, Route, RouteTable};
use offload_supervisor::units::show_size;
use std::path::Path;

/// What the keys of the interface over HTTP begin with.
pub(super) const HTTP_KEYS: &str = "http.";
/// Where HTTP is answered.
pub(super) const LISTEN: &str = "http.listen";

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
    let mut seen = Vec::new();
    for text in &values.http.listen {
        let Ok(address) = text.parse::<Address>() else { continue };
        // Port 0 is another one each time.
        let may_repeat = matches!(&address, Address::Tcp(address) if address.port() == 0);
        if !may_repeat && seen.iter().any(|other| is_same(other, &address)) {
            return Err(format!("{address} is there twice: leave one of them out"));
        }
        seen.push(address);
    }
    Ok(())
}

/// The supervisor's own socket is no place for HTTP.
pub(super) fn sockets_are_different(values: &Values, socket: &Path) -> Result<(), String> {
    let own = Address::Unix(socket.to_owned());
    let is_own = |text: &&String| text.parse().is_ok_and(|address| is_same(&address, &own));
    match values.http.listen.iter().find(is_own) {
        Some(address) => Err(format!(
            "{address} is there twice: it is the supervisor's own socket; name another path for HTTP"
        )),
        None => Ok(()),
    }
}

fn is_same(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Unix(one), Address::Unix(other)) => one == other || is_same_file(one, other),
        _ => one == other,
    }
}

/// However the folder is written. The sockets need not be there.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some((folder.canonicalize().ok()?, path.file_name()?.to_owned()))
    };
    place(one).is_some_and(|its| place(other) == Some(its))
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

/// A route can only lower the limit. This is checked where routes are served, and not in `run` or `map`: these read the same file,
/// and may have a lower `max_payload` for themselves.
pub(super) fn bodies_are_within_payloads(values: &Values) -> Result<(), String> {
    let most = values.pool.core.max_payload;
    for (index, route) in values.routes.iter().enumerate() {
        if let Some(length) = route.max_body.filter(|length| *length > most) {
            let [length, most] = [length, most].map(show_size);
            return Err(format!(
                "max_body of route {}, {} {}: {length} is over max_payload, {most}: no input can be longer than that",
                index + 1,
                route.method,
                route.path
            ));
        }
    }
    Ok(())
}
