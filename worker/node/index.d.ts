/** Bytes with a media type of their own: an input of a call, or an output of a task. */
export class Payload {
  constructor(bytes: Uint8Array | ArrayBuffer | string, contentType: string);
  readonly bytes: Uint8Array;
  readonly contentType: string;
}

/** The job that a task runs for. */
export interface JobContext<State = any> {
  /** The supervisor's number for the job, the same in each of its attempts. */
  readonly job: number | bigint;
  /** Counted from 1. */
  readonly attempt: number;
  readonly metadata: Record<string, string>;
  /** The media type of the input. */
  readonly contentType: string;
  /** Milliseconds until the supervisor ends this attempt; `Infinity` if there is no limit. */
  readonly remaining: number;
  /** Whether nobody wants the output any more. */
  readonly cancelled: boolean;
  /** Aborted when nobody wants the output any more. */
  readonly signal: AbortSignal;
  /** What `setUp` returned. */
  readonly state: State;
  /** The last checkpoint of an earlier attempt. */
  readonly resumed: Buffer | undefined;
  /** Says that `done` of `total` units of work are done; 0 if the total is unknown. */
  progress(done: number, total?: number): void;
  /** Prints a line for the supervisor's log. */
  log(...values: unknown[]): void;
  /** Saves a state of at most 65,536 bytes. Throws a RangeError if it is longer. */
  checkpoint(state: Uint8Array | string): void;
  /** Sends a part of the output. Rejected with an `AbortError` if nobody wants it any more. */
  write(part: Uint8Array | string): Promise<void>;
}

export type Run<State = any> = (input: any, ctx: JobContext<State>) => unknown;

export interface TaskDefinition<State = any> {
  run: Run<State>;
  idempotent?: boolean;
  accepts?: string | string[];
  produces?: string;
  /** At most 256 bytes. */
  description?: string;
  schema?: unknown;
  example?: unknown;
  checkpoints?: boolean;
  /** Milliseconds. */
  progressEvery?: number;
  streams?: boolean;
  /** Bytes. */
  memory?: number;
  exclusive?: boolean;
}

/** Serves the supervisor that started this program; the process exits when that has no more jobs for it, or is gone. */
export function serve<State = any>(options: {
  tasks: Record<string, Run<State> | TaskDefinition<State>>;
  setUp?: () => State | Promise<State>;
}): void;
