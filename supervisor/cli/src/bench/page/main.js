// What is on the page: a comparison of one size or of several, or the advice on a task.

/** Lines over the size, both logarithmic. Each point: size, value, and the ends of its interval if it has one. */
const overSize = (lines, width, extras = () => []) => {
  const key = legend(lines.map(({ name, strategy }) => ({ name, strategy })), width);
  const points = lines.flatMap((line) => line.points);
  const sizes = points.map(([size]) => size);
  const values = points.flatMap(([, value, ends]) => [value, ...(ends ?? [])]).filter((value) => value > 0);
  const [left, top, height] = [56, key.height + 6, 320];
  const bottom = top + height;
  const x = logarithmic(Math.min(...sizes), Math.max(...sizes), left + 6, width - 14);
  const y = logarithmic(Math.min(...values) * 0.8, Math.max(...values) * 1.25, bottom, top);
  const across = powers(Math.min(...values) * 0.8, Math.max(...values) * 1.25, 8).map((us) => [
    svg('line', { class: 'grid', x1: left, x2: width - 8, y1: y(us), y2: y(us) }),
    label(left - 6, y(us) + 4, time(us), { class: 'quiet', 'text-anchor': 'end' }),
  ]);
  const tens = powers(Math.min(...sizes), Math.max(...sizes), Math.max(2, width / 90));
  const down = (tens.length > 1 ? tens : [...new Set(sizes)]).map((size) => [
    svg('line', { class: 'grid', x1: x(size), x2: x(size), y1: top, y2: bottom }),
    under(x(size), bottom + 16, count(size), width),
  ]);
  const drawn = lines.map(({ strategy, points: each }) => svg('g', { class: kind(strategy) },
    svg('path', { class: 'line', d: path(each.map(([size, value]) => [x(size), y(value)])), 'stroke-dasharray': dash(strategy) }),
    each.map(([size, value, ends]) => [
      svg('circle', { class: 'mark', cx: x(size), cy: y(value), r: 3 }),
      ends && svg('line', { class: 'whisker', x1: x(size), x2: x(size), y1: y(ends[0]), y2: y(ends[1]) }),
    ])));
  const below = label(width - 14, bottom + 34, 'size of a job', { class: 'quiet', 'text-anchor': 'end' });
  return [[key.elements, extras({ x, y, top, bottom, left, right: width - 8 }), across, down, drawn, below], bottom + 40];
};

const crossover = (reports) => {
  const names = [...new Set(reports.flatMap((report) => report.strategies.map((row) => row.strategy)))];
  const lines = names.map((strategy) => ({
    name: strategy, strategy,
    points: reports.map((report) => [report.size, report.strategies.find((row) => row.strategy === strategy)])
      .filter(([, row]) => row?.jobs_per_s > 0).sort(([one], [other]) => one - other)
      .map(([size, row]) => [size, 1e6 / row.jobs_per_s, row.jobs_per_s_interval?.map((value) => 1e6 / value)]),
  })).filter((line) => line.points.length > 0);
  const text = lines.map((line) => `${line.name}: ${line.points.map(([size, us]) => `${time(us)} at ${count(size)}`).join(', ')}`).join('; ');
  return figure('Where the lines cross', 'The time of a job, by its size: measured time divided by jobs that were done in it. Lower is better; the strategy whose line is the lowest does the most at that size.',
    'crossover', `Time of a job by its size. ${text}`, (width) => overSize(lines, width), 'wide');
};

const advised = (advice) => {
  const of = (name) => advice.sizes.filter((row) => row[name] > 0).map((row) => [row.size, row[name]]);
  const strategy = advice.slice ? 'partitioned_budget' : 'inline';
  const lines = [
    { name: advice.slice ? 'on the loop, in steps' : 'on the loop', strategy, points: of('on_loop_us') },
    { name: 'offloaded', strategy: 'offloaded', points: of('offloaded_us') },
    { name: 'lag of the loop, if whole', strategy: 'node_inline', points: of('lag_us') },
  ].filter((line) => line.points.length > 0);
  const { crossover: cross, too_late: late, lag_slo_us: slo } = advice;
  const extras = ({ x, y, top, bottom, left, right }) => [
    svg('line', { class: 'limit', x1: left, x2: right, y1: y(slo), y2: y(slo) }),
    label(right - 4, y(slo) - 5, `--lag-slo ${time(slo)}`, { class: 'quiet', 'text-anchor': 'end' }),
    [[cross, 'offload from here on'], [late, 'too late if whole']].filter(([each]) => each.found === 'at').map(([each, name], at) => [
      svg('rect', { class: 'band', x: x(each.low), width: Math.max(1, x(each.high) - x(each.low)), y: top, height: bottom - top }),
      svg('line', { class: 'limit', x1: x(each.size), x2: x(each.size), y1: top, y2: bottom }),
      label(x(each.size) + (x(each.size) > (left + right) / 2 ? -6 : 6), bottom - 8 - at * 16, name, { class: 'quiet', 'text-anchor': x(each.size) > (left + right) / 2 ? 'end' : 'start' }),
    ]),
  ];
  const text = lines.map((line) => `${line.name}: ${line.points.map(([size, us]) => `${time(us)} at ${count(size)}`).join(', ')}`).join('; ');
  const gain = (row) => (row.on_loop_us / row.offloaded_us).toFixed(2);
  const body = advice.sizes.map((row) => html('tr', {}, html('th', { scope: 'row', class: 'number' }, String(row.size)),
    [time(row.on_loop_us), time(row.offloaded_us), gain(row), time(row.lag_us)].map((cell) => html('td', { class: 'number' }, cell))));
  const head = ['size', 'on the loop', 'offloaded', 'gain', 'lag if whole'].map((name) => html('th', { scope: 'col', class: 'number' }, name));
  return html('section', {}, html('h2', {}, 'What was found'), html('div', { class: 'found' }, data.sentences.map((sentence) => html('p', {}, sentence))),
    html('div', { class: 'plots' }, figure('Where the lines cross', 'The time of a job, by its size. The grey bands hold the crossings with 95 % certainty.',
      'crossover', `Time of a job by its size. ${text}`, (width) => overSize(lines, width, extras), 'wide')),
    html('div', { class: 'scroll', tabindex: 0 }, html('table', {}, html('caption', {}, 'Times by the size'), html('thead', {}, html('tr', {}, head)), html('tbody', {}, body))));
};

const data = JSON.parse(document.querySelector('#data').textContent);
document.querySelector('#about').textContent = data.about;
const place = document.querySelector('#report');
if (data.warnings.length > 0) place.append(html('ul', { class: 'warnings' }, data.warnings.map((warning) => html('li', {}, warning))));
const reports = data.reports ?? [];
if (reports.length > 1) place.append(html('div', { class: 'plots' }, crossover(reports)));
place.append(...reports.map((report) => section(report, reports.length === 1)));
if (data.advice) place.append(advised(data.advice));
