import type { HttpClient } from '../../connection/http.ts';
import { Failure } from '../../output/failure.ts';

/** At most this many pages of a list are read. */
const MAX_PAGES = 1000;
/** A page has at most this many sandboxes. */
const PAGE = '1000';

/** These members of a sandbox are shown. */
export interface SandboxLine {
  readonly id: string;
  readonly state: string;
  readonly phase: string;
  readonly address: string;
  readonly startedAt: string | null;
  readonly endAt: string | null;
  readonly secondsLeft: number | null;
  readonly metadata: unknown;
}

/** Returns all sandboxes of a gateway, or those of a state. Throws `Failure`. */
export async function listSandboxes(gateway: HttpClient, state: string | undefined): Promise<SandboxLine[]> {
  const sandboxes: SandboxLine[] = [];
  let nextToken: string | undefined;
  for (let page = 0; page < MAX_PAGES; page++) {
    const query = { state, limit: PAGE, nextToken };
    const { body, headers } = await gateway.answer({ path: '/sandboxes', query });
    if (!Array.isArray(body))
      throw new Failure('failed', 'the gateway answered with something that is no list');
    sandboxes.push(...body.map(readSandboxLine));
    const next = headers['x-next-token'];
    if (typeof next !== 'string' || next === '') break;
    nextToken = next;
  }
  return sandboxes;
}

/** Reads a sandbox from an answer, in which a gateway of another make may omit members. */
export function readSandboxLine(value: unknown): SandboxLine {
  const told = (value ?? {}) as Readonly<Record<string, unknown>>;
  const text = (name: string) => (typeof told[name] === 'string' ? (told[name] as string) : null);
  const endAt = text('endAt');
  const end = Date.parse(endAt ?? '');
  const [address, port] = [text('address'), told.port];
  return {
    id: text('sandboxID') ?? '',
    state: text('state') ?? '',
    phase: text('phase') ?? '',
    address: address === null ? '-' : `${address}${typeof port === 'number' ? `:${port}` : ''}`,
    startedAt: text('startedAt'),
    endAt,
    secondsLeft: Number.isNaN(end) ? null : Math.max(0, Math.round((end - Date.now()) / 1000)),
    metadata: told.metadata ?? {},
  };
}
