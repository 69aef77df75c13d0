//! The whole screen in several sizes, as a terminal would show it.

use super::keys::Key;
use super::model::tests::{a_job, snapshot};
use super::model::{Model, News};
use super::view;
use offload_supervisor::views::{ClientView, JobView};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// What is on the screen, a line for each row, without blanks at the ends.
fn drawn(model: &Model, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(model, frame)).unwrap();
    let cells = terminal.backend().buffer().content();
    let row = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        format!("{}\n", line.trim_end())
    };
    cells.chunks(usize::from(width)).map(row).collect()
}

fn busy() -> Model {
    let mut shown = snapshot(&[(Some(2_500_000), 10 << 20, 3), (None, 8 << 20, 12)]);
    let job = |task: &str| JobView { task: task.to_owned(), ..a_job() };
    shown.jobs = ["thumbnail", "primes", "thumbnail"].map(job).to_vec();
    let client =
        |client: &str, waiting| ClientView { client: client.to_owned(), waiting, ..ClientView::default() };
    shown.status.clients = vec![client("web", 2), client("nightly", 1)];
    let mut model = Model::default();
    model.take(News::Snapshot(Box::new(shown)));
    model
}

#[test]
fn eighty_columns_and_24_rows_have_all_of_it() {
    let expected = "\
offload 0.6.0  pid 4242  up 1 h 2 min  running  lag p99 180 us max 900 us
workers 2 busy of 4, 4 ready, 1 spare, 3 restarts  sorted by slot
jobs 0.0/s ok, 0.0/s failed, 2 running, 12 queued of 10000, 1.0 MiB held
SLOT STATE    RUNNING   TASK         DONE   MEMORY    PID     JOB
0    busy     2.5 s     primes       3      10.0 MiB  100     01JOB0
1    idle     -         -            12     8.0 MiB   101     -










QUEUED TASK                        JOBS  CLIENT                           QUEUED
thumbnail                             2  web                                   2
primes                                1  nightly                               1




q quit  h help  s sort  Enter story  c cancel  x kill
";
    let shown = drawn(&busy(), (80, 24));
    assert_eq!(shown, expected, "{shown}");
}

#[test]
fn a_large_screen_has_room_for_the_whole_id_of_a_job() {
    let mut model = busy();
    let mut shown = snapshot(&[(Some(2_500_000), 10 << 20, 3)]);
    shown.workers[0].job = Some("01JQ4W3M8Z5X9T2C7VB6NHKDEF".to_owned());
    model.take(News::Snapshot(Box::new(shown)));
    let expected = "\
offload 0.6.0  pid 4242  up 1 h 2 min  running  lag p99 180 us max 900 us
workers 2 busy of 4, 4 ready, 1 spare, 3 restarts  sorted by slot
jobs 0.0/s ok, 0.0/s failed, 2 running, 12 queued of 10000, 1.0 MiB held
SLOT STATE    RUNNING   TASK         DONE   MEMORY    PID     JOB
0    busy     2.5 s     primes       3      10.0 MiB  100     01JQ4W3M8Z5X9T2C7VB6NHKDEF
";
    let queue = "\
QUEUED TASK                                            JOBS  CLIENT                                               QUEUED
";
    let shown = drawn(&model, (120, 40));
    assert!(shown.starts_with(expected), "{shown}");
    let rest = format!("{}{queue}{}q quit  h help", "\n".repeat(40 - 5 - 8), "\n".repeat(6));
    assert!(shown[expected.len()..].starts_with(&rest), "{shown}");
}

#[test]
fn a_small_screen_has_the_slots_and_the_keys() {
    let shown = drawn(&busy(), (40, 10));
    let expected = "\
offload 0.6.0  pid 4242  up 1 h 2 min  r
workers 2 busy of 4, 4 ready, 1 spare, 3
jobs 0.0/s ok, 0.0/s failed, 2 running,
SLOT STATE    RUNNING   TASK
0    busy     2.5 s     primes
1    idle     -         -



q quit  h help  s sort  Enter story  c c
";
    assert_eq!(shown, expected, "{shown}");
}

#[test]
fn no_size_is_too_small() {
    for size in [(1, 1), (2, 3), (5, 200), (200, 2)] {
        let mut model = busy();
        drawn(&model, size);
        for key in [Key::Help, Key::Back, Key::Kill] {
            model.press(key);
            drawn(&model, size);
        }
    }
    assert!(drawn(&Model::default(), (80, 24)).starts_with("asking the supervisor"));
}

#[test]
fn help_story_and_question_lie_over_the_tables() {
    let mut model = busy();
    model.press(Key::Help);
    assert!(drawn(&model, (80, 24)).contains("q, Ctrl-C         quit"));
    model.press(Key::Back);
    model.take(News::Story(vec!["job 01J: queued".to_owned(), "- it waits".to_owned()]));
    assert!(drawn(&model, (80, 24)).contains("job 01J: queued"));
    model.press(Key::Down);
    assert!(!drawn(&model, (80, 24)).contains("job 01J: queued"));
    model.press(Key::Back);
    model.press(Key::Kill);
    assert!(drawn(&model, (80, 24)).contains("kill worker process 100 of slot 0?"));
    model.press(Key::Back);
    assert!(drawn(&model, (80, 24)).contains("not done"));
}

#[test]
fn what_is_too_long_for_a_row_goes_on_in_the_next() {
    let mut model = busy();
    model.take(News::Story(vec!["0123456789".repeat(5), String::new(), "end".to_owned()]));
    let shown = drawn(&model, (40, 10));
    let [first, second] = ["0123456789".repeat(3) + "01234567", "890123456789".to_owned()];
    let rows: Vec<&str> = shown.lines().collect();
    assert!(rows[3].contains(&first) && rows[4].contains(&second) && rows[6].contains("end"), "{shown}");
}

#[test]
fn an_old_picture_says_why_it_is_old_until_there_is_a_new_one() {
    let mut model = busy();
    model.take(News::Silence("no answer".to_owned()));
    assert!(drawn(&model, (80, 24)).ends_with("\nno answer\n"));
    model.press(Key::Down);
    assert!(drawn(&model, (80, 24)).ends_with("\nno answer\n"));
    model.take(News::Snapshot(Box::new(snapshot(&[]))));
    assert!(!drawn(&model, (80, 24)).contains("no answer"));
    let mut model = Model::default();
    model.take(News::Silence("no answer".to_owned()));
    assert!(drawn(&model, (40, 10)).contains("no answer"));
}

#[test]
fn nothing_that_a_client_or_a_job_says_reaches_the_terminal_as_a_control_character() {
    let evil = "a\u{1b}[2J\u{9b}31m\u{7}b\u{202e}c\n\td";
    let mut shown = snapshot(&[(Some(1), 0, 0)]);
    let worker = &mut shown.workers[0];
    (worker.task, worker.job) = (Some(evil.to_owned()), Some(evil.to_owned()));
    shown.jobs = vec![JobView { task: evil.to_owned(), client: evil.to_owned(), ..a_job() }];
    shown.status.clients = vec![ClientView { client: evil.to_owned(), waiting: 1, ..ClientView::default() }];
    let mut model = Model::default();
    model.take(News::Snapshot(Box::new(shown)));
    model.take(News::Done(evil.to_owned()));
    let screens = [drawn(&model, (80, 24)), {
        model.take(News::Story(vec![evil.to_owned()]));
        drawn(&model, (120, 40))
    }];
    for screen in screens {
        let is_obeyed = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
        assert!(!screen.contains(is_obeyed), "{screen:?}");
        assert!(screen.contains("a\\u{1b}[2J"), "it is shown all the same: {screen}");
    }
}
