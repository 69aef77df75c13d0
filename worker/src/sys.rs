//! The few calls that no library wraps safely. This is the only file of the crate that may use `unsafe`.
#![expect(unsafe_code, reason = "see each use")]

use libc::c_int;
#[cfg(any(feature = "http-app", feature = "jsonl"))]
use std::collections::BTreeMap;
#[cfg(any(feature = "http-app", feature = "jsonl"))]
use std::ffi::{CString, OsString, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
#[cfg(any(feature = "http-app", feature = "jsonl"))]
use std::os::unix::ffi::OsStrExt;
#[cfg(any(feature = "http-app", feature = "jsonl"))]
use std::os::unix::process::CommandExt;
#[cfg(any(feature = "http-app", feature = "jsonl"))]
use std::process::Command;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// How long a worker would like to compute at a stretch while others wait for its core.
const TURN: Duration = Duration::from_millis(20);

/// What shared memory is mapped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    ToRead,
    ToWrite,
}

/// Shared memory of the supervisor, which does not shrink. Memory to read is not written by the supervisor while a job has its
/// input there; if it were, the process that started this one would be doing so, and could do anything else as well.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
    access: Mapped,
}

// SAFETY: the mapping belongs to the process and not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: by a shared reference it is only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes of a file, with all of its pages.
    ///
    /// # Errors
    /// What the kernel reports, or that the file does not have this length.
    pub(crate) fn new(file: &OwnedFd, length: usize, access: Mapped) -> io::Result<Mapping> {
        if rustix::fs::fstat(file)?.st_size != i64::try_from(length).unwrap_or(i64::MAX) {
            return Err(io::Error::other("a file of another length"));
        }
        let protection = match access {
            Mapped::ToRead => libc::PROT_READ,
            Mapped::ToWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: the kernel chooses a free range of addresses, so no other memory of this process changes.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(Mapping { start, length, access })
    }

    /// A part of memory to read. `None` if there is no such part, or the memory is to be written.
    pub(crate) fn part(self: &Arc<Mapping>, offset: usize, length: usize) -> Option<MappedPart> {
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        (is_inside && self.access == Mapped::ToRead).then(|| MappedPart {
            mapping: Arc::clone(self),
            offset,
            length,
        })
    }

    /// Where these bytes are in it. `None` if they are elsewhere, or empty.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<usize> {
        let offset = bytes.as_ptr().addr().checked_sub(self.start.as_ptr().addr())?;
        (!bytes.is_empty() && offset < self.length).then_some(offset)
    }

    /// Copies bytes into memory to write. False if they do not fit, or the memory is to be read.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let is_inside = offset.checked_add(bytes.len()).is_some_and(|end| end <= self.length);
        if !is_inside || self.access == Mapped::ToRead {
            return false;
        }
        let start = self.start.as_ptr().wrapping_add(offset);
        // SAFETY: the destination is inside of the mapping, which is writable and of which no reference is lent. So the source,
        // which is borrowed, is no part of it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        true
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`. Parts keep the mapping alive, so nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A part of a mapping, which lives as long as this.
#[derive(Debug)]
pub(crate) struct MappedPart {
    mapping: Arc<Mapping>,
    offset: usize,
    length: usize,
}

impl AsRef<[u8]> for MappedPart {
    fn as_ref(&self) -> &[u8] {
        let start = self.mapping.start.as_ptr().wrapping_add(self.offset);
        // SAFETY: the part is inside of the mapping, as `part` has checked, and the mapping lives as long as `self`. It is
        // mapped to be read only here, and the supervisor does not write it until this worker says that no part is left, as
        // the type's documentation says. The file is sealed against shrinking, so its pages exist.
        unsafe { slice::from_raw_parts(start, self.length) }
    }
}

/// Has the kernel kill the program that this command starts, when the calling thread ends.
#[cfg(any(feature = "http-app", feature = "jsonl"))]
pub(crate) fn end_with_this_thread(command: &mut Command) {
    let parent = std::process::id();
    let prepare = move || {
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
        // It may have been too late for that.
        match std::os::unix::process::parent_id() == parent {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: between fork and exec, it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Has this command execute its program itself, if that is a path: the standard library would pass a file that the kernel cannot
/// execute to a shell. Nothing may be added to the command behind this.
///
/// # Errors
/// A word or a variable has a zero byte in it.
#[cfg(any(feature = "http-app", feature = "jsonl"))]
pub(crate) fn without_a_shell(command: &mut Command) -> io::Result<()> {
    let program = command.get_program().to_owned();
    if !program.as_bytes().contains(&b'/') {
        return Ok(());
    }
    let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => variables.insert(name.to_owned(), value.to_owned()),
            None => variables.remove(name),
        };
    }
    let variables = variables.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    let words = std::iter::once(program.as_os_str()).chain(command.get_args());
    let words = Texts::new(words.map(|word| word.as_bytes().to_owned()))?;
    let variables = Texts::new(variables)?;
    let execute = move || {
        // SAFETY: both lists end with a null pointer, and their texts with a zero byte; the first word is the path.
        unsafe { libc::execve(words.first(), words.list(), variables.list()) };
        Err(io::Error::last_os_error())
    };
    // SAFETY: between fork and exec, it makes one system call and allocates nothing.
    unsafe { command.pre_exec(execute) };
    Ok(())
}

/// Texts as the kernel takes them.
#[cfg(any(feature = "http-app", feature = "jsonl"))]
struct Texts {
    _texts: Vec<CString>,
    /// One for each text, and null.
    pointers: Vec<*const c_char>,
}

#[cfg(any(feature = "http-app", feature = "jsonl"))]
impl Texts {
    fn new(texts: impl Iterator<Item = Vec<u8>>) -> io::Result<Texts> {
        let texts = texts.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let pointers = texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        Ok(Texts { _texts: texts, pointers })
    }

    /// Null if there is no text.
    fn first(&self) -> *const c_char {
        self.pointers[0]
    }

    fn list(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

// SAFETY: the pointers lead to texts that live as long as they do, wherever they are moved.
#[cfg(any(feature = "http-app", feature = "jsonl"))]
unsafe impl Send for Texts {}
// SAFETY: nothing changes them.
#[cfg(any(feature = "http-app", feature = "jsonl"))]
unsafe impl Sync for Texts {}

/// Has the program that this command starts have these descriptors under these numbers.
///
/// # Errors
/// The descriptors of this process are used up.
#[cfg(feature = "jsonl")]
pub(crate) fn with_descriptors<const N: usize>(
    command: &mut Command,
    descriptors: [(OwnedFd, c_int); N],
) -> io::Result<()> {
    let highest = descriptors.iter().map(|(_, number)| *number).max().unwrap_or_default();
    // None of them may be overwritten before it is in its place; nor may what the standard library keeps open until the exec,
    // which takes the lowest free numbers, so the places are taken until then.
    let mut copies = Vec::with_capacity(N);
    for (descriptor, number) in descriptors {
        copies.push((rustix::io::fcntl_dupfd_cloexec(&descriptor, highest + 1)?, number, descriptor));
    }
    let prepare = move || {
        for (copy, number, _) in &copies {
            // SAFETY: in the child, nothing owns the descriptors at these places.
            if unsafe { libc::dup2(copy.as_raw_fd(), *number) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec, it makes system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    Ok(())
}

/// Gives every signal that is ignored its default effect again, but for those in `spared`. A signal that is handled
/// stays as it is.
pub(crate) fn heed_signals(spared: &[c_int]) {
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !spared.contains(signal)) {
        if is_ignored(signal) {
            // SAFETY: the default effect runs no code of this program, so nothing has to be fit for a handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Whether this process ignores `signal`; of what is no signal, and of those that the C library keeps for itself, false.
fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action the call changes nothing, and writes a sigaction to `action`, which outlives it.
    let answer = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: a sigaction consists of integers and an optional function, for which all bytes zero, as it was made, is
    // a value.
    let action = unsafe { action.assume_init() };
    answer == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Has this thread, and those that it starts, scheduled as one that computes and does not mind waiting: it is not
/// preferred over others when it wakes up (SCHED_BATCH of sched(7)), and it asks for long turns. Since Linux 6.12 whoever asks
/// for shorter ones, as everybody does who asks for nothing, does not wait for the end of such a turn when it wakes up. Takes no
/// privilege.
///
/// # Errors
/// What the kernel says.
pub(crate) fn schedule_as_batch() -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_BATCH as u32,
        sched_flags: 0,
        sched_nice: rustix::process::getpriority_process(None)?,
        sched_priority: 0,
        // The length of a turn, for these policies.
        sched_runtime: TURN.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel only reads `attributes`, which is initialized, says its own size and outlives the call; 0 names this
    // thread, and there are no flags.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if answer == 0 { Ok(()) } else { schedule_as_batch_only() }
}

/// For filters of system calls that do not know the other one.
fn schedule_as_batch_only() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel only reads `parameters`, which is initialized and outlives the call; 0 names this thread.
    let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, raise};
    use std::fs::File;

    const PAGE: usize = 4096;

    fn file(content: &[u8]) -> OwnedFd {
        let path = std::env::temp_dir().join(format!("offload-mapping-{}-{:p}", std::process::id(), content));
        std::fs::write(&path, content).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(PAGE as u64).unwrap();
        std::fs::remove_file(path).unwrap();
        file.into()
    }

    #[test]
    fn a_part_of_a_mapping_outlives_the_mapping_and_is_found_in_it() {
        let mapping = Arc::new(Mapping::new(&file(b"0123456789"), PAGE, Mapped::ToRead).unwrap());
        let part = mapping.part(2, 3).unwrap();
        assert_eq!((part.as_ref(), mapping.offset_of(part.as_ref())), (&b"234"[..], Some(2)));
        assert_eq!((mapping.offset_of(b"234"), mapping.offset_of(&part.as_ref()[..0])), (None, None));
        assert!(mapping.part(PAGE - 1, 2).is_none() && mapping.part(usize::MAX, 2).is_none());
        drop(mapping);
        assert_eq!(part.as_ref(), b"234");
    }

    #[test]
    fn what_is_written_into_one_mapping_is_read_by_another_one() {
        let file = file(&[0; 10]);
        assert!(Mapping::new(&file, PAGE + 1, Mapped::ToRead).is_err());
        let mut to_write = Mapping::new(&file, PAGE, Mapped::ToWrite).unwrap();
        let mut to_read = Mapping::new(&file, PAGE, Mapped::ToRead).unwrap();
        assert!(to_write.write(8, b"ab") && !to_write.write(PAGE, b"a") && !to_write.write(usize::MAX, b"a"));
        assert!(!to_read.write(0, b"a"));
        assert_eq!(Arc::new(to_read).part(7, 3).unwrap().as_ref(), b"\0ab");
        assert!(Arc::new(to_write).part(0, 1).is_none(), "no reference into what is written");
    }

    /// Signals are the whole process's: these two mean nothing to the other tests.
    #[test]
    fn a_signal_that_was_ignored_has_its_default_effect_again_unless_it_is_spared() {
        let [ignored, spared] = [libc::SIGWINCH, libc::SIGURG];
        for signal in [ignored, spared] {
            // SAFETY: to ignore a signal runs no code of this program.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
            assert!(is_ignored(signal));
        }
        heed_signals(&[spared, libc::SIGPIPE]);
        assert!(!is_ignored(ignored) && is_ignored(spared));
        raise(Signal::SIGWINCH).unwrap();
        heed_signals(&[libc::SIGPIPE]);
        assert!(!is_ignored(spared));
        assert!(is_ignored(libc::SIGPIPE), "as Rust programs begin");
    }

    #[test]
    fn a_number_that_is_no_signal_is_not_ignored() {
        for number in [0, -1, 32, 1000, libc::SIGKILL] {
            assert!(!is_ignored(number), "{number}");
        }
    }

    /// On a thread of its own, which ends with what was changed. The policy is the 41st field of proc_pid_stat(5).
    #[test]
    fn a_thread_that_asks_for_it_is_scheduled_as_batch() {
        let thread = std::thread::spawn(|| {
            super::schedule_as_batch().unwrap();
            super::schedule_as_batch_only().unwrap();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let (_, after_name) = stat.rsplit_once(')').unwrap();
            after_name.split_whitespace().nth(41 - 3).unwrap().to_owned()
        });
        assert_eq!(thread.join().unwrap(), libc::SCHED_BATCH.to_string());
    }
}
