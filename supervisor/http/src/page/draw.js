// How things are shown. All text goes through textContent.
const $ = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

const rounded = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)).replace(/\.0+$/, '');

function time(us) {
  if (us === null || us === undefined || Number.isNaN(us)) return '–';
  if (us < 1e3) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${rounded(us / 1e3)} ms`;
  if (us < 6e7) return `${rounded(us / 1e6)} s`;
  if (us < 36e8) return `${Math.floor(us / 6e7)} min ${Math.floor((us / 1e6) % 60)} s`;
  return us < 864e8 ? `${Math.floor(us / 36e8)} h ${Math.floor((us / 6e7) % 60)} min` : `${Math.floor(us / 864e8)} d ${Math.floor((us / 36e8) % 24)} h`;
}

function bytes(count) {
  if (count === null || count === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(Math.floor(Math.log2(Math.max(count, 1)) / 10), 4);
  return `${power ? rounded(count / 1024 ** power) : count} ${units[power]}`;
}

const count = (value) => (value ?? 0).toLocaleString('en');
const perSecond = (value) => (value === null ? '–' : value === 0 ? '0' : value < 10 ? value.toFixed(1) : count(Math.round(value)));

const TONES = { ok: 'good', running: 'info', busy: 'info', ready: 'good', idle: 'quiet', spare: 'quiet', queued: 'quiet', parked: 'quiet', paused: 'warn', held: 'warn',
  assigned: 'info', cancelled: 'warn', starting: 'warn', degraded: 'warn', draining: 'warn', stopping: 'warn', backing_off: 'warn', empty: 'quiet' };
const tone = (state) => TONES[state] ?? 'bad';

function badge(target, text, kind = tone(text)) {
  if (target.textContent !== text) target.textContent = text;
  target.className = `badge ${kind}`;
}

/**
 * A table that is brought up to date in place, so that what has the focus keeps it.
 * A column is [title, cell, class]; `cell(row, td)` returns a text, or has filled the cell itself.
 */
class Table {
  constructor(id, columns, key, none) {
    Object.assign(this, { columns, key, none, rows: new Map() });
    const heads = columns.map(([title, , kind = '']) => element('th', { textContent: title, className: kind, scope: 'col' }));
    this.body = element('tbody');
    $(id).append(element('thead', {}, element('tr', {}, ...heads)), this.body);
    this.nothing = element('tr', {}, element('td', { textContent: none, className: 'none', colSpan: columns.length }));
    this.body.append(this.nothing);
  }

  show(rows) {
    const before = this.rows;
    const keys = rows.map((row) => String(this.key(row)));
    this.rows = new Map(keys.map((key) => [key, before.get(key) ?? this.line()]));
    // First of all: a line that has to be moved behind one that goes away loses the focus.
    before.forEach((line, key) => this.rows.has(key) || line.remove());
    let place = this.body.firstChild;
    for (const [index, row] of rows.entries()) {
      const line = this.rows.get(keys[index]);
      this.columns.forEach(([, cell], column) => {
        const text = cell(row, line.cells[column]);
        if (typeof text === 'string' && line.cells[column].textContent !== text) line.cells[column].textContent = text;
      });
      if (line === place) place = place.nextSibling;
      else this.body.insertBefore(line, place);
    }
    this.nothing.hidden = rows.length > 0;
  }

  line() {
    return element('tr', {}, ...this.columns.map(([, , kind = '']) => element('td', { className: kind })));
  }
}

/** A cell with a text in a colour. */
const coloured = (text, kind) => (row, cell) => {
  const shown = text(row);
  const mark = cell.firstElementChild ?? cell.appendChild(element('span'));
  if (mark.textContent !== shown) mark.textContent = shown;
  mark.className = kind(row);
};

/** A cell with a button that shows the story of a job; of several jobs there is their number, and the buttons unfold. */
const jobsCell = (ids) => (row, cell) => {
  const jobs = ids(row);
  if (cell.dataset.jobs === String(jobs)) return;
  cell.dataset.jobs = String(jobs);
  const buttons = jobs.map((job) => element('button', { type: 'button', className: 'id', textContent: job, onclick: () => showStory(job) }));
  const several = () => element('details', {}, element('summary', { textContent: `${jobs.length} jobs` }), ...buttons.map((button) => element('div', {}, button)));
  cell.replaceChildren(...(jobs.length > 1 ? [several()] : buttons));
};
const jobCell = (id) => jobsCell((row) => [id(row)].filter(Boolean));

/** Fills a list of terms and values. */
function facts(target, pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== '');
  if (target.childElementCount !== shown.length) {
    target.replaceChildren(...shown.map(() => element('div', {}, element('dt'), element('dd'))));
  }
  shown.forEach(([term, value, kind = '', small = ''], index) => {
    const [dt, dd] = target.children[index].children;
    const text = `${value}`;
    if (dt.textContent !== term) dt.textContent = term;
    if (dd.dataset.shown === `${text}|${small}|${kind}`) return;
    dd.dataset.shown = `${text}|${small}|${kind}`;
    dd.replaceChildren(text, ...(small ? [element('small', { textContent: small })] : []));
    dd.className = kind;
  });
}

/** What a job has returned: a picture, a text, or how long it is. */
async function showOutput(target, response) {
  const blob = await response.blob();
  const type = blob.type.split(';')[0];
  target.querySelectorAll('img').forEach((image) => URL.revokeObjectURL(image.src));
  if (/^image\/(png|jpeg|gif|webp)$/.test(type)) {
    const image = element('img', { alt: 'The output of the job' });
    image.src = URL.createObjectURL(blob);
    return target.replaceChildren(image);
  }
  const isText = type.startsWith('text/') || type === 'application/json' || type.endsWith('+json');
  const most = 64 * 1024;
  const text = isText ? await blob.slice(0, most).text() : `${type || 'no media type'}, ${bytes(blob.size)}`;
  const more = isText && blob.size > most ? `\n… ${bytes(blob.size - most)} more` : '';
  return target.replaceChildren(element('pre', { textContent: (text || '(empty)') + more }));
}

let noticeTimer = 0;
function notice(text = '') {
  $('notice').textContent = text;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { $('notice').textContent = ''; }, 6000);
}
