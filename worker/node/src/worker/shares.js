/**
 * What jobs have used: time, and the CPU. Of jobs that run together, each has its share: what is used until one of them is answered falls
 * to all that were not answered before. So the shares together are what was used.
 */

/** What a job used, if nobody has asked: unknown. */
const UNKNOWN = Object.freeze({ cpu_user_us: 0, cpu_system_us: 0, peak_rss_bytes: 0 });

export class Shares {
  #startedAt = performance.now();
  #at = this.#startedAt;
  /** @type {NodeJS.ResourceUsage | undefined} */
  #usage;
  #unanswered;
  /** What falls to each job that is not answered, up to now. */
  #milliseconds = 0;
  #user = 0;
  #system = 0;

  /** @param {number} jobs */
  constructor(jobs) {
    this.#unanswered = jobs;
  }

  /** They begin now. @param {boolean} isMeasured whether it is asked what they use of the CPU. To ask twice takes some 7 us */
  begin(isMeasured) {
    this.#startedAt = performance.now();
    this.#at = this.#startedAt;
    if (isMeasured) this.#usage = process.resourceUsage();
  }

  /** For a job that is answered now: its share, as it is sent, and the milliseconds since all of them began. */
  take() {
    const now = performance.now();
    this.#milliseconds += (now - this.#at) / this.#unanswered;
    this.#at = now;
    const usage = this.#usage === undefined ? UNKNOWN : this.#used(this.#usage);
    this.#unanswered--;
    return { share: { run_ns: Math.round(this.#milliseconds * 1e6), usage }, elapsed: now - this.#startedAt };
  }

  /** @param {NodeJS.ResourceUsage} before */
  #used(before) {
    const now = process.resourceUsage();
    this.#usage = now;
    this.#user += (now.userCPUTime - before.userCPUTime) / this.#unanswered;
    this.#system += (now.systemCPUTime - before.systemCPUTime) / this.#unanswered;
    return { cpu_user_us: Math.floor(this.#user), cpu_system_us: Math.floor(this.#system), peak_rss_bytes: now.maxRSS * 1024 };
  }
}
