/**
 * Listens to the signals of calls. However many calls share a signal, it has one listener: Node warns of more than ten.
 */

/** @type {WeakMap<AbortSignal, { callbacks: Set<() => void>, tell: () => void }>} */
const shared = new WeakMap();

/**
 * Calls `onAbort` when the signal is aborted, once, unless `forget` is called before.
 * @param {AbortSignal} signal @param {() => void} onAbort
 */
export function listen(signal, onAbort) {
  const listener = shared.get(signal) ?? share(signal);
  listener.callbacks.add(onAbort);
}

/** @param {AbortSignal} signal @param {() => void} onAbort */
export function forget(signal, onAbort) {
  const listener = shared.get(signal);
  if (listener === undefined || !listener.callbacks.delete(onAbort) || listener.callbacks.size > 0) return;
  signal.removeEventListener('abort', listener.tell);
  shared.delete(signal);
}

/** @param {AbortSignal} signal */
function share(signal) {
  /** @type {Set<() => void>} */
  const callbacks = new Set();
  // Each is forgotten at the latest when it is called, and one that is forgotten meanwhile is not called. One that throws costs no other.
  const tell = () => {
    for (const onAbort of callbacks) {
      callbacks.delete(onAbort);
      try {
        onAbort();
      } catch (error) {
        process.nextTick(() => {
          throw error; // as what a listener throws
        });
      }
    }
  };
  signal.addEventListener('abort', tell, { once: true });
  const listener = { callbacks, tell };
  shared.set(signal, listener);
  return listener;
}
