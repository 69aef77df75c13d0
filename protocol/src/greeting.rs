//! Versions: how an end of another version is recognized, and what it is told.
//!
//! A hello has the number 0 and begins with a magic and two numbers in every version, so its version can be read even when
//! the rest of it cannot.

use crate::messages::{VERSION_MAJOR, VERSION_MINOR};

/// The start of a hello or a welcome, whatever its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// What kind of program it is from.
    pub magic: [u8; 8],
    /// Its major version: only ends of the same one understand each other.
    pub major: u16,
    /// Its minor version.
    pub minor: u16,
}

impl Greeting {
    /// Reads the start of a header. `None` if it is no hello of any version.
    pub fn of(header: &[u8]) -> Option<Greeting> {
        let (number, rest) = header.split_first_chunk::<4>()?;
        let (magic, rest) = rest.split_first_chunk::<8>()?;
        let (major, rest) = rest.split_first_chunk::<2>()?;
        let (minor, _) = rest.split_first_chunk::<2>()?;
        let (major, minor) = (u16::from_le_bytes(*major), u16::from_le_bytes(*minor));
        (u32::from_le_bytes(*number) == 0).then_some(Greeting { magic: *magic, major, minor })
    }

    /// Whether it is of a version that this one cannot talk to.
    pub fn is_foreign(&self) -> bool {
        self.major != VERSION_MAJOR
    }

    /// One sentence about a worker of another version: what is wrong, and what to do.
    pub fn foreign_worker(&self) -> String {
        let what = match self.major < VERSION_MAJOR {
            true => "rebuild the worker with offload-worker 0.4, or see protocol 3 in CHANGELOG.md",
            false => "start it under a newer offload",
        };
        self.sentence("worker", "supervisor", what)
    }

    /// One sentence about a client of another version: what is wrong, and what to do.
    pub fn foreign_client(&self) -> String {
        let what = match self.major < VERSION_MAJOR {
            true => "use the `offload` of this supervisor, or see protocol 3 in CHANGELOG.md",
            false => "restart the supervisor with the newer offload",
        };
        self.sentence("client", "supervisor", what)
    }

    /// One sentence about a supervisor of another version, for its client: what is wrong, and what to do.
    pub fn foreign_supervisor(&self) -> String {
        let what = match self.major < VERSION_MAJOR {
            true => "restart the supervisor with the newer offload",
            false => "use the `offload` of this supervisor, or rebuild the client with its library",
        };
        self.sentence("supervisor", "client", what)
    }

    fn sentence(&self, who: &str, here: &str, what: &str) -> String {
        let Greeting { major, minor, .. } = self;
        format!(
            "this {who} speaks protocol {major}.{minor}, this {here} {VERSION_MAJOR}.{VERSION_MINOR}: {what}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::WORKER_MAGIC;

    #[test]
    fn the_version_of_an_old_hello_is_read_although_the_rest_of_it_is_not() {
        // Version 2.1 with no tasks: after the version came a list.
        let old = b"\0\0\0\0OFFLOADW\x02\0\x01\0\0\0\0\0\0\0\0\0";
        let greeting = Greeting::of(old).unwrap();
        assert_eq!(greeting, Greeting { magic: WORKER_MAGIC, major: 2, minor: 1 });
        assert!(greeting.is_foreign());
        assert_eq!(
            greeting.foreign_worker(),
            "this worker speaks protocol 2.1, this supervisor 3.0: rebuild the worker with offload-worker 0.4, or see \
             protocol 3 in CHANGELOG.md"
        );
        let newer = Greeting { major: 4, ..greeting };
        assert!(newer.foreign_worker().ends_with("start it under a newer offload"));
        assert!(newer.foreign_client().ends_with("restart the supervisor with the newer offload"));
    }

    #[test]
    fn what_is_no_hello_has_no_version() {
        for bytes in [&b"\x01\0\0\0OFFLOADW\x02\0\0\0"[..], b"\0\0\0\0OFFLOADW\x02\0\0", b""] {
            assert_eq!(Greeting::of(bytes), None);
        }
    }
}
