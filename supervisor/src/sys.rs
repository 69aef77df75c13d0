//! The system calls that no library wraps safely. This is the only file of the crate that may use `unsafe`.
#![expect(unsafe_code, reason = "see each use")]

use offload_core::exit::Exit;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::time::Duration;

/// Memory that another process has mapped too, and may write at any time. It is never lent as a reference: bytes are copied in
/// or out, and what is copied out is what was there, or a mixture of that and what the other process has written meanwhile.
///
/// A plain copy that another process writes into meanwhile is a data race, and Rust promises nothing of races. So each copy is
/// in a function that is never inlined, between two barriers behind which the compiler must assume that this memory has
/// changed. It can then neither read a byte again to save the copy, nor carry one over from an earlier write. The machine's
/// own copy instructions have no trouble with a race: each byte is an old or a new one.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process and not to a thread, and all access to it copies bytes.
unsafe impl Send for SharedMapping {}
// SAFETY: as above. Threads that copy at the same time get mixed bytes at worst, as with another process.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps the first `length` bytes of a file, which must not shrink.
    ///
    /// # Errors
    /// What the kernel reports.
    pub(crate) fn new(file: BorrowedFd<'_>, length: usize) -> io::Result<SharedMapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses a free range of addresses, so no other memory of this process changes.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(SharedMapping { start, length })
    }

    /// Gives these bytes their memory, so that no later access has to. They are not changed.
    ///
    /// # Errors
    /// There is no memory, or the kernel is older than 5.14.
    ///
    /// # Panics
    /// If the range is outside of the mapping.
    pub(crate) fn populate(&self, offset: usize, length: usize) -> io::Result<()> {
        self.advise(offset, length, libc::MADV_POPULATE_WRITE)
    }

    /// Takes the memory of these bytes away from every process. They read as zeros then.
    ///
    /// # Errors
    /// What the kernel reports.
    ///
    /// # Panics
    /// If the range is outside of the mapping.
    pub(crate) fn remove(&self, offset: usize, length: usize) -> io::Result<()> {
        self.advise(offset, length, libc::MADV_REMOVE)
    }

    fn advise(&self, offset: usize, length: usize, advice: libc::c_int) -> io::Result<()> {
        let start = self.place(offset, length);
        // SAFETY: the range is inside of the mapping. What the kernel does to it shows in no reference, as there are none.
        match unsafe { libc::madvise(start.cast(), length, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Copies bytes out of it.
    ///
    /// # Panics
    /// If the range is outside of the mapping.
    #[inline(never)]
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let start = self.place(offset, into.len());
        memory_may_have_changed(start);
        // SAFETY: `place` has checked that the source is inside of the mapping, which lives as long as `self`. The
        // destination is borrowed, so it is not part of the mapping. Every byte is a valid u8. The file is sealed against
        // shrinking, so its pages exist. The race with the other process is as described at the type.
        unsafe { ptr::copy_nonoverlapping(start, into.as_mut_ptr(), into.len()) }
        memory_may_have_changed(start);
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// If the range is outside of the mapping.
    #[inline(never)]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let start = self.place(offset, bytes.len());
        memory_may_have_changed(start);
        // SAFETY: as in `read`, the other way round. Nobody in this process has a reference to what is overwritten.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) }
        memory_may_have_changed(start);
    }

    /// Unmaps at most `most` bytes from its end; `most` is a multiple of the page size. True if no more can be unmapped.
    pub(crate) fn unmap_some(&mut self, most: usize) -> bool {
        let piece = most.min(self.length);
        let rest = self.length - piece;
        // SAFETY: the range is the end of what was mapped by `new`, and nothing refers to it: copies borrow `self`, which is
        // borrowed mutably here.
        let is_unmapped =
            piece > 0 && unsafe { libc::munmap(self.start.as_ptr().wrapping_add(rest).cast(), piece) } == 0;
        if is_unmapped {
            self.length = rest;
        }
        !is_unmapped || rest == 0
    }

    fn place(&self, offset: usize, length: usize) -> *mut u8 {
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(is_inside, "{length} bytes at {offset} of a mapping of {}", self.length);
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and nothing refers to it any more. If all of it is unmapped already, the
        // kernel refuses a length of 0.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The compiler must assume here that anything behind this pointer has been read and written by somebody else.
fn memory_may_have_changed(start: *mut u8) {
    // SAFETY: there is no instruction in it.
    unsafe { std::arch::asm!("/* {0} */", in(reg) start, options(nostack, preserves_flags)) }
}

/// CPU time, separately for user mode and kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl CpuTime {
    pub(crate) fn total(self) -> Duration {
        self.user.saturating_add(self.system)
    }

    /// Times that `/proc` tells are multiples of this, usually 10 ms, rounded down.
    pub(crate) fn step() -> Duration {
        Duration::from_secs_f64(1.0 / rustix::param::clock_ticks_per_second().max(1) as f64)
    }

    /// The time between two that `/proc` has told, rounded down.
    pub(crate) fn since(self, before: CpuTime) -> CpuTime {
        let between = |before: Duration, after: Duration| after.saturating_sub(before + CpuTime::step());
        CpuTime { user: between(before.user, self.user), system: between(before.system, self.system) }
    }
}

/// What the kernel reports about a child that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// CPU time of the child and of those of its children that it has waited for, to the microsecond.
    pub(crate) cpu_time: CpuTime,
    /// The highest resident memory of the child and of each of those children, in bytes. It is at least what this
    /// process itself had when it started the child, because the two share their memory until the exec.
    pub(crate) peak_rss: u64,
}

/// How a child has ended, which stays a zombie. None if it has not ended. Does not wait. Unlike the function of libc, the system
/// call waitid(2) tells the usage as well.
///
/// # Errors
/// What the kernel reports: ECHILD if it is no child of this process, or was waited for.
pub(crate) fn look_at_end(pidfd: BorrowedFd<'_>) -> io::Result<Option<Ended>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel writes a siginfo_t to `info` and a struct rusage to `usage`, which both outlive the call.
    let looked = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            libc::P_PIDFD,
            pidfd.as_raw_fd(),
            info.as_mut_ptr(),
            options,
            usage.as_mut_ptr(),
        )
    };
    if looked != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all bytes zero (the initial value) are valid for both: they consist of integers, and of pointers that are not followed.
    let (info, usage) = unsafe { (info.assume_init(), usage.assume_init()) };
    // SAFETY: waitid fills in the fields for a child, and the initial zeroes are valid for them.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let exit = match info.si_code {
        libc::CLD_EXITED => Exit::Code(status),
        libc::CLD_KILLED | libc::CLD_DUMPED => Exit::Signal(status),
        _ => Exit::Unknown,
    };
    let cpu_time = CpuTime { user: duration(usage.ru_utime), system: duration(usage.ru_stime) };
    let peak_rss = u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024);
    Ok(Some(Ended { exit, cpu_time, peak_rss }))
}

/// Kills the process group of which the process of this pidfd is or was the leader: that group and no other, also when the leader was
/// collected and its number given to another process. Linux before 6.9 cannot do that, and then nothing happens.
pub(crate) fn kill_group(pidfd: BorrowedFd<'_>) {
    const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;
    let no_info = ptr::null::<libc::siginfo_t>();
    // SAFETY: the kernel reads and writes no memory of this process: the pointer to the information is null.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            libc::SIGKILL,
            no_info,
            PIDFD_SIGNAL_PROCESS_GROUP,
        )
    };
}

/// How much memory holds what was written to this Unix socket and the other end has not read, in bytes.
///
/// # Errors
/// What the kernel reports.
pub(crate) fn unread(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, which has the number of TIOCOUTQ, writes one int to `bytes`, which outlives the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } {
        0 => Ok(usize::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid};
    use std::process::{Child, Command};

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    const PAGE: usize = 4096;

    fn shared(length: usize) -> (OwnedFd, SharedMapping) {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, length as u64).unwrap();
        let mapping = SharedMapping::new(file.as_fd(), length).unwrap();
        (file, mapping)
    }

    #[test]
    fn what_one_mapping_writes_another_one_reads_until_it_is_removed() {
        let (file, ours) = shared(4 * PAGE);
        let theirs = SharedMapping::new(file.as_fd(), 4 * PAGE).unwrap();
        theirs.populate(0, 4 * PAGE).unwrap();
        ours.write(PAGE - 2, b"abcd");
        let mut bytes = [0; 4];
        theirs.read(PAGE - 2, &mut bytes);
        assert_eq!(&bytes, b"abcd");
        drop(theirs);
        ours.remove(PAGE, PAGE).unwrap();
        ours.read(PAGE - 2, &mut bytes);
        assert_eq!(&bytes, b"ab\0\0");
    }

    #[test]
    fn a_mapping_is_unmapped_from_its_end_and_what_is_left_can_still_be_used() {
        let page = rustix::param::page_size();
        let (_file, mut mapping) = shared(3 * page);
        mapping.write(0, b"left");
        assert!(!mapping.unmap_some(2 * page));
        let mut bytes = [0; 4];
        mapping.read(0, &mut bytes);
        assert_eq!(&bytes, b"left");
        let beyond = || mapping.read(page, &mut [0]);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(beyond)).is_err());
        assert!(mapping.unmap_some(2 * page) && mapping.unmap_some(2 * page));
    }

    #[test]
    fn access_outside_of_a_mapping_is_stopped_before_it_happens() {
        let (_file, mapping) = shared(PAGE);
        mapping.read(PAGE, &mut []);
        for (offset, length) in [(PAGE, 1), (0, PAGE + 1), (usize::MAX, 2)] {
            let read = || mapping.read(offset, &mut vec![0; length]);
            let write = || mapping.write(offset, &vec![0; length]);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err());
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).is_err());
        }
    }

    #[test]
    fn what_is_no_memory_cannot_be_mapped() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(SharedMapping::new(reader.as_fd(), PAGE).is_err());
    }

    #[test]
    fn the_kernel_says_what_is_unread_before_more_can_be_written() {
        let (mut ours, mut peer) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        assert_eq!(unread(ours.as_fd()).unwrap(), 0);
        let mut written = 0;
        while let Ok(count) = ours.write(&[1; 64 << 10]) {
            written += count;
        }
        let full = unread(ours.as_fd()).unwrap();
        assert!(full >= written, "{full} of {written}");
        peer.read_exact(&mut vec![0; 64 << 10]).unwrap();
        let less = unread(ours.as_fd()).unwrap();
        assert!(less < full, "{less} of {full}");
        peer.read_exact(&mut vec![0; written - (64 << 10)]).unwrap();
        assert_eq!(unread(ours.as_fd()).unwrap(), 0);
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(unread(reader.as_fd()).is_err());
    }

    fn start(script: &str) -> (Child, Pid) {
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = Pid::from_child(&child);
        (child, pid)
    }

    fn end_of(pid: Pid) -> Ended {
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        look_at_end(pidfd.as_fd()).unwrap().unwrap()
    }

    #[test]
    fn the_end_of_a_child_can_be_looked_at_until_somebody_waits_for_it() {
        let (mut child, pid) = start("exec sleep 600");
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        assert!(look_at_end(pidfd.as_fd()).unwrap().is_none());
        kill_process(pid, Signal::KILL).unwrap();
        assert_eq!([end_of(pid).exit, end_of(pid).exit], [Exit::Signal(9); 2]);
        child.wait().unwrap();
        assert_eq!(look_at_end(pidfd.as_fd()).unwrap_err().raw_os_error(), Some(libc::ECHILD));
    }

    /// Each of two children is charged with its own usage only.
    #[test]
    fn its_time_comes_with_it() {
        let (mut lazy_child, lazy) = start("exit 3");
        let (mut busy_child, busy) = start("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
        let [busy, lazy] = [busy, lazy].map(end_of);
        assert_eq!([busy.exit, lazy.exit], [Exit::Code(0), Exit::Code(3)]);
        assert!(busy.cpu_time.total() > 2 * lazy.cpu_time.total(), "{busy:?} {lazy:?}");
        assert!(lazy.peak_rss > 0);
        lazy_child.wait().unwrap();
        busy_child.wait().unwrap();
    }
}
