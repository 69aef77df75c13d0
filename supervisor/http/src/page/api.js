// The token, requests, and server-sent events. The token is kept for this tab alone, and goes only into a header.
const KEPT = 'offload-token';
let token = sessionStorage.getItem(KEPT) ?? '';

/** A request that is refused. Its message is what the supervisor says. */
class Refused extends Error {
  constructor(problem, status) {
    super(problem.detail || problem.title || `status ${status}`);
    this.status = status;
  }
}

/** No answer came, or the rest of one did not. */
function unanswered(error) {
  throw error.name === 'AbortError' ? error : new Error('The supervisor does not answer.');
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(path, { ...options, headers, cache: 'no-store', redirect: 'error' }).catch(unanswered);
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Refused(problem, response.status);
  }
  return response;
}

const json = async (path, options) => (await ask(path, options)).json();

/** Calls `tell(name, data)` for each event, until the stream ends. */
async function events(path, tell, signal) {
  const response = await ask(path, { headers: { Accept: 'text/event-stream' }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read().catch(unanswered);
    if (done) return;
    const whole = (rest + value).split('\n\n');
    rest = whole.pop();
    for (const event of whole) {
      const field = (name) => event.split('\n').find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field('data');
      if (data !== undefined) tell(field('event'), JSON.parse(data));
    }
  }
}

const jobPath = (id, rest = '') => `/v1/jobs/${encodeURIComponent(id)}${rest}`;
const deadPath = (id, rest = '') => `/v1/dead/${encodeURIComponent(id)}${rest}`;
