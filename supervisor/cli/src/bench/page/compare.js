// The plots of a comparison.

const rate = (row) => `${count(row.jobs_per_s)} jobs/s` +
  (row.jobs_per_s_interval ? ` (${row.jobs_per_s_interval.map(count).join(' to ')})` : '');

/** Jobs per second: a bar for the median, a dot for each round, a line for the interval. */
const throughput = (rows, width) => {
  const isNarrow = width < 520;
  const left = isNarrow ? 0 : Math.min(200, 16 + 7.2 * Math.max(...rows.map((row) => row.strategy.length)));
  const pitch = isNarrow ? 44 : 34;
  const all = rows.flatMap((row) => [row.jobs_per_s, ...row.jobs_per_s_of_rounds, ...(row.jobs_per_s_interval ?? [])]);
  const high = Math.max(...all) * 1.04 || 1;
  const x = linear(0, high, left, width - 8);
  const bottom = rows.length * pitch + 4;
  const ticks = roundTicks(high, Math.max(2, width / 110)).map((value) => [
    svg('line', { class: 'grid', x1: x(value), x2: x(value), y1: 0, y2: bottom }),
    under(x(value), bottom + 16, count(value), width),
  ]);
  const bars = rows.map((row, at) => {
    const middle = at * pitch + (isNarrow ? 28 : pitch / 2);
    const interval = row.jobs_per_s_interval;
    return svg('g', { class: kind(row.strategy) },
      isNarrow ? label(0, middle - 13, `${row.strategy}  ${count(row.jobs_per_s)}`) : label(left - 10, middle + 4, row.strategy, { 'text-anchor': 'end' }),
      svg('rect', { class: 'bar', x: x(0), width: Math.max(1, x(row.jobs_per_s) - x(0)), y: middle - 9, height: 18, rx: 2 }),
      row.jobs_per_s_of_rounds.map((value) => svg('circle', { class: 'dot', cx: x(value), cy: middle, r: 2 })),
      interval && [
        svg('line', { class: 'whisker', x1: x(interval[0]), x2: x(interval[1]), y1: middle, y2: middle }),
        interval.map((end) => svg('line', { class: 'whisker', x1: x(end), x2: x(end), y1: middle - 6, y2: middle + 6 })),
      ],
      svg('rect', { class: 'mark', x: x(row.jobs_per_s) - 1.5, width: 3, y: middle - 9, height: 18 }));
  });
  return [[ticks, bars, label(width - 8, bottom + 34, 'jobs per second', { class: 'quiet', 'text-anchor': 'end' })], bottom + 40];
};

/** Of how many probes the reply came within which time: the rarer, the further to the right. */
const latencies = (rows, width) => {
  const shown = rows.filter((row) => row.probe_latency_distribution_us.length > 0);
  const key = legend(shown.map((row) => ({ name: row.strategy, strategy: row.strategy })), width);
  const [left, top, height] = [52, key.height + 6, 300];
  const bottom = top + height;
  const nines = (row, part) => Math.min(-Math.log10(1 - part), Math.log10(Math.max(row.probes, 2)));
  const most = Math.max(1, ...shown.map((row) => nines(row, 1)));
  const times = shown.flatMap((row) => row.probe_latency_distribution_us.map(([, us]) => Math.max(us, 1)));
  const [low, high] = [Math.min(...times, 1000), Math.max(...times, 10)];
  const x = linear(0, most, left, width - 14);
  const y = logarithmic(low, high, bottom, top + 4);
  const across = powers(low, high, 8).map((us) => [
    svg('line', { class: 'grid', x1: left, x2: width - 14, y1: y(us), y2: y(us) }),
    label(left - 6, y(us) + 4, time(us), { class: 'quiet', 'text-anchor': 'end' }),
  ]);
  const down = [[0.5, '50 %'], [0.9, '90 %'], [0.99, '99 %'], [0.999, '99.9 %'], [0.9999, '99.99 %'], [0.99999, '99.999 %']]
    .map(([part, name]) => [-Math.log10(1 - part), name])
    .filter(([at]) => at <= most && (width > 520 || at !== 1))
    .map(([at, name]) => [
      svg('line', { class: 'grid', x1: x(at), x2: x(at), y1: top, y2: bottom }),
      under(x(at), bottom + 16, name, width),
    ]);
  const lines = shown.map((row) => svg('g', { class: kind(row.strategy) }, svg('path', {
    class: 'line', 'stroke-dasharray': dash(row.strategy),
    d: path(row.probe_latency_distribution_us.map(([part, us]) => [x(nines(row, part)), y(Math.max(us, 1))])),
  })));
  const below = label(width - 14, bottom + 34, 'share of the requests', { class: 'quiet', 'text-anchor': 'end' });
  return [[key.elements, across, down, lines, below], bottom + 40];
};

/** A strip for each strategy: how late the timer was at most, stretch by stretch. */
const lags = (rows, seconds, width) => {
  const isNarrow = width < 520;
  const left = isNarrow ? 0 : Math.min(200, 16 + 7.2 * Math.max(...rows.map((row) => row.strategy.length)));
  const [tall, pitch, right] = [34, isNarrow ? 62 : 46, isNarrow ? 8 : 76];
  const high = Math.max(1000, ...rows.map((row) => row.timer_lag_us.max));
  const y = logarithmic(50, high, 0, tall);
  const x = linear(0, seconds, left, width - right);
  const bottom = rows.length * pitch;
  const strips = rows.map((row, at) => {
    const floor = at * pitch + pitch - 8;
    const step = seconds / row.timer_lag_over_time_us.length;
    const bars = row.timer_lag_over_time_us.map((us, index) => svg('rect', {
      class: 'full', x: x(index * step), width: Math.max(0.7, x(step) - x(0) - 0.5), y: floor - Math.max(1, y(us)), height: Math.max(1, y(us)),
    }));
    return svg('g', { class: kind(row.strategy) }, bars, svg('line', { class: 'grid', x1: x(0), x2: x(seconds), y1: floor, y2: floor }),
      isNarrow ? label(0, floor - tall - 6, `${row.strategy}  at most ${time(row.timer_lag_us.max)}`)
        : [label(left - 10, floor - 10, row.strategy, { 'text-anchor': 'end' }), label(width, floor - 10, time(row.timer_lag_us.max), { class: 'quiet', 'text-anchor': 'end' })]);
  });
  const ticks = roundTicks(seconds, Math.max(2, width / 140)).map((value) => under(x(value), bottom + 12, `${Number(value.toPrecision(3))} s`, width));
  return [[strips, ticks], bottom + 20];
};

const table = (report) => {
  const heads = ['strategy', 'jobs/s', `beside ${report.strategies[0]?.strategy ?? ''}`, 'request p50', 'p99', 'max', 'timer p99', 'CPU', 'of it a job', 'on the way'];
  const beside = ({ beside: one }) => {
    if (!one) return '–';
    if (one.verdict === 'no_difference') return 'the same';
    return `${one.ratio.toFixed(2)}${one.low === null ? ' (?)' : ` (${one.low.toFixed(2)} to ${one.high.toFixed(2)})`}`;
  };
  const cells = (row) => [
    count(row.jobs_per_s), beside(row), ...['p50', 'p99', 'max'].map((name) => time(row.probe_latency_us[name])), time(row.timer_lag_us.p99),
    `${row.cpu_s.toFixed(2)} s`, row.jobs ? time((row.cpu_s / row.jobs) * 1e6) : '–', row.on_the_way === null ? '–' : share(row.on_the_way),
  ];
  const body = report.strategies.map((row) => html('tr', {}, html('th', { scope: 'row', class: kind(row.strategy) }, row.strategy),
    cells(row).map((cell) => html('td', { class: 'number' }, cell))));
  const head = heads.map((name, at) => html('th', { scope: 'col', class: at ? 'number' : '' }, name));
  return html('div', { class: 'scroll', tabindex: 0 }, html('table', {}, html('caption', {}, `${report.task}: figures of all strategies`),
    html('thead', {}, html('tr', {}, head)), html('tbody', {}, body)));
};

/** What somebody in a hurry has to know. */
const found = ({ strategies }) => {
  const most = strategies.reduce((one, other) => (other.jobs_per_s > one.jobs_per_s ? other : one));
  const calm = strategies.reduce((one, other) => (other.probe_latency_us.p99 < one.probe_latency_us.p99 ? other : one));
  const p99 = (row) => time(row.probe_latency_us.p99);
  const first = strategies[0];
  // Whose interval reaches into that of the fastest may be as fast.
  const equal = strategies.filter((row) => row === most || row.jobs_per_s_interval?.[1] >= most.jobs_per_s_interval?.[0]);
  const sentences = equal.length > 1
    ? [`${equal.map((row) => `${row.strategy}: ${rate(row)}`).join('; ')}. Nobody can be sure which of these does the most.`]
    : [`${most.strategy} does the most: ${rate(most)}. One request in a hundred waits ${p99(most)} or longer beside it.`];
  if (calm !== most) sentences.push(`Requests wait the least beside ${calm.strategy}: ${p99(calm)}, with ${rate(calm)}.`);
  if (first !== most && first !== calm) sentences.push(`${first.strategy}: ${rate(first)}, ${p99(first)}.`);
  return sentences.join(' ');
};

const section = (report, isAlone) => {
  const { strategies, task, size } = report;
  const work = size === null ? task : `${task} ${size}`;
  const list = (text) => strategies.map((row) => `${row.strategy} ${text(row)}`).join('; ');
  const kept = `${task}${size === null ? '' : `-${size}`}`;
  const seconds = Math.max(report.seconds, report.rounds * 0.01);
  return html('section', {}, html('h2', {}, isAlone ? 'What was found' : work),
    html('p', { class: 'found' }, found(report)),
    report.left_out.length > 0 && html('p', {}, `Not possible, because ${report.left_out_because}: ${report.left_out.join(', ')}.`),
    report.missing.map(({ strategy, because }) => html('p', {}, `Not measured: ${strategy}, because ${because}.`)),
    html('div', { class: 'plots' },
      figure('How much is done', 'The mark is the median, each dot a round; the whisker holds the rate with 95 % certainty. Further right is better.',
        `throughput-${kept}`, `Jobs per second: ${list(rate)}`, (width) => throughput(strategies, width)),
      figure('How long others wait', 'A request that takes no time is sent to the loop each millisecond, and its wait counts from when it was due. Lower is better.',
        `latency-${kept}`, `Wait of a request at the 50th and 99th percentile, and at most: ${list((row) => ['p50', 'p99', 'max'].map((name) => time(row.probe_latency_us[name])).join(', '))}`,
        (width) => latencies(strategies, width)),
      figure('When the loop is late', 'How late a timer of 1 ms was at most, in each stretch of the measured time; the height is logarithmic, and the figure is the largest.',
        `lag-${kept}`, `Largest lateness of a timer: ${list((row) => time(row.timer_lag_us.max))}`, (width) => lags(strategies, seconds, width), 'wide')),
    table(report));
};
