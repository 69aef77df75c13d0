//! Jobs whose right answer is known: whoever loses, doubles or mixes them up is found out.

/// A worker that begins a job which must not be run twice makes a file of this name, with the number of the job.
pub const BEGUN: &str = "begun";
/// ... and of this name if it was begun before.
pub const BEGUN_TWICE: &str = "twice";

/// The input of canary `number` of `round`: a few hundred bytes that no other canary has.
pub fn input(round: u64, number: u64) -> Vec<u8> {
    format!("canary {number} of {round} ").repeat(16).into_bytes()
}

/// What a canary is answered with: the checksum of its input, then the input.
pub fn answer(input: &[u8]) -> Vec<u8> {
    let mut answer = format!("{:016x} ", checksum(input)).into_bytes();
    answer.extend_from_slice(input);
    answer
}

/// FNV-1a with 64 bits, by the definition of its authors: not the point of a test, so short.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// What the task `shared` makes of its input: as long, and different at every place.
pub fn turned(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte ^ 0x5a).collect()
}
