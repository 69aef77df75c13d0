//! A terminal for programs that behave differently on one.

use super::Lines;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

/// A terminal: what a process writes to its one side is read from the other.
#[derive(Debug)]
pub struct Terminal {
    ours: File,
    theirs: File,
}

impl Terminal {
    /// A new one.
    ///
    /// # Panics
    /// If the system has none left.
    pub fn open() -> Terminal {
        let ours =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it is ours");
        let path = ptsname(&ours, Vec::new()).expect("it has a name").into_string().expect("of ASCII");
        let theirs = File::options().read(true).write(true).custom_flags(NOCTTY).open(path);
        Terminal { ours: File::from(ours), theirs: theirs.expect("its other side") }
    }

    /// A new one with so many columns.
    ///
    /// # Panics
    /// If the system has none left.
    pub fn open_with(columns: u16) -> Terminal {
        let terminal = Terminal::open();
        terminal.resize((columns, 24));
        terminal
    }

    /// From now on it has so many columns and rows; a process of which it is the controlling terminal gets a signal.
    ///
    /// # Panics
    /// If it is gone.
    pub fn resize(&self, (columns, rows): (u16, u16)) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.theirs, size).expect("it is a terminal");
    }

    /// Whether it shows what is typed and hands it on line by line, as it does for a shell.
    ///
    /// # Panics
    /// If it is gone.
    pub fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.theirs).expect("it is a terminal").local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }

    /// What is written here was typed; what is read is shown.
    ///
    /// # Panics
    /// If there are no descriptors left.
    pub fn keyboard(&self) -> File {
        self.ours.try_clone().expect("a descriptor")
    }

    /// For a process that is to write to it.
    ///
    /// # Panics
    /// If there are no descriptors left.
    pub fn side(&self) -> Stdio {
        self.theirs.try_clone().expect("a descriptor").into()
    }

    /// What is written to it, line by line, once no process has it any more or as it comes.
    pub fn lines(self) -> Lines {
        drop(self.theirs);
        Lines::collect(CarriageReturns(self.ours))
    }
}

/// A terminal does not open as the controlling one of the tests (`O_NOCTTY`).
const NOCTTY: i32 = 0o400;

/// What redraws a line of a terminal returns to its beginning: here that ends a line.
struct CarriageReturns(File);

impl Read for CarriageReturns {
    fn read(&mut self, space: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.read(space)?;
        space[..count].iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
        Ok(count)
    }
}
