//! The terminal while `top` has it: the other screen, without echo. However that ends, the terminal is as before.

use super::model::Model;
use super::view;
use offload_supervisor::signals::EndingSignals;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use std::io::{self, Stdout, stdin, stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// See the module's documentation.
pub(super) struct Screen {
    /// Dropping it would show the cursor, which `Taken` does, and complain with a panic if that and standard error are gone.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    /// Given back when this is dropped.
    _taken: Taken,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn open() -> io::Result<Screen> {
        let taken = Taken::take()?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(Screen { terminal: ManuallyDrop::new(terminal), _taken: taken })
    }

    /// Draws what changed, after a change of its size everything.
    ///
    /// # Errors
    /// If the terminal is gone, or was given back because a thread has panicked.
    pub(super) fn draw(&mut self, model: &Model) -> io::Result<()> {
        if !IS_TAKEN.load(Ordering::SeqCst) {
            return Err(io::Error::other("a thread has panicked"));
        }
        self.terminal.draw(|frame| view::draw(model, frame)).map(drop)
    }
}

/// What was typed, waiting at most so long for it.
///
/// The reader of crossterm is not used: on a terminal that is gone it never returns, a key that comes with a new size waits in it
/// for the next key, and half a sequence stops it. The size needs no event, because each drawing asks for it.
///
/// # Errors
/// If the terminal is gone.
pub(super) fn typed(signals: &EndingSignals, wait: Duration) -> io::Result<Vec<u8>> {
    let stdin = stdin();
    let mut watched = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
    match poll(&mut watched, Timespec::try_from(wait).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    if watched[0].revents().is_empty() {
        return Ok(Vec::new());
    }
    let mut space = [0; 1024];
    match read(&stdin, &mut space)? {
        0 => Err(io::Error::other("it is gone")),
        count => Ok(space[..count].to_vec()),
    }
}

/// Whether nobody is at the other side of the terminal any more.
pub(super) fn is_gone() -> bool {
    let (stdin, stdout) = (stdin(), stdout());
    let mut watched = [PollFd::new(&stdin, PollFlags::empty()), PollFd::new(&stdout, PollFlags::empty())];
    // If they cannot be polled, they are there but of no use, which is another error.
    let _ = poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    watched.iter().any(|side| side.revents().intersects(PollFlags::ERR | PollFlags::HUP))
}

/// The terminal is ours. Dropping this gives it back.
struct Taken;

/// It is given back once: to leave the other screen twice would move the cursor over what was printed in between.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

impl Taken {
    fn take() -> io::Result<Taken> {
        give_back_before_a_panic_is_told();
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::SeqCst);
        let taken = Taken;
        execute!(stdout(), EnterAlternateScreen)?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Whoever reads the terminal may be gone, and then nobody needs it.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// What a panic says, on whichever thread, would vanish with the other screen.
fn give_back_before_a_panic_is_told() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |report| {
            give_back();
            previous(report);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, Termios, tcgetattr};
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::thread;

    /// Set in the process that is to panic: on which thread.
    const WHERE: &str = "OFFLOAD_TEST_TOP_PANICS";

    /// What leaves the other screen.
    const LEAVE: &str = "\u{1b}[?1049l";

    /// This test runs itself on a terminal of its own, there with the variable.
    #[test]
    fn a_panic_on_any_thread_gives_the_terminal_back_once_before_it_is_told() {
        match std::env::var(WHERE).as_deref() {
            Ok("here") => panic_with_the_terminal(),
            Ok(_) => panic_on_another_thread(),
            Err(_) => ["here", "there"].into_iter().for_each(check),
        }
    }

    fn panic_with_the_terminal() {
        let _screen = Screen::open().unwrap();
        panic!("on purpose");
    }

    fn panic_on_another_thread() {
        let mut screen = Screen::open().unwrap();
        screen.draw(&Model::default()).unwrap();
        thread::spawn(|| panic!("on purpose")).join().unwrap_err();
        let refused = screen.draw(&Model::default()).unwrap_err();
        drop(screen);
        panic!("it draws no more: {refused}");
    }

    fn check(place: &str) {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).and_then(|()| unlockpt(&ours)).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let theirs = File::options().read(true).write(true).open(path).unwrap();
        let before = modes(&tcgetattr(&theirs).unwrap());
        assert_eq!(before, LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        let side = || Stdio::from(theirs.try_clone().unwrap());
        let name = "top::screen::tests::a_panic_on_any_thread_gives_the_terminal_back_once_before_it_is_told";
        let mut itself = Command::new(std::env::current_exe().unwrap());
        itself.args(["--exact", name, "--nocapture"]).env(WHERE, place).env("TERM", "xterm");
        let mut child = itself.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let reader = thread::spawn(move || read_to_the_end(File::from(ours)));
        let ended = child.wait().unwrap();
        assert_eq!(modes(&tcgetattr(&theirs).unwrap()), before, "{place}");
        // The command has copies of it, too.
        drop((theirs, itself));
        let shown = reader.join().unwrap();
        let (_, after) = shown.split_once(LEAVE).expect(&shown);
        assert!(!ended.success() && after.contains("on purpose"), "{place}: {shown}");
        assert!(!after.contains(LEAVE) && (place == "here" || after.contains("it draws no more")), "{shown}");
    }

    fn modes(termios: &Termios) -> LocalModes {
        termios.local_modes & (LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    /// The end of a terminal is an error, which comes when nobody has its other side any more.
    fn read_to_the_end(mut terminal: File) -> String {
        let mut shown = Vec::new();
        let _ = terminal.read_to_end(&mut shown);
        String::from_utf8_lossy(&shown).into_owned()
    }
}
