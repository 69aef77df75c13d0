// Scales, axes and elements: no more of a plotting library than these plots need.

const SVG = 'http://www.w3.org/2000/svg';

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};
const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
const label = (x, y, text, attributes = {}) => svg('text', { x, y, ...attributes }, text);
/** The name of a place on the axis below: in the middle under it, or as near to that as the edges of the plot allow. */
const under = (x, y, text, width) => {
  const half = text.length * 3.6;
  return label(Math.max(half, Math.min(x, width - half)), y, text, { class: 'quiet', 'text-anchor': 'middle' });
};
const path = (points) => points.map(([x, y], at) => `${at ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');

/** From values between `low` and `high` to pixels between `from` and `to`. */
const linear = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
const logarithmic = (low, high, from, to) => {
  const scale = linear(Math.log(low), Math.log(high), from, to);
  return (value) => scale(Math.log(Math.min(Math.max(value, low), high)));
};

/** Round values from 0 up to `high`, about `count` of them. */
const roundTicks = (high, count) => {
  const rough = high / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, at) => at * step);
};

/** Powers of ten between two values, every other one if there are many. */
const powers = (low, high, most) => {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const step = Math.max(1, Math.ceil((last - first + 1) / most));
  const all = [];
  for (let power = first; power <= last; power += step) all.push(10 ** power);
  return all;
};

const digits = (value) => {
  if (value === 0) return '0';
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toPrecision(2);
};
const count = (value) => {
  if (value >= 1e4) {
    const [unit, name] = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']].find(([each]) => value >= each);
    return `${Number(digits(value / unit))}${name}`;
  }
  return String(Number(digits(value)));
};
const time = (us) => {
  if (us < 1000) return `${Number(digits(us))} µs`;
  return us < 1e6 ? `${Number(digits(us / 1e3))} ms` : `${Number(digits(us / 1e6))} s`;
};
const share = (part) => `${Math.round(part * 100)} %`;

/** What belongs to one strategy has one colour; what belongs to another runtime is dashed. */
const KINDS = {
  inline: 'inline', partitioned_step: 'step', partitioned_budget: 'budget', partitioned: 'budget', threads: 'threads', piscina: 'threads',
  one_worker: 'one', offloaded: 'offloaded', processes: 'offloaded', auto: 'auto',
};
const kind = (strategy) => KINDS[strategy.replace(/^(node|python)_/, '')] ?? 'auto';
const dash = (strategy) => (strategy.startsWith('node_') ? '7 3' : strategy.startsWith('python_') ? '2 3' : 'none');

/** The names of lines, each with a piece of it, as many in a row as fit. Returns the elements, and the height that they take. */
const legend = (entries, width) => {
  let [x, y] = [0, 12];
  const elements = entries.map(({ name, strategy }) => {
    const wide = 34 + name.length * 7.2;
    if (x > 0 && x + wide > width) [x, y] = [0, y + 19];
    const one = svg('g', { class: kind(strategy) },
      svg('line', { class: 'whisker', x1: x, x2: x + 20, y1: y - 4, y2: y - 4, 'stroke-dasharray': dash(strategy) }),
      label(x + 26, y, name));
    x += wide;
    return one;
  });
  return { elements, height: y + 12 };
};

/** A plot for each width that the page gives it, and a button that keeps it as a picture. */
const figure = (title, hint, name, alternative, draw, classes = '') => {
  const place = html('div', { class: 'plot' });
  const render = (width) => {
    const [drawn, height] = draw(width);
    place.replaceChildren(svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': alternative, 'data-plot': name }, drawn));
  };
  let before = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width > 0 && width !== before) render(before = width);
  }).observe(place);
  const keep = html('button', { type: 'button' }, 'Save as SVG');
  keep.addEventListener('click', () => {
    const link = html('a', { href: URL.createObjectURL(new Blob([picture(place.firstChild)], { type: 'image/svg+xml' })), download: `${name}.svg` });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  return html('figure', { class: classes }, html('figcaption', {}, html('b', {}, title), hint), place, keep);
};

/** A plot as a document of its own, with the colours for light and dark. */
const picture = (plot) => {
  const MARGIN = 16;
  const [width, height] = ['width', 'height'].map((side) => Number(plot.getAttribute(side)) + 2 * MARGIN);
  const style = document.querySelector('style').textContent.split('/* page */')[0];
  const inner = svg('g', { transform: `translate(${MARGIN} ${MARGIN})` });
  inner.append(...plot.cloneNode(true).childNodes);
  const title = plot.getAttribute('aria-label');
  const whole = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img' },
    svg('title', {}, title), svg('style', {}, style), svg('rect', { class: 'back', width, height, rx: 10 }), inner);
  return new XMLSerializer().serializeToString(whole);
};
