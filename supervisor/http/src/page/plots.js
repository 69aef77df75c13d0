// Figures over time. A moment is what one event of the supervisor says; its counts only grow, so the difference of two moments is
// what lies between them.
const MOMENTS = 300;
const history = [];
const SVG = 'http://www.w3.org/2000/svg';

/** What a share of the times of a difference of two histograms did not exceed; null without any times. */
function quantile(share, bounds, counts) {
  const all = counts.reduce((sum, each) => sum + each, 0);
  if (!all) return null;
  let seen = 0;
  for (let index = 0; index < counts.length; index += 1) {
    const upper = bounds[index] ?? bounds[bounds.length - 1] * 2;
    const lower = index ? bounds[index - 1] : 0;
    if (seen + counts[index] >= all * share) return lower + (upper - lower) * ((all * share - seen) / counts[index]);
    seen += counts[index];
  }
  return bounds[bounds.length - 1] * 2;
}

const minus = (after, before) => after.map((value, index) => value - (before?.[index] ?? 0));
const sumOf = (lists) => lists.reduce((sum, list) => list.map((value, index) => value + (sum[index] ?? 0)), []);
const failuresOf = (ended) => Object.entries(ended).reduce((sum, [outcome, many]) => sum + (outcome === 'ok' ? 0 : many), 0);
const okOf = (ended) => ended.ok ?? 0;

/** Adds a moment, with what has happened since the one before it. */
function remember(now) {
  const before = history[history.length - 1]?.now;
  // After a restart of the supervisor everything begins anew.
  if (before && (before.status.pid !== now.status.pid || now.at_us <= before.at_us)) history.length = 0;
  const last = history[history.length - 1]?.now;
  const moment = { now, at: Date.now() };
  if (last) {
    const seconds = (now.at_us - last.at_us) / 1e6;
    const old = new Map(last.tasks.map((task) => [task.task, task]));
    const totals = sumOf(now.tasks.map((task) => minus(task.total, old.get(task.task)?.total)));
    const ended = (of) => now.tasks.reduce((sum, task) => sum + of(task.ended) - of(old.get(task.task)?.ended ?? {}), 0) / seconds;
    Object.assign(moment, {
      ok: ended(okOf), failed: ended(failuresOf), seconds,
      p50: quantile(0.5, now.bounds_us, totals), p99: quantile(0.99, now.bounds_us, totals),
      lag: quantile(0.99, now.lag.bounds_us, minus(now.lag.counts, last.lag.counts)),
      busy: now.status.workers.busy, waiting: now.status.queue.jobs,
      restarts: now.status.workers.restarts - last.status.workers.restarts,
    });
  }
  history.push(moment);
  if (history.length > MOMENTS) history.shift();
  return moment;
}

/** What a task had done ten seconds ago, and how long that is really. */
function lately(task) {
  const past = history[Math.max(0, history.length - 11)];
  const latest = history[history.length - 1];
  const seconds = (latest.now.at_us - past.now.at_us) / 1e6;
  return { before: past.now.tasks.find((each) => each.task === task.task) ?? null, seconds };
}

class Plot {
  /** A line is [name, value of a moment, class]. */
  constructor(title, lines, format, filled = true) {
    Object.assign(this, { lines, format });
    const svg = document.createElementNS(SVG, 'svg');
    svg.setAttribute('viewBox', `0 0 ${MOMENTS - 1} 100`);
    svg.setAttribute('preserveAspectRatio', 'none');
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-label', title);
    [0, 50, 100].forEach((y) => svg.append(this.shape('path', 'grid', `M0 ${y}H${MOMENTS - 1}`)));
    this.areas = lines.map(([, , kind]) => (filled ? svg.appendChild(this.shape('path', `area ${kind}`, '')) : null));
    this.paths = lines.map(([, , kind]) => svg.appendChild(this.shape('path', `line ${kind}`, '')));
    this.values = lines.map(([name, , kind]) => {
      const value = element('i');
      return [element('span', { className: `key ${kind}` }, `${name} `, value), value];
    });
    this.top = element('span');
    this.figure = element('figure', {}, element('figcaption', {}, element('b', { textContent: title }), ...this.values.map(([key]) => key)), svg,
      element('div', { className: 'scale' }, element('span', { textContent: '5 min ago' }), this.top, element('span', { textContent: 'now' })));
    $('plots').append(this.figure);
  }

  shape(name, kind, path) {
    const made = document.createElementNS(SVG, name);
    made.setAttribute('class', kind);
    made.setAttribute('d', path);
    return made;
  }

  draw() {
    const series = this.lines.map(([, of]) => history.map((moment) => of(moment) ?? null));
    const highest = Math.max(...series.flat().filter((value) => value !== null), 0);
    const power = 10 ** Math.floor(Math.log10(highest || 1));
    const top = highest ? [1, 2, 5, 10].map((step) => step * power).find((step) => step >= highest) : 1;
    const first = MOMENTS - history.length;
    series.forEach((values, index) => {
      const runs = [];
      values.forEach((value, at) => {
        if (value === null) return runs.push([]);
        if (!runs.length) runs.push([]);
        return runs[runs.length - 1].push(`${first + at} ${(100 - (value / top) * 100).toFixed(1)}`);
      });
      const drawn = runs.filter((run) => run.length);
      this.paths[index].setAttribute('d', drawn.map((run) => `M${run.join('L')}${run.length === 1 ? 'h.01' : ''}`).join(''));
      this.areas[index]?.setAttribute('d', drawn.map((run) => `M${run[0].split(' ')[0]} 100L${run.join('L')}L${run[run.length - 1].split(' ')[0]} 100Z`).join(''));
      const latest = values[values.length - 1];
      this.values[index][1].textContent = latest === null || latest === undefined ? '–' : this.format(latest);
    });
    this.top.textContent = highest ? `top ${this.format(top)}` : '';
  }
}
