// The page as a whole: signing in, and what comes once a second.
const JOBS_SHOWN = 20;
// Whoever is not told once a second asks so often, in milliseconds.
const ASK_EVERY = 2000;
// After so long without a word the page says so.
const SILENCE = 5000;
const HINT = [...$('sign-in-hint').childNodes];
let live = null;
let jobsTimer = 0;
// When the supervisor last said how it is.
let heard = null;

const tables = {
  tasks: new Table('tasks', [
    ['Task', ({ task }) => task.task],
    ['Waiting', ({ task }) => count(task.waiting), 'number'],
    ['Running', ({ task }) => count(task.running), 'number'],
    ['Per second', ({ rate }) => perSecond(rate), 'number'],
    ['Wait p99', ({ wait }) => time(wait), 'number'],
    ['Run p50', ({ run }) => time(run), 'number'],
    ['Total p99', ({ total }) => time(total), 'number'],
    ['Dead', coloured(({ task }) => count(task.dead), ({ task }) => (task.dead ? 'bad' : 'quiet')), 'number'],
    ['Done', ({ task }) => count(okOf(task.ended)), 'number'],
    ['Failed', coloured(({ task }) => count(failuresOf(task.ended)), ({ task }) => (failuresOf(task.ended) ? 'bad' : 'quiet')), 'number'],
  ], ({ task }) => task.task, 'No job has come yet.'),
  slots: new Table('slots', [
    ['Slot', (slot) => `${slot.slot}`, 'number'],
    ['State', coloured((slot) => slot.state.replace('_', ' '), (slot) => tone(slot.state))],
    ['Task', (slot) => slot.task ?? '–'],
    ['Job', jobCell((slot) => slot.job)],
    ['Running', (slot) => time(slot.running_us), 'number'],
    ['Progress', progressCell],
    ['Done', (slot) => count(slot.jobs_done), 'number'],
    ['Memory', (slot) => bytes(slot.rss_bytes), 'number'],
    ['Process', (slot) => `${slot.pid ?? '–'}`, 'number'],
    ['Ended', coloured((slot) => count(slot.restarts), (slot) => (slot.restarts ? 'warn' : 'quiet')), 'number'],
    ['Program', (slot) => slot.program],
  ], (slot) => slot.slot, 'There are no slots.'),
  jobs: new Table('jobs', [
    ['Job', jobCell((job) => job.job)],
    ['Task', (job) => job.task],
    ['State', coloured((job) => job.state, (job) => tone(job.state))],
    ['Age', (job) => time(job.age_us), 'number'],
    ['Attempts', (job) => `${job.attempts}`, 'number'],
    ['Input', (job) => bytes(job.input_bytes), 'number'],
    ['Client', (job) => job.client || '–'],
    ['Error', (job) => job.error ?? '', 'wide'],
  ], (job) => job.job, 'No jobs.'),
  dead: new Table('dead', [
    ['Job', jobCell((letter) => letter.job)],
    ['Task', (letter) => letter.task],
    ['Died', (letter) => `${time(letter.dead_for_us)} ago`, 'number'],
    ['Kept for', (letter) => time(letter.kept_for_us), 'number'],
    ['Attempts', (letter) => `${letter.attempts.length}`, 'number'],
    ['Error', (letter) => letter.error, 'wide'],
    ['', deadButtons],
  ], (letter) => letter.job, 'No job has died.'),
  ends: new Table('ends', [
    ['Ended', (end) => `${time(end.ago_us)} ago`, 'number'],
    ['Slot', (end) => `${end.slot}`, 'number'],
    ['Process', (end) => `${end.pid ?? '–'}`, 'number'],
    ['Program', (end) => end.program],
    ['Job', jobsCell((end) => (end.job ? [end.job] : end.batch_jobs))],
    ['How', (end) => (end.why ? `${end.how}: ${end.why}` : end.how), 'wide'],
  ], (end) => end.number, 'No worker has ended.'),
};

const plots = [
  new Plot('Jobs per second', [['done', ({ ok }) => ok, 'good'], ['failed', ({ failed: rate }) => rate, 'bad']], perSecond),
  new Plot('Time in all', [['p50', ({ p50 }) => p50, 'info'], ['p99', ({ p99 }) => p99, 'warn']], time, false),
  new Plot('Jobs now', [['busy slots', ({ busy }) => busy, 'info'], ['waiting', ({ waiting }) => waiting, 'warn']], (value) => count(value)),
  new Plot('Event loop', [['lag p99', ({ lag }) => lag, 'info']], time),
  new Plot('Workers', [['restarts', ({ restarts }) => restarts, 'bad']], (value) => count(value)),
];

function progressCell(slot, cell) {
  const [done, all] = slot.progress ?? [0, 0];
  let bar = cell.firstElementChild;
  if (!slot.progress || !all) return cell.replaceChildren('–');
  if (!bar) {
    bar = element('progress', { ariaLabel: 'Progress of the job' });
    cell.replaceChildren(bar);
  }
  return Object.assign(bar, { max: all, value: done });
}

function deadButtons(letter, cell) {
  if (cell.childElementCount) return;
  const retry = element('button', { type: 'button', textContent: 'Retry', onclick: () => retryDead(letter.job) });
  retry.disabled = !letter.has_input;
  if (retry.disabled) retry.title = 'Its input was not kept';
  cell.append(retry, ' ', sureButton('Drop', () => dropDead(letter.job)));
}

function showFigures(status, moment) {
  const { workers, queue, jobs, dead_letters: dead, wait_estimate: wait } = status;
  facts($('figures'), [
    ['Busy', `${workers.busy}`, workers.busy === workers.configured ? 'warn' : '', `of ${workers.configured} slots`],
    ['Waiting', count(queue.jobs), '', `of ${count(queue.max_jobs)}`],
    ['Expected wait', time(wait.now_us), '', 'of a new job'],
    ['Done', moment.ok === undefined ? '–' : perSecond(moment.ok), '', 'per second'],
    ['Failed', moment.failed === undefined ? '–' : perSecond(moment.failed), moment.failed ? 'bad' : '', 'per second'],
    ['Refused', count(jobs.rejected), '', 'in all'],
    ['Memory held', bytes(queue.bytes), '', `of ${bytes(queue.max_bytes)}`],
    ['Restarts', count(workers.restarts), '', 'in all'],
    ['Dead letters', count(dead.letters), dead.letters ? 'bad' : '', 'kept'],
  ]);
}

function taskRows(now) {
  return now.tasks.filter((task) => task.waiting || task.running || task.dead || Object.keys(task.ended).length).map((task) => {
    const { before, seconds } = lately(task);
    const ended = okOf(task.ended) + failuresOf(task.ended);
    const past = before ? okOf(before.ended) + failuresOf(before.ended) : 0;
    return {
      task, rate: seconds ? (ended - past) / seconds : null,
      wait: quantile(0.99, now.bounds_us, task.queued), run: quantile(0.5, now.bounds_us, task.run), total: quantile(0.99, now.bounds_us, task.total),
    };
  });
}

function showStatus(status, moment) {
  heard = Date.now();
  $('app').classList.remove('silent');
  badge($('state'), status.state, { running: 'good', stopped: 'bad' }[status.state] ?? 'warn');
  $('reason').textContent = status.reason ?? '';
  $('about').textContent = `${status.version}, process ${status.pid}, up ${time(status.uptime_s * 1e6)}`;
  document.title = `${status.workers.busy}/${status.workers.configured} · offload`;
  showFigures(status, moment);
}

function showNow(now) {
  const moment = remember(now);
  badge($('link'), 'live', 'good');
  $('trouble').textContent = '';
  showStatus(now.status, moment);
  plots.forEach((plot) => plot.draw());
  tables.tasks.show(taskRows(now));
  tables.slots.show(now.slots);
  tables.ends.show(now.ended_workers);
}

async function showJobs() {
  const which = $('which').value;
  const isShown = { '': () => true, live: (job) => isLive(job.state), failed: (job) => !isLive(job.state) && job.state !== 'ok' }[which];
  const [jobs, dead] = await Promise.all([json(`/v1/jobs?limit=${which ? 500 : JOBS_SHOWN}`), json(`/v1/dead?limit=${JOBS_SHOWN}`)]);
  tables.jobs.show(jobs.rows.filter(isShown).slice(0, JOBS_SHOWN));
  tables.dead.show(dead.rows);
}

/** The lists of jobs and dead letters, now and then again while somebody looks. */
async function refreshJobs() {
  clearTimeout(jobsTimer);
  const here = live;
  try {
    if (here && !document.hidden) await showJobs();
  } catch (error) {
    if (error.status === 401) return failed(error);
  }
  clearTimeout(jobsTimer);
  if (live === here && here) jobsTimer = setTimeout(refreshJobs, 2000);
  return null;
}

function failed(error) {
  if (error.status === 401) return signOut('This token is not the right one.');
  return notice(error.message || 'The supervisor does not answer.');
}

/** What is shown is not how it is: says since when. */
function showSilence() {
  badge($('link'), 'no connection', 'bad');
  badge($('state'), 'unknown', 'bad');
  $('reason').textContent = '';
  $('about').textContent = '';
  document.title = 'no connection · offload';
  $('app').classList.add('silent');
  $('trouble').textContent = heard
    ? `Nothing was heard of the supervisor since ${new Date(heard).toLocaleTimeString()}. Below is how it was then.`
    : 'Nothing was heard of the supervisor yet.';
}

/** Asks how it is, because the supervisor has refused to tell, for this reason. */
async function askInstead(refusal, signal) {
  const [status, workers] = await Promise.all([json('/v1/status', { signal }), json('/v1/workers', { signal })]);
  badge($('link'), `every ${ASK_EVERY / 1000} s`, 'warn');
  $('trouble').textContent = `This page is not told what happens, and asks every ${ASK_EVERY / 1000} s: ${refusal.message}`;
  showStatus(status, {});
  tables.slots.show(workers.rows);
}

/** Watches the supervisor until somebody signs out, and again after the connection was lost. */
async function watch() {
  const here = new AbortController();
  live = here;
  heard = null;
  let pause = 500;
  while (live === here) {
    try {
      await events('/v1/events', (_, now) => {
        pause = 500;
        if (now.status) showNow(now);
      }, here.signal).catch((error) => {
        if (!(error instanceof Refused) || error.status === 401) throw error;
        pause = ASK_EVERY;
        return askInstead(error, here.signal);
      });
    } catch (error) {
      if (live !== here) return;
      if (error.status === 401) return failed(error);
      showSilence();
    }
    if (live !== here) return;
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, ASK_EVERY);
  }
}

// A connection that is lost without a word stays open for long.
setInterval(() => { if (live && heard && Date.now() - heard > SILENCE) showSilence(); }, 1000);

function open() {
  $('sign-in').hidden = true;
  $('app').hidden = false;
  $('app').classList.remove('silent');
  $('trouble').textContent = '';
  badge($('link'), 'connecting', 'warn');
  watch();
  refreshJobs();
  loadOffers().catch(failed);
}

function signOut(hint) {
  live?.abort();
  live = null;
  clearTimeout(jobsTimer);
  wanted = null;
  leaveStory();
  if ($('story').open) $('story').close();
  token = '';
  sessionStorage.removeItem(KEPT);
  history.length = 0;
  $('app').hidden = true;
  $('sign-in').hidden = false;
  $('sign-in-hint').replaceChildren(...(hint ? [hint] : HINT));
  $('token').value = '';
  $('token').focus();
}

async function signIn(event) {
  event.preventDefault();
  notice();
  token = $('token').value.trim();
  if (/[^!-~]/.test(token)) return signOut('This is no token: a token has letters, digits and signs of ASCII, and no blank.');
  try {
    await json('/v1/status');
    sessionStorage.setItem(KEPT, token);
    $('token').value = '';
    return open();
  } catch (error) {
    return failed(error);
  }
}

$('sign-in').addEventListener('submit', signIn);
$('sign-out').addEventListener('click', () => signOut());
$('which').addEventListener('change', refreshJobs);
$('find').addEventListener('keydown', (event) => { if (event.key === 'Enter' && event.target.value.trim()) showStory(event.target.value.trim()); });
// It says so later: by then it may be open again.
$('story').addEventListener('close', () => $('story').open || leaveStory());
$('story-close').addEventListener('click', () => $('story').close());
$('story-cancel').addEventListener('click', () => story && cancelJob(story.id));
$('story-retry').addEventListener('click', () => story && retryDead(story.id));
$('call').addEventListener('submit', callTask);
$('call-task').addEventListener('change', chooseTask);
$('call-cancel').addEventListener('click', () => called?.job && cancelJob(called.job));
document.addEventListener('visibilitychange', () => document.hidden || refreshJobs());

// Over a Unix socket behind a proxy no token is needed: whoever may ask is let in at once.
json('/v1/status').then(open, () => signOut());
