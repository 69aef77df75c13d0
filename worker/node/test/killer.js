/** Kills workers while others use them. */

import { within } from './within.js';

/** One that is starting is spared: on a busy machine it would be killed for ever. */
const isUp = (worker) => worker.state === 'idle' || worker.state === 'busy';

export class Killer {
  /** How many it has killed. */
  count = 0;
  #isStopped = false;

  /**
   * Kills the workers of the supervisor in turn, until it has killed `most`. Between two kills a job ends well: on a busy machine no
   * worker would live for long enough otherwise.
   * @param {import('../index.js').Client} client @param {number} [most]
   */
  constructor(client, most = 20) {
    this.most = most;
    this.done = this.#work(client);
    this.done.catch(() => {}); // who stops it is told
  }

  async #work(client) {
    while (!this.#isStopped && this.count < this.most) {
      const victims = (await client.workers()).filter(isUp);
      if (victims.length === 0) continue;
      const { jobs } = await client.status();
      this.#kill(victims[this.count % victims.length].pid);
      while (!this.#isStopped && (await client.status()).jobs.ok === jobs.ok);
    }
  }

  #kill(pid) {
    try {
      process.kill(pid, 'SIGKILL');
      this.count++;
    } catch (error) {
      if (error.code !== 'ESRCH') throw error; // it has crashed meanwhile
    }
  }

  async stop() {
    this.#isStopped = true;
    await within('the end of the killer', this.done);
  }
}
