// The story of one job, and calling a task.
let story = null;
// What was asked for last. Until there is an answer, the story before it is told.
let wanted = null;

const isLive = (state) => ['parked', 'queued', 'paused', 'held', 'assigned', 'running'].includes(state);

function showProgress(target, progress, live) {
  target.hidden = !live || !progress;
  if (!progress) return;
  const [done, all] = progress;
  if (all) Object.assign(target, { max: all, value: done });
  else target.removeAttribute('value');
}

/** Follows a job: calls `tell` with each of its states, the last one too. */
const follow = (id, tell, signal) => events(jobPath(id, '/events'), (_, job) => tell(job), signal);

async function showStory(id) {
  const here = { id, leave: new AbortController(), shown: '', isFromStory: $('story').open };
  wanted = here;
  try {
    const job = await json(jobPath(id));
    if (!isWanted(here)) return;
    leaveStory();
    story = here;
    $('story-title').textContent = id;
    $('story-output').replaceChildren();
    tellStory(here, job);
    if (!$('story').open) $('story').showModal();
    $(isLive(here.state) ? 'story-cancel' : 'story-close').focus();
    if (isLive(here.state)) await follow(id, (state) => tellStory(here, state), here.leave.signal);
  } catch (error) {
    if (!here.leave.signal.aborted && isWanted(here)) failed(error);
  }
}

/** Whoever asked in a story and has closed it since does not want another one. */
const isWanted = (here) => wanted === here && (!here.isFromStory || $('story').open);

function tellStory(here, job) {
  if (story !== here || !job.task) return;
  here.state = job.state;
  const live = isLive(job.state);
  badge($('story-state'), job.state);
  $('story-cancel').disabled = !live;
  if (live) $('story-retry').hidden = true;
  else askWhetherRetryable(here, job);
  facts($('story-facts'), [
    ['Task', job.task], ['Client', job.client], ['Labels', (job.labels ?? []).join(', ')],
    [live ? 'Since' : 'Took', time(job.age_us)],
    ['Attempts', job.attempts_allowed ? `${job.attempts} of ${job.attempts_allowed}` : job.attempts],
    ['Slot', job.slot], ['Process', job.worker_pid],
    ['Expected wait', live && job.expected_wait_us !== null ? time(job.expected_wait_us) : ''], ['Before it', job.ahead],
    ['Waited', job.receipt && time(job.receipt.queued_us)], ['Ran', job.receipt && time(job.receipt.run_us)],
    ['Input', job.receipt && bytes(job.receipt.input_bytes)], ['Output', job.receipt && bytes(job.receipt.output_bytes)],
    ['Checkpoint', job.checkpoint_bytes ? bytes(job.checkpoint_bytes) : ''],
  ]);
  $('story-reasons').replaceChildren(...(job.reasons ?? []).map((textContent) => element('li', { textContent })));
  showProgress($('story-progress'), job.progress, live);
  showAttempts(job.lost ?? []);
  const output = job.output_location;
  if (output && here.shown !== output) {
    here.shown = output;
    ask(output).then((response) => (story === here ? showOutput($('story-output'), response) : null)).catch(() => {});
  }
}

/** Of a job that has died, the supervisor knows whether it can be tried again. */
function askWhetherRetryable(here, { state }) {
  if (here.asked) return;
  here.asked = true;
  $('story-retry').hidden = true;
  if (state !== 'poison') return;
  const show = (letter) => { if (story === here) $('story-retry').hidden = !letter.has_input; };
  json(deadPath(here.id)).then(show).catch(() => {});
}

function showAttempts(lost) {
  $('story-attempts').replaceChildren(...lost.map((attempt) => element('div', { className: 'attempt' },
    element('b', { textContent: attempt.attempt ? `Attempt ${attempt.attempt}: ` : 'Before its start: ' }),
    `${attempt.what}, after ${time(attempt.ran_us)}${attempt.slot === null ? '' : `, slot ${attempt.slot}`}, process ${attempt.worker_pid}`,
    ...(attempt.last_lines.length ? [element('pre', { textContent: attempt.last_lines.join('\n') })] : []))));
}

function leaveStory() {
  story?.leave.abort();
  story = null;
}

async function cancelJob(id) {
  try {
    const { cancelled } = await json(jobPath(id), { method: 'DELETE' });
    notice(cancelled ? `Job ${id} is cancelled.` : `Job ${id} had ended already.`);
    refreshJobs();
  } catch (error) {
    failed(error);
  }
}

async function retryDead(id) {
  try {
    const { job } = await json(deadPath(id, '/retry'), { method: 'POST' });
    notice(`It runs again as job ${job}.`);
    refreshJobs();
    if (story) showStory(job);
  } catch (error) {
    failed(error);
  }
}

async function dropDead(id) {
  try {
    await ask(deadPath(id), { method: 'DELETE' });
    refreshJobs();
  } catch (error) {
    failed(error);
  }
}

/** A button that has to be pressed twice, in whatever time, before the focus or the mouse leaves it. A finger leaves it each time. */
function sureButton(textContent, act) {
  const button = element('button', { type: 'button', textContent });
  const calm = () => { button.textContent = textContent; };
  button.onclick = () => {
    const isSure = button.textContent !== textContent;
    button.textContent = isSure ? textContent : 'Really?';
    return isSure ? act() : null;
  };
  return Object.assign(button, { onblur: calm, onmouseleave: calm });
}

// Calling a task.
let offers = [];
let called = null;

async function loadOffers() {
  offers = await json('/v1/tasks');
  const chosen = $('call-task').value;
  $('call-task').replaceChildren(...offers.map(({ name }) => element('option', { value: name, textContent: name })));
  if (offers.some(({ name }) => name === chosen)) $('call-task').value = chosen;
  else chooseTask();
}

function chooseTask() {
  const offer = offers.find(({ name }) => name === $('call-task').value);
  if (!offer) return;
  const takes = offer.accepts.join(', ') || 'anything';
  $('call-about').textContent = `${offer.description ? `${offer.description}. ` : ''}Takes ${takes}, gives ${offer.produces}.`;
  $('call-input').value = offer.example ?? '';
}

/** What is sent, and as what. */
function callBody() {
  const [file] = $('call-file').files;
  if (file) return [file, file.type || 'application/octet-stream'];
  const offer = offers.find(({ name }) => name === $('call-task').value);
  const type = offer?.accepts.find((each) => !each.includes('*')) ?? 'text/plain; charset=utf-8';
  return [$('call-input').value, type];
}

async function callTask(event) {
  event.preventDefault();
  called?.leave.abort();
  const here = { leave: new AbortController() };
  called = here;
  $('call-output').replaceChildren();
  $('call-state').textContent = 'sending';
  $('call-state').className = 'quiet';
  try {
    const [body, type] = callBody();
    const { job } = await json(`/v1/tasks/${encodeURIComponent($('call-task').value)}`,
      { method: 'POST', body, headers: { 'Content-Type': type, Prefer: 'respond-async' } });
    if (called !== here) return;
    here.job = job;
    refreshJobs();
    await follow(job, (state) => tellCall(here, state), here.leave.signal);
  } catch (error) {
    if (called !== here || here.leave.signal.aborted) return;
    tellCall(here, { state: 'refused', error: { message: error.message } });
    if (error.status === 401) failed(error);
  }
}

function tellCall(here, job) {
  if (called !== here) return;
  const live = isLive(job.state);
  $('call-state').textContent = job.error ? `${job.state}: ${job.error.message}` : job.state;
  $('call-state').className = tone(job.state);
  $('call-cancel').disabled = !live;
  showProgress($('call-progress'), job.progress, live);
  if (!live) refreshJobs();
  const output = job.output_location;
  if (output) ask(output).then((response) => (called === here ? showOutput($('call-output'), response) : null)).catch(failed);
}
