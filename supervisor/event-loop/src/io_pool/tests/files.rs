//! Reading files: in which parts, and which files are refused.

use std::cell::Cell;

use super::*;

#[test]
fn a_file_is_read_whole_in_parts() {
    let contents: Vec<u8> = (0..3 * READ_PART + 7).map(|index| (index % 251) as u8).collect();
    let file = TemporaryFile::with("whole", &contents);
    let (mut event_loop, pool) = pool_with(one_thread());
    let (whole, refused) = (Answers::default(), Answers::default());
    pool.fs_read(&file.0, contents.len(), collect(&whole));
    pool.fs_read(&file.0, contents.len() - 1, collect(&refused));
    event_loop.run().unwrap();
    assert!(whole.take() == [Ok(contents.clone())], "other bytes came back");
    assert_eq!(refused.take(), [Err(IoError::TooLarge { max_bytes: contents.len() - 1 }.to_string())]);
}

#[test]
fn s64_what_is_no_regular_file_is_refused() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let refused = Rc::new(Cell::new(0));
    let fifo = TemporaryFile::with("fifo", b"");
    std::fs::remove_file(&fifo.0).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo.0, rustix::fs::Mode::RUSR).unwrap();
    for path in ["/dev/zero", "/dev/random", "/", fifo.0.to_str().unwrap()] {
        let path = path.to_owned();
        let refused = Rc::clone(&refused);
        pool.fs_read(path.clone(), 1_000, move |_, result| {
            assert!(matches!(result, Err(IoError::NotRegularFile)), "{path}");
            refused.set(refused.get() + 1);
        });
    }
    event_loop.run().unwrap();
    assert_eq!(refused.get(), 4);
}

#[test]
fn s63_a_part_has_as_many_bytes_as_was_asked_for() {
    let file = TemporaryFile::with("parts", &[7; 25]);
    let (mut event_loop, pool) = pool_with(one_thread());
    let order = Order::default();
    let blocked = block_a_thread(&pool, &Answers::default());
    blocked.begun.recv().unwrap();
    // 10 + 10 + 5 bytes are three parts, taken in turns with those of the others.
    pool.in_parts_of(10).fs_read(&file.0, 25, note(&order, "three parts"));
    pool.submit_parts(parts(2), note(&order, "two"));
    pool.submit_parts(parts(3), note(&order, "three"));
    drop(blocked);
    event_loop.run().unwrap();
    assert_eq!(order.take(), ["two", "three parts", "three"]);
}

/// Between two of its parts, a task changes the file.
#[test]
fn of_a_file_that_changes_no_more_is_read_than_it_had_at_first() {
    for (length, expected) in [(60, 25), (15, 15)] {
        let file = TemporaryFile::with("changing", &[7; 25]);
        let (mut event_loop, pool) = pool_with(one_thread());
        let contents = Answers::default();
        let blocked = block_a_thread(&pool, &Answers::default());
        blocked.begun.recv().unwrap();
        pool.in_parts_of(10).fs_read(&file.0, 100, collect(&contents));
        let path = file.0.clone();
        let change = move || std::fs::OpenOptions::new().write(true).open(path)?.set_len(length);
        pool.submit(change, |_, result| assert!(matches!(result, Ok(Ok(())))));
        drop(blocked);
        event_loop.run().unwrap();
        let contents = contents.take().pop().unwrap().unwrap();
        assert_eq!(contents, vec![7; expected], "after it had {length} bytes");
    }
}

#[test]
fn a_file_that_does_not_say_its_length_is_read_to_its_end() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let (whole, refused) = (Answers::default(), Answers::default());
    pool.in_parts_of(10).fs_read("/proc/self/status", 1 << 20, collect(&whole));
    pool.in_parts_of(10).fs_read("/proc/self/status", 20, collect(&refused));
    event_loop.run().unwrap();
    assert!(whole.take()[0].as_ref().unwrap().starts_with(b"Name:"));
    assert_eq!(refused.take(), [Err(IoError::TooLarge { max_bytes: 20 }.to_string())]);
}

#[test]
fn of_a_file_that_was_empty_when_it_was_opened_nothing_is_read() {
    let empty = TemporaryFile::with("empty", b"");
    let most = |path: &std::path::Path, size| {
        super::super::fs::most_to_read(&std::fs::File::open(path).unwrap(), size).unwrap()
    };
    assert_eq!(most(&empty.0, 0), 0, "it may be written to before it is read");
    assert_eq!(most("/proc/self/status".as_ref(), 0), u64::MAX);
    assert_eq!(most("/proc/self/status".as_ref(), 3), 3);
}

#[test]
fn a_stat_tells_of_a_file_or_why_not() {
    let file = TemporaryFile::with("stat", b"four");
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Rc::new(RefCell::new(Vec::new()));
    for path in [file.0.clone(), file.0.join("missing")] {
        let answers = Rc::clone(&answers);
        pool.fs_stat(path, move |_, result| answers.borrow_mut().push(result));
    }
    event_loop.run().unwrap();
    let answers = answers.take();
    assert_eq!(answers[0].as_ref().unwrap().len(), 4);
    let kind = std::io::ErrorKind::NotADirectory;
    assert!(matches!(&answers[1], Err(IoError::Io(error)) if error.kind() == kind));
}

#[test]
fn a_name_is_looked_up_and_one_that_is_none_is_refused() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let (found, refused) = (Answers::default(), Rc::new(Cell::new(0)));
    pool.dns_lookup("::1", 80, collect(&found));
    let counting = Rc::clone(&refused);
    pool.dns_lookup("no\0name", 80, move |_, result| {
        assert!(matches!(result, Err(IoError::Io(_))));
        counting.set(counting.get() + 1);
    });
    event_loop.run().unwrap();
    assert_eq!(found.take(), [Ok(vec!["[::1]:80".parse().unwrap()])]);
    assert_eq!(refused.get(), 1);
}

#[test]
fn random_bytes_are_as_many_as_asked_for_and_never_the_same() {
    let (mut event_loop, pool) = pool_with(IoPoolConfig::default());
    for count in [0, 1, RANDOM_PART, 2 * RANDOM_PART + 100] {
        let answers = Answers::default();
        pool.random_bytes(count, collect(&answers));
        pool.random_bytes(count, collect(&answers));
        event_loop.run().unwrap();
        let made: Vec<Vec<u8>> = answers.take().into_iter().map(Result::unwrap).collect();
        assert!(made.iter().all(|bytes| bytes.len() == count));
        // 100 bytes are equal, or all zero, once in 2^800 runs.
        let end = count.saturating_sub(100);
        assert!(count < 100 || (made[0][end..] != made[1][end..] && made[0][end..] != [0; 100]));
    }
}

#[test]
fn more_random_bytes_than_there_is_memory_are_an_error() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let refused = Rc::new(Cell::new(false));
    let noting = Rc::clone(&refused);
    pool.random_bytes(usize::MAX, move |_, result| {
        let kind = std::io::ErrorKind::OutOfMemory;
        noting.set(matches!(result, Err(IoError::Io(error)) if error.kind() == kind));
    });
    event_loop.run().unwrap();
    assert!(refused.get());
}
