//! Trusted proxies: their `Forwarded` (RFC 7239) or `X-Forwarded-For` names the client.
//!
//! ```text
//!   client ---> proxy ---> proxy ---> this server          Forwarded: for=CLIENT, for=PROXY
//!                 trusted    trusted                                         ^         ^
//!                                                     read from the right: the first hop that is not trusted is the client
//! ```
//!
//! Whatever stands to the left of that hop was said by somebody who is not trusted, and is not looked at: otherwise a client could
//! make the list unreadable. If it is not sound up to there, or both fields are there and do not agree, neither counts: then the
//! proxy itself is the client.

use crate::limits::HOPS_MAX;
use http::header::{FORWARDED, HeaderMap, HeaderName};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

const BLANKS: [char; 2] = [' ', '\t'];

/// A proxy that connects over TCP, or a network of them: all addresses that begin with so many bits of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedProxy {
    network: IpAddr,
    bits: u8,
}

/// A text that is no [`TrustedProxy`]. Its `Debug` is the sentence, too: that is what Rust prints of an error that `main` returns.
#[derive(Clone, PartialEq, Eq)]
pub struct BadProxy(String);

impl fmt::Display for BadProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} is no proxy: write an address, as in 10.0.0.7, or a network, as in 10.0.0.0/8",
            self.0
        )
    }
}

impl fmt::Debug for BadProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for BadProxy {}

impl FromStr for TrustedProxy {
    type Err = BadProxy;

    /// `10.0.0.7`, `10.0.0.0/8`, `fd00::/8`. Bits behind those that count have to be 0: otherwise the network is
    /// probably not the one that was meant.
    fn from_str(text: &str) -> Result<TrustedProxy, BadProxy> {
        let bad = || BadProxy(text.to_owned());
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address = plain(address.parse().map_err(|_| bad())?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            // Without a sign, and nothing else that `parse` would take.
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().map_err(|_| bad())?
            }
            Some(_) => return Err(bad()),
        };
        let is_network = bits <= most && bits_of(address) & !mask(bits, most) == 0;
        if is_network { Ok(TrustedProxy { network: address, bits }) } else { Err(bad()) }
    }
}

impl fmt::Display for TrustedProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.network, self.bits)
    }
}

/// The address in 128 bits, the first `most` of which are in use at the right end.
fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The first `bits` of `most` bits at the right end.
fn mask(bits: u8, most: u8) -> u128 {
    let all = if most == 128 { u128::MAX } else { (1 << most) - 1 };
    all & !all.checked_shr(u32::from(bits)).unwrap_or(0)
}

/// An IPv4 address that is written as one of IPv6 is the same address.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(long) => long.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// The proxies that a server trusts. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<TrustedProxy>);

impl TrustedProxies {
    /// These.
    pub fn new(proxies: Vec<TrustedProxy>) -> TrustedProxies {
        TrustedProxies(proxies)
    }

    /// The client for whom `peer` has sent a request. None if that is the client itself, or if it cannot be told.
    pub(crate) fn client(&self, headers: &HeaderMap, peer: IpAddr) -> Option<IpAddr> {
        if !self.has(peer) {
            return None;
        }
        let (standard, older) = (lines(headers, &FORWARDED)?, lines(headers, &X_FORWARDED_FOR)?);
        match (standard.is_empty(), older.is_empty()) {
            (true, true) => None,
            (false, true) => self.first_untrusted(&standard, nodes_of_elements),
            (true, false) => self.first_untrusted(&older, nodes),
            (false, false) => {
                let one = self.first_untrusted(&standard, nodes_of_elements);
                one.filter(|_| one == self.first_untrusted(&older, nodes))
            }
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        let address = plain(address);
        self.0.iter().any(|TrustedProxy { network, bits }| {
            let mask = mask(*bits, if network.is_ipv4() { 32 } else { 128 });
            network.is_ipv4() == address.is_ipv4() && bits_of(address) & mask == bits_of(*network)
        })
    }

    /// The rightmost hop that is not trusted; if all are, the leftmost.
    fn first_untrusted(&self, lines: &[&str], read: impl Fn(&str) -> Hops) -> Option<IpAddr> {
        let mut client = None;
        // A line is read only if all hops behind it are trusted.
        let hops = lines.iter().rev().flat_map(|line| read(line));
        for (count, hop) in hops.enumerate() {
            client = Some(hop.filter(|_| count < HOPS_MAX)?);
            if client.is_some_and(|address| !self.has(address)) {
                break;
            }
        }
        client
    }
}

/// The last hops of one line, the last one first, and one more than there may be. None stands for what is no address.
type Hops = Vec<Option<IpAddr>>;

/// All lines of this field. None if one of them is not visible ASCII.
fn lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Vec<&'a str>> {
    headers.get_all(name).iter().map(|line| line.to_str().ok()).collect()
}

/// The hops of a line of `X-Forwarded-For`.
fn nodes(line: &str) -> Hops {
    line.rsplit(',').take(HOPS_MAX + 1).map(|hop| node(hop.trim_matches(BLANKS))).collect()
}

/// The hops of a line of `Forwarded`.
fn nodes_of_elements(line: &str) -> Hops {
    match split_outside_quotes(line, ',') {
        Some(elements) => {
            let last = elements.into_iter().rev().take(HOPS_MAX + 1);
            last.map(|hop| node_of_element(hop.trim_matches(BLANKS))).collect()
        }
        None => vec![None],
    }
}

/// The parts between separators that are not inside a quoted string. None if a quote is not closed.
fn split_outside_quotes(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if letter == separator && !is_quoted => {
                parts.push(&text[start..at]);
                start = at + letter.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!is_quoted).then_some(parts)
}

/// The address behind `for=` in an element of `Forwarded`.
fn node_of_element(element: &str) -> Option<IpAddr> {
    let mut found = None;
    for pair in split_outside_quotes(element, ';')? {
        let (name, value) = pair.trim_matches(BLANKS).split_once('=')?;
        if name.is_empty() || !name.bytes().all(is_token_byte) || !is_value(value) {
            return None;
        }
        if name.eq_ignore_ascii_case("for") {
            // A name may come once.
            if found.is_some() {
                return None;
            }
            let inside = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            found = Some(node(inside.unwrap_or(value))?);
        }
    }
    found
}

/// A token, or a quoted string.
fn is_value(value: &str) -> bool {
    match value.strip_prefix('"') {
        Some(rest) => rest.ends_with('"'),
        None => !value.is_empty() && value.bytes().all(is_token_byte),
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`, `[2001:db8::1]:80`; in `X-Forwarded-For` also `2001:db8::1`. `unknown` and names that
/// hide an address are no address.
fn node(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(plain(address));
    }
    let (address, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (IpAddr::V6(address.parse::<Ipv6Addr>().ok()?), port.strip_prefix(':'))
        }
        None => {
            let (address, port) = text.split_once(':')?;
            (IpAddr::V4(address.parse().ok()?), Some(port))
        }
    };
    let has_rest = text.starts_with('[') && !text.ends_with(']') && port.is_none();
    let is_port = |port: &str| port.parse::<u16>().is_ok() && port.bytes().all(|byte| byte.is_ascii_digit());
    (!has_rest && port.is_none_or(is_port)).then(|| plain(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn trusted() -> TrustedProxies {
        let proxies = ["10.0.0.0/8", "192.0.2.7", "fd00::/8"].map(|text| text.parse().unwrap());
        TrustedProxies::new(proxies.to_vec())
    }

    fn client_of(fields: &[(&str, &str)], peer: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        trusted().client(&headers, peer.parse().unwrap()).map(|address| address.to_string())
    }

    #[test]
    fn proxies_are_read_and_shown_and_what_is_none_is_refused() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::1", "::1/128"),
            ("::/0", "::/0"),
            ("fd00::/8", "fd00::/8"),
        ] {
            assert_eq!(text.parse::<TrustedProxy>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "/8",
            "::/129",
            "localhost",
            "10.0.0",
            "unix",
        ] {
            assert!(text.parse::<TrustedProxy>().unwrap_err().to_string().contains("10.0.0.0/8"), "{text:?}");
        }
    }

    #[test]
    fn the_rightmost_hop_that_is_not_trusted_is_the_client() {
        let older = |list: &str| client_of(&[("x-forwarded-for", list)], "10.0.0.1");
        for (list, client) in [
            ("203.0.113.9", "203.0.113.9"),
            ("1.1.1.1, 203.0.113.9", "203.0.113.9"),
            ("1.1.1.1,203.0.113.9 , 10.2.2.2,192.0.2.7", "203.0.113.9"),
            ("10.9.9.9, 10.2.2.2", "10.9.9.9"),
            ("rubbish that nobody trusts, 203.0.113.9, 10.2.2.2", "203.0.113.9"),
            ("203.0.113.9:8080", "203.0.113.9"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("::ffff:203.0.113.9", "203.0.113.9"),
        ] {
            assert_eq!(older(list).as_deref(), Some(client), "{list}");
        }
        let standard = |list: &str| client_of(&[("forwarded", list)], "10.0.0.1");
        for (list, client) in [
            ("for=203.0.113.9", "203.0.113.9"),
            ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            (
                "for=1.1.1.1;proto=http;by=203.0.113.43, for=\"203.0.113.9:1\" ; host=\"a,b;c\\\"\"",
                "203.0.113.9",
            ),
            ("for=unknown, for=203.0.113.9, for=10.0.0.2", "203.0.113.9"),
        ] {
            assert_eq!(standard(list).as_deref(), Some(client), "{list}");
        }
        let lines = [("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "203.0.113.9")];
        assert_eq!(
            client_of(&lines, "10.0.0.1").as_deref(),
            Some("203.0.113.9"),
            "several lines are one list"
        );
        let lines = [("forwarded", "for=\"1.1.1.1"), ("forwarded", "for=203.0.113.9")];
        assert_eq!(
            client_of(&lines, "10.0.0.1").as_deref(),
            Some("203.0.113.9"),
            "the first line is not the proxy's"
        );
    }

    #[test]
    fn who_is_not_trusted_or_not_understood_is_the_client_itself() {
        let list = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=203.0.113.9")];
        assert_eq!(client_of(&list, "198.51.100.1"), None);
        assert_eq!(client_of(&[], "10.0.0.1"), None);
        assert_eq!(client_of(&list, "::ffff:10.0.0.1").as_deref(), Some("203.0.113.9"));
        for field in [
            ("x-forwarded-for", ""),
            ("x-forwarded-for", "203.0.113.9,"),
            ("x-forwarded-for", "203.0.113.9, unknown"),
            ("x-forwarded-for", "203.0.113.9:port"),
            ("x-forwarded-for", "203.0.113.9:+80"),
            ("x-forwarded-for", "[2001:db8::1]x"),
            ("x-forwarded-for", "for=203.0.113.9"),
            ("x-forwarded-for", "203.0.113.9\""),
            ("forwarded", "203.0.113.9"),
            ("forwarded", "for=203.0.113.9, for=_hidden"),
            ("forwarded", "for=203.0.113.9;for=1.1.1.1"),
            ("forwarded", "for=203.0.113.9; proto"),
            ("forwarded", "for=\"203.0.113.9"),
            ("forwarded", "by=203.0.113.9"),
            ("forwarded", "for=a b"),
        ] {
            assert_eq!(client_of(&[field], "10.0.0.1"), None, "{field:?}");
        }
        let differ = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=203.0.113.8")];
        assert_eq!(client_of(&differ, "10.0.0.1"), None, "one of them was not the proxy's");
        let many = vec!["10.0.0.1"; HOPS_MAX + 1].join(",");
        assert_eq!(client_of(&[("x-forwarded-for", &many)], "10.0.0.1"), None);
    }

    #[test]
    fn of_more_hops_than_there_may_be_nothing_is_read() {
        let (older, standard) = (vec!["10.0.0.1"; 8000].join(","), vec!["for=10.0.0.1"; 8000].join(","));
        let read = [nodes(&older), nodes_of_elements(&standard)].map(|hops| hops.len());
        assert_eq!(read, [HOPS_MAX + 1; 2], "one more shows that there are too many");
    }

    proptest! {
        #[test]
        fn whatever_stands_there_nothing_breaks_and_no_trusted_hop_is_taken_for_an_untrusted_one(
            standard in proptest::option::of("[ -~\t]{0,80}"),
            older in proptest::option::of("(10\\.0\\.0\\.[0-9]|203\\.0\\.113\\.9|[ ,:\"\\[\\]a-f0-9.]{0,12}|, ){0,8}"),
        ) {
            let mut fields = Vec::new();
            fields.extend(standard.as_deref().map(|text| ("forwarded", text)));
            fields.extend(older.as_deref().map(|text| ("x-forwarded-for", text)));
            prop_assert_eq!(client_of(&fields, "198.51.100.1"), None);
            if let Some(client) = client_of(&fields, "10.0.0.1") {
                prop_assert!(client.parse::<IpAddr>().is_ok());
            }
        }

        #[test]
        fn what_a_client_writes_itself_never_changes_who_it_is(forged in "[!-~]{0,20}(,[!-~]{0,20}){0,4}") {
            // A list that the client has sent, and what the proxy adds to it.
            let list = format!("{forged}, 203.0.113.9");
            let client = client_of(&[("x-forwarded-for", &list)], "10.0.0.1");
            prop_assert_eq!(client.as_deref(), Some("203.0.113.9"));
        }
    }
}
