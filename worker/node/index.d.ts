/** What has bytes. */
export type Bytes = ArrayBufferView | ArrayBuffer | SharedArrayBuffer;

/** Bytes with a media type of their own: an input of a call, or an output of a task. */
export class Payload {
  /** Throws a TypeError if they are neither bytes nor a string. */
  constructor(bytes: Bytes | string, contentType: string);
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
  /** Says that `done` of `total` units of work are done; 0 if the total is unknown. What is no finite number from 0 on is not reported. */
  progress(done: number | bigint, total?: number | bigint): void;
  /** Prints a line for the supervisor's log. */
  log(...values: unknown[]): void;
  /** Saves a state of at most 65,536 bytes. Throws a RangeError if it is longer. */
  checkpoint(state: Bytes | string): void;
  /**
   * Sends a copy of a part of the output, behind those of earlier calls. Rejected with an `AbortError` if nobody wants it any more. A part
   * that cannot be sent is the job's error.
   */
  write(part: Bytes | Payload | string): Promise<void>;
}

export type Run<State = any> = (input: any, ctx: JobContext<State>) => unknown;

export interface TaskDefinition<State = any> {
  run?: Run<State>;
  /**
   * In place of `run`: as many results as inputs, or promises of them. One that is an `Error` or is rejected is that job's error, and each
   * job is answered when its own is settled.
   */
  runBatch?: (inputs: any[], ctxs: JobContext<State>[]) => unknown[] | Promise<unknown[]>;
  /** Most jobs (2 to 32), and for how many milliseconds the first one waits for others (0 to 1,000). */
  batch?: { max?: number; wait?: number };
  idempotent?: boolean;
  accepts?: string | readonly string[];
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
  setUp?: (() => State | Promise<State>) | null;
}): void;

export interface CallOptions {
  /** Milliseconds that one attempt may run. */
  timeout?: number;
  /** Milliseconds from the call until nobody wants the output any more, waiting included. A job that has not been sent by then is not sent. */
  deadline?: number;
  /** -10 to 10. */
  priority?: number;
  /** 1 to 100. */
  attempts?: number;
  /** 1 to 64 bytes. */
  idempotencyKey?: string;
  metadata?: Readonly<Record<string, string>> | ReadonlyMap<string, string>;
  labels?: readonly string[];
  /** The media type of an input that is bytes or a string; of any other value one of JSON or text. A `Payload` has its own, and no other beside it. */
  contentType?: string;
  /** Cancels the job, but for one with a key, which may be that of others. The memory of the input is the caller's own again at once. */
  signal?: AbortSignal | null;
}

/** Nothing of a stream is kept, so it has no `idempotencyKey`. */
export type StreamOptions = Omit<CallOptions, 'idempotencyKey'>;

/** Where the time of a job went, in microseconds, and where it ran. */
export interface Receipt {
  queued_us: number;
  run_us: number;
  returned_us: number;
  worker_pid: number;
  slot: number;
  incarnation: number;
  input_bytes: number;
  output_bytes: number;
  usage: { cpu_user_us: number; cpu_system_us: number; peak_rss_bytes: number };
}

export interface Result<Output = any> {
  output: Output;
  bytes: Buffer;
  contentType: string;
  job: string;
  attempts: number;
  receipt: Receipt;
}

export interface ClientOptions {
  socket?: string | null;
  name?: string;
  /** Calls that the supervisor has at a time: 256 unless set. */
  maxInFlight?: number;
  /**
   * Streams that are open at a time: 256 unless set. Each has a connection of its own. A loop over a stream must not wait for another one of
   * the same client once that many are open.
   */
  maxStreams?: number;
  /** Calls that wait, and as many streams: 100,000 unless set. Any more are rejected as `overloaded`. */
  maxWaiting?: number;
}

/** A client of a running supervisor. */
export class Client {
  constructor(options?: ClientOptions);
  readonly socket: string;
  /** Rejected with `JobError`, `Rejected`, `ConnectionError`, `OutputError`, the reason of the signal, or a TypeError. */
  call<Output = any>(task: string, input?: unknown, options?: CallOptions): Promise<Output>;
  run<Output = any>(task: string, input?: unknown, options?: CallOptions): Promise<Result<Output>>;
  /** The parts of the output as they come. To leave the loop is to cancel the job. It may wait until fewer than `maxStreams` are open. */
  stream(task: string, input?: unknown, options?: StreamOptions): AsyncGenerator<Buffer, void, void>;
  cancel(job: string): Promise<any>;
  status(): Promise<any>;
  tasks(): Promise<any[]>;
  workers(): Promise<any[]>;
  drain(): Promise<any>;
  /** Resolved when no call and no stream is left. */
  idle(): Promise<void>;
  close(): void | Promise<void>;
}

export interface PoolOptions extends Omit<ClientOptions, 'socket'> {
  /** A module, which this same Node runs; a command line; or its words. The built-in tasks unless set. */
  worker?: URL | string | readonly string[];
  workers?: number;
  /** The path of `offload`. */
  program?: string;
  /** Further flags of `offload serve`. */
  flags?: readonly string[];
  /** Where the supervisor's log goes: to standard error unless set, nowhere, or to a descriptor. */
  log?: 'inherit' | 'ignore' | number;
}

/** A client with a supervisor of its own, which ends with the program. */
export class Pool extends Client {
  constructor(options?: PoolOptions);
  /** Resolved when the first worker can take jobs. */
  ready(): Promise<void>;
  /** Waits until the calls that were made have ended, and ends the supervisor. Takes no more of them. */
  close(): Promise<void>;
  /** Ends the supervisor at once. */
  end(): Promise<void>;
}

/** The job did not end well, or nobody knows how it ended, or it was not sent before its deadline (`timeout`, without a job's ID). */
export class JobError extends Error {
  /** Without an `error`, the outcome is the code. */
  constructor(report: {
    outcome: string;
    error?: { code: string; message: string; signal: number | null; exit_code: number | null } | null;
    attempts: number;
    job: string;
  });
  readonly outcome: string;
  readonly code: string;
  readonly signal: number | null;
  readonly exitCode: number | null;
  readonly attempts: number;
  /** Its ID; empty if it is not known. */
  readonly job: string;
}

/** The request had no effect. */
export class Rejected extends Error {
  constructor(code: string, message: string, retryAfter?: number | null);
  readonly code: string;
  /** Milliseconds, or null if trying again is of no use now. */
  readonly retryAfter: number | null;
}

/** The job ended well, but its output is not what its media type says. */
export class OutputError extends SyntaxError {
  constructor(cause: Error, result: { bytes: Buffer; contentType: string; job: string; attempts: number; receipt: Receipt });
  /** The output. */
  readonly bytes: Buffer;
  readonly contentType: string;
  readonly job: string;
  readonly attempts: number;
  readonly receipt: Receipt;
}

/**
 * For tasks to throw: the job ends as `app_error` with exactly this message, and everybody who called the task is told it, also over a
 * route of HTTP that needs no token.
 */
export class TaskError extends Error {}

/** There is no connection to a supervisor, so no job was submitted. A `cancel` or `drain` may have been read before it was lost. */
export class ConnectionError extends Error {
  constructor(code: string, message: string);
  /** `no_supervisor`, `overloaded`, `unsupported`, `forbidden`, `io_error`, `protocol`, `closed`, or why the supervisor says good-bye. */
  readonly code: string;
}
