/** A call that failed. */
export class CallError extends Error {
  override readonly name = 'CallError';
  /** The code of Connect, the status of a REST call, or `network`. */
  readonly code: string;
  readonly status: number;

  constructor(code: string, message: string, status = 0) {
    super(message);
    this.code = code;
    this.status = status;
  }

  /** Whether the daemon may answer again later: a broken connection, one that stops, and one that has dropped a slow reader. */
  get isLost(): boolean {
    return (
      ['network', 'unavailable', 'aborted', 'resource_exhausted'].includes(this.code) || this.status === 502
    );
  }

  /** Whether the daemon may have done what was asked, though it has not said so. */
  get mayHaveArrived(): boolean {
    return this.code === 'network' || (this.status === 502 && this.code !== 'unavailable');
  }

  /** Whether the console itself knows this page no more. */
  get isEnded(): boolean {
    return this.code === 'unauthenticated' && /session/.test(this.message);
  }
}

const MAX_TEXT = 500;

/** The error that an answer tells. */
export async function errorOfResponse(response: Response): Promise<CallError> {
  const text = await response.text().catch(() => '');
  return errorOfText(text, response.status);
}

/** The error in the body of an answer, or a description of its status. */
export function errorOfText(text: string, status: number): CallError {
  const { code, message } = objectIn(text);
  const told =
    typeof message === 'string' && message !== '' ? message : `the answer has the status ${status}`;
  return new CallError(typeof code === 'string' ? code : String(status), told.slice(0, MAX_TEXT), status);
}

/** What a thrown value means to the user. */
export function callErrorOf(error: unknown): CallError {
  if (error instanceof CallError) return error;
  const { name = '', message = String(error) } = error instanceof Error ? error : {};
  if (name === 'TimeoutError') return new CallError('network', 'there was no answer in time');
  // Browsers tell a broken connection so, before and within an answer.
  if (name === 'TypeError' || name === 'AbortError')
    return new CallError('network', 'the connection was lost');
  return new CallError('internal', message);
}

function objectIn(text: string): { readonly code?: unknown; readonly message?: unknown } {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}
