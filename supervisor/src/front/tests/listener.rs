//! The listener in temporary folders: modes, locks, what was left behind, what must not be replaced.

use super::*;
use crate::front::{AcceptError, BindError, Listener};
use crate::limits::GENERATIONS_KEPT;
use crate::limits::SOCKET_PATH_MAX;
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// A user that owns nothing here.
const NOBODY: u32 = 65534;

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

/// The names in a directory, sorted.
fn names_in(directory: &Path) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(name).collect();
    names.sort();
    names
}

#[track_caller]
fn connects(listener: &Listener) {
    let mut peer = RawPeer::new(UnixStream::connect(listener.path()).unwrap());
    wait(&*listener.socket(), PollFlags::IN);
    let mut connection = listener.accept(1000, &FilePlaces::new(1)).unwrap().unwrap();
    assert!(listener.accept(1000, &FilePlaces::new(1)).unwrap().is_none());
    peer.say(&hello(VERSION_MAJOR, "tester"));
    assert_eq!(connection.receive(&mut |_, _| Room::Take, &mut |_| {}).unwrap(), Received::Messages);
    assert!(connection.is_greeted());
}

#[test]
fn the_directory_and_the_socket_are_for_the_owner_alone() {
    let folder = private_folder();
    let path = folder.path().join("offload/offload.sock");
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(names_in(path.parent().unwrap()), ["offload.sock", "offload.sock.lock"]);
    assert_eq!(mode(&path.with_extension("sock.lock")), 0o600);
    connects(&listener);
}

#[test]
fn a_second_supervisor_is_told_whose_socket_it_is_and_the_first_does_not_notice() {
    let folder = private_folder();
    let path = folder.path().join("offload.sock");
    let first = Listener::bind(&path).unwrap();
    let inode = path.metadata().unwrap().ino();
    match Listener::bind(&path) {
        Err(BindError::AlreadyRunning { socket, pid, listens: true }) => {
            assert_eq!((socket, pid), (path.clone(), Some(std::process::id())));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(path.metadata().unwrap().ino(), inode);
    connects(&first);
}

#[test]
fn of_many_that_start_at_once_exactly_one_gets_the_socket() {
    let folder = private_folder();
    let path = folder.path().join("offload.sock");
    let contenders = std::sync::Barrier::new(8);
    let contend = || {
        let listener = Listener::bind(&path);
        contenders.wait();
        listener.is_ok()
    };
    let winners = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(contend)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
    });
    assert_eq!(winners, 1);
}

#[test]
fn a_socket_that_a_dead_supervisor_left_behind_is_taken_over() {
    let folder = private_folder();
    let path = folder.path().join("offload.sock");
    drop(UnixListener::bind(&path).unwrap());
    fs::write(path.with_extension("sock.lock"), "4194304\n4194304\n").unwrap();
    assert!(UnixStream::connect(&path).is_err());
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(
        fs::read_to_string(path.with_extension("sock.lock")).unwrap(),
        format!("{:<10}\n", std::process::id())
    );
    connects(&listener);
}

fn generations_beside(path: &Path) -> Vec<String> {
    let content = fs::read_to_string(path.with_extension("sock.lock")).unwrap();
    content.lines().skip(1).map(str::to_owned).collect()
}

/// As the lock file is written now, and as it was when one generation was kept.
#[test]
fn a_start_that_fails_with_the_lock_in_hand_leaves_what_is_known_of_those_before() {
    let before = "0123456789abcdef".repeat(2);
    for content in [format!("4711\n{before}\n"), format!("4711      \n{before}\n")] {
        let folder = private_folder();
        let path = folder.path().join("offload.sock");
        fs::write(path.with_extension("sock.lock"), content).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(Listener::bind(&path), Err(BindError::Unsuitable { .. })));
        assert_eq!(generations_beside(&path), [&*before]);
        fs::remove_dir(&path).unwrap();
        let listener = Listener::bind(&path).unwrap();
        assert_eq!(listener.generations(), [&*before]);
        assert_eq!(generations_beside(&path), [&*before], "nothing is forgotten before it is said");
    }
}

#[test]
fn generations_are_kept_until_they_are_let_go_and_no_more_than_a_few() {
    let folder = private_folder();
    let path = folder.path().join("offload.sock");
    let name = |number: usize| format!("{number:032x}");
    let mut listener = Listener::bind(&path).unwrap();
    assert!(listener.generations().is_empty());
    listener.set_generations((0..20).map(name).collect()).unwrap();
    let last: Vec<String> = (20 - GENERATIONS_KEPT..20).map(name).collect();
    assert_eq!(generations_beside(&path), last);
    drop(listener);
    let mut listener = Listener::bind(&path).unwrap();
    assert_eq!(listener.generations(), last);
    listener.set_generations(vec![name(99)]).unwrap();
    assert_eq!(generations_beside(&path), [name(99)]);
}

/// As if the process had been killed between writing and cutting off what is left of a longer content.
#[test]
fn lines_behind_the_last_one_that_was_written_do_no_harm() {
    let folder = private_folder();
    let path = folder.path().join("offload.sock");
    let [one, other] = ["1", "2"].map(|digit| digit.repeat(32));
    let content = format!("4711      \n{one}\n{other}\n{one}\nnonsense\n");
    fs::write(path.with_extension("sock.lock"), content).unwrap();
    assert_eq!(Listener::bind(&path).unwrap().generations(), [one, other]);
}

#[test]
fn what_is_no_socket_is_not_replaced() {
    let folder = private_folder();
    let path = folder.path().join("letters");
    fs::write(&path, "dear").unwrap();
    assert!(matches!(Listener::bind(&path), Err(BindError::Unsuitable { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "dear");
}

#[test]
fn the_socket_is_gone_with_its_listener_and_the_place_is_free_again() {
    let folder = private_folder();
    let path = folder.path().join("offload.sock");
    for _ in 0..3 {
        drop(Listener::bind(&path).unwrap());
        assert_eq!(names_in(folder.path()), ["offload.sock.lock"]);
    }
}

#[test]
fn a_socket_that_somebody_put_in_its_place_is_left_alone() {
    let folder = private_folder();
    let path = folder.path().join("offload.sock");
    let listener = Listener::bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(listener);
    assert!(path.metadata().unwrap().file_type().is_socket());
}

#[test]
fn two_sockets_in_one_directory_do_not_disturb_each_other() {
    let folder = private_folder();
    let first = Listener::bind(&folder.path().join("first.sock")).unwrap();
    let second = Listener::bind(&folder.path().join("second.sock")).unwrap();
    connects(&first);
    connects(&second);
}

#[test]
fn the_longest_path_that_the_kernel_takes_works_and_one_byte_more_is_refused() {
    let folder = private_folder();
    let length = folder.path().as_os_str().as_bytes().len() + 1;
    let longest = folder.path().join("x".repeat(SOCKET_PATH_MAX - length));
    connects(&Listener::bind(&longest).unwrap());
    let error = Listener::bind(&folder.path().join("x".repeat(SOCKET_PATH_MAX + 1 - length))).unwrap_err();
    assert!(
        matches!(&error, BindError::Unsuitable { .. }) && error.to_string().contains("108 bytes"),
        "{error}"
    );
}

#[test]
fn a_path_without_a_file_name_is_refused() {
    for path in ["/", "..", "", "\0abstract"] {
        assert!(matches!(Listener::bind(Path::new(path)), Err(BindError::Unsuitable { .. })), "{path}");
    }
}

/// Needs to be root, for only root can become somebody else. The other user is a thread: credentials are a thread's.
#[test]
fn another_user_is_turned_away_before_a_byte_is_read_even_if_the_modes_would_let_it_in() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = private_folder();
    let path = folder.path().join("offload.sock");
    let listener = Listener::bind(&path).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let stranger = || {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let mut peer = RawPeer::new(UnixStream::connect(&path).unwrap());
        peer.say(&hello(VERSION_MAJOR, "stranger"));
        peer
    };
    let peer = std::thread::scope(|scope| scope.spawn(stranger).join().unwrap());
    wait(&*listener.socket(), PollFlags::IN);
    assert!(listener.accept(1000, &FilePlaces::new(1)).unwrap().is_none());
    assert_eq!(listener.other_users(), 1);
    assert_eq!(peer.hear_out(), "");
    connects(&listener);
}

#[test]
fn running_out_of_descriptors_is_told_from_a_broken_socket() {
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
        assert!(matches!(AcceptError::from(io::Error::from(errno)), AcceptError::Exhausted(_)));
    }
    assert!(matches!(AcceptError::from(io::Error::from(Errno::BADF)), AcceptError::Io(_)));
}
