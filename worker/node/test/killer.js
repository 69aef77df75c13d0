/** Kills workers while others use them. */

import { setTimeout as sleep } from 'node:timers/promises';

/** One that is starting is spared: on a busy machine it would be killed for ever. */
const isUp = (worker) => worker.state === 'idle' || worker.state === 'busy';

export class Killer {
  /** How many it has killed. */
  count = 0;
  #isStopped = false;

  /**
   * Kills a worker of the supervisor every 50 ms, one after another, until it has killed `most`: on a busy machine a worker that has
   * started does not live for 50 ms otherwise, and no job would end.
   * @param {import('../index.js').Client} client @param {number} [most]
   */
  constructor(client, most = 20) {
    this.most = most;
    this.done = this.#work(client);
  }

  async #work(client) {
    while (!this.#isStopped && this.count < this.most) {
      const victims = (await client.workers()).filter(isUp);
      if (victims.length > 0) this.#kill(victims[this.count % victims.length].pid);
      await sleep(50);
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
    await this.done;
  }
}
