//! What is drawn. All text that comes from jobs and clients is made harmless first.

use super::keys::HELP;
use super::model::{Model, Open, Order};
use crate::text::{bytes, printable, time};
use offload_supervisor::views::{Status, WorkerView};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, TableState};

/// A screen that is lower has no tables of the queue.
const HEIGHT_FOR_QUEUE: u16 = 16;

/// Rows of the tables of the queue, with their headings.
const QUEUE_ROWS: u16 = 7;

/// A screen that is narrower has fewer columns.
const WIDTH_FOR_ALL: u16 = 70;

const HEADING: Style = Style::new().add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws everything.
pub(super) fn draw(model: &Model, frame: &mut Frame<'_>) {
    let area = frame.area();
    let queue = if area.height < HEIGHT_FOR_QUEUE { 0 } else { QUEUE_ROWS };
    let rows = [Constraint::Length(3), Constraint::Min(1), Constraint::Length(queue), Constraint::Length(1)];
    let [head, slots, queue, foot] = Layout::vertical(rows).areas(area);
    match model.status() {
        None => frame.render_widget(
            Paragraph::new(vec!["asking the supervisor ...".into(), harmless(&model.silence).into()]),
            head,
        ),
        Some(status) => {
            frame.render_widget(Paragraph::new(head_lines(status, model)), head);
            draw_slots(model, frame, slots);
            draw_queue(model, status, frame, queue);
            frame.render_widget(Paragraph::new(foot_line(model)).style(HEADING), foot);
        }
    }
    draw_open(model, frame, area);
}

/// Text that a terminal shows and does not obey: neither control characters nor those that change the direction of writing.
fn harmless(text: &str) -> String {
    let is_hidden = |letter: char| matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    printable(text).chars().map(|letter| if is_hidden(letter) { '?' } else { letter }).collect()
}

fn head_lines(status: &Status, model: &Model) -> Vec<Line<'static>> {
    let lag = &status.event_loop.lag_us;
    let counted = |name: &str| status.jobs.get(name).copied().unwrap_or(0);
    let (workers, queue, rates) = (&status.workers, &status.queue, model.rates);
    let uptime = time((status.uptime_s.max(0.0) * 1e6) as u64);
    let lines = [
        format!(
            "offload {}  pid {}  up {uptime}  {}  lag p99 {} max {}",
            status.version,
            status.pid,
            status.state,
            time(lag.p99),
            time(lag.max)
        ),
        format!(
            "workers {} busy of {}, {} ready, {} spare, {} restarts  sorted by {}",
            workers.busy,
            workers.configured,
            workers.ready,
            workers.spares,
            workers.restarts,
            model.sort.word()
        ),
        format!(
            "jobs {:.1}/s ok, {:.1}/s failed, {} running, {} queued of {}, {} held",
            rates.ok,
            rates.failed,
            counted("running"),
            queue.jobs,
            queue.max_jobs,
            bytes(queue.bytes)
        ),
    ];
    lines.into_iter().map(|line| Line::from(harmless(&line))).collect()
}

fn draw_slots(model: &Model, frame: &mut Frame<'_>, area: Rect) {
    let is_wide = area.width >= WIDTH_FOR_ALL;
    let all = [
        ("SLOT", 4),
        ("STATE", 8),
        ("RUNNING", 9),
        ("TASK", 12),
        ("DONE", 6),
        ("MEMORY", 9),
        ("PID", 7),
        ("JOB", 0),
    ];
    let columns = if is_wide { &all[..] } else { &all[..4] };
    let rows = model.workers().into_iter().map(|worker| Row::new(cells(worker, columns.len())));
    let heading = Row::new(columns.iter().map(|(name, _)| *name)).style(HEADING);
    let widths = columns.iter().enumerate().map(|(index, (_, width))| match index + 1 == columns.len() {
        true => Constraint::Fill(1),
        false => Constraint::Length(*width),
    });
    let table = Table::new(rows, widths).header(heading).row_highlight_style(CHOSEN);
    let mut state = TableState::default().with_selected(Some(model.chosen_row()));
    frame.render_stateful_widget(table, area, &mut state);
}

fn cells(worker: &WorkerView, count: usize) -> Vec<String> {
    let or_nothing = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let what = worker.task.clone().or_else(|| worker.hint.clone());
    let cells = [
        worker.slot.to_string(),
        worker.state.clone(),
        or_nothing(worker.running_us.map(time)),
        harmless(&or_nothing(what)),
        worker.jobs_done.to_string(),
        or_nothing(worker.rss_bytes.map(bytes)),
        or_nothing(worker.pid.map(|pid| pid.to_string())),
        harmless(&or_nothing(worker.job.clone())),
    ];
    cells.into_iter().take(count).collect()
}

fn draw_queue(model: &Model, status: &Status, frame: &mut Frame<'_>, area: Rect) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(2).areas(area);
    let (tasks, has_more) = model.waiting_by_task();
    let more = if has_more { "+" } else { "" };
    let tasks = tasks.into_iter().map(|(task, count)| [task, format!("{count}{more}")]);
    draw_counts(("QUEUED TASK", "JOBS"), tasks, frame, left);
    let clients = status.clients.iter().map(|client| [client.client.clone(), client.waiting.to_string()]);
    draw_counts(("CLIENT", "QUEUED"), clients, frame, right);
}

fn draw_counts(
    (name, number): (&'static str, &'static str),
    rows: impl Iterator<Item = [String; 2]>,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let rows = rows.map(|[name, number]| Row::new([harmless(&name), format!("{number:>8}")]));
    let table = Table::new(rows, [Constraint::Fill(1), Constraint::Length(8)])
        .header(Row::new([name.to_owned(), format!("{number:>8}")]).style(HEADING));
    frame.render_widget(table, area);
}

fn foot_line(model: &Model) -> String {
    match (model.silence.as_str(), model.message.as_str()) {
        ("", "") => "q quit  h help  s sort  Enter story  c cancel  x kill".to_owned(),
        ("", message) => harmless(message),
        (silence, _) => harmless(silence),
    }
}

/// What lies over the tables: help, a story, a question, the end.
fn draw_open(model: &Model, frame: &mut Frame<'_>, area: Rect) {
    let (title, lines) = match &model.open {
        Open::Nothing => return,
        Open::Help => {
            (" keys ", HELP.iter().map(|(keys, what)| format!("{keys:<17} {what}")).collect::<Vec<_>>())
        }
        Open::Story { lines, first } => {
            (" story: up, down, Esc ", lines.iter().skip(*first).map(|line| harmless(line)).collect())
        }
        Open::Question(order) => (" y: yes, any other key: no ", vec![question(order)]),
        Open::End(reason) => (" any key: leave ", vec![harmless(reason)]),
    };
    let lines: Vec<String> =
        lines.iter().flat_map(|line| folded(line, usize::from(area.width.saturating_sub(2)))).collect();
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    let place = Rect { y: area.y + (area.height - height) / 2, height, ..area };
    frame.render_widget(Clear, place);
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), place);
}

/// The line in rows of this width.
fn folded(line: &str, width: usize) -> Vec<String> {
    let letters: Vec<char> = if line.is_empty() { vec![' '] } else { line.chars().collect() };
    letters.chunks(width.max(1)).map(|row| row.iter().collect()).collect()
}

fn question(order: &Order) -> String {
    match order {
        Order::Kill { slot, pid } => {
            format!("kill worker process {pid} of slot {slot}? its job may run again")
        }
        Order::Cancel { job } => format!("cancel job {job}?"),
        Order::Tell { job } => format!("tell the story of job {job}?"),
    }
}
