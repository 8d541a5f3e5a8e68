import { CallError, callErrorOf, errorOfResponse } from './call-error.ts';
import { partsOfFragment } from './fragment.ts';
import { StreamLanes } from './lanes.ts';

/** What the console says of itself. */
export interface About {
  readonly name: string;
  readonly version: string;
  readonly hasGateway: boolean;
  /** The sandbox that the console was started for; null: the daemon is not behind a gateway, or none was named. */
  readonly sandbox: string | null;
  readonly gatewayUrl: string | null;
  readonly streams: readonly string[];
}

/** A page of a list as it came. */
interface SandboxPage {
  readonly items: unknown;
  readonly next: string | null;
  readonly sentAt: number;
}

export type Query = Readonly<Record<string, string | undefined>>;

/** The console that has served this page. */
export class ConsoleClient {
  readonly about: About;
  readonly lanes: StreamLanes;
  readonly #session: string;

  constructor(session: string, about: About) {
    this.#session = session;
    this.about = about;
    this.lanes = new StreamLanes(about.streams);
  }

  get sessionHeader(): Readonly<Record<string, string>> {
    return { 'x-console-session': this.#session };
  }

  /** The answer to a request of this page. Throws `CallError`, also for a status that is no success. */
  async send(url: string, init: RequestInit): Promise<Response> {
    const headers = { ...this.sessionHeader, ...(init.headers as Record<string, string> | undefined) };
    const response = await fetch(url, { cache: 'no-store', credentials: 'omit', ...init, headers }).catch(
      (error: unknown) => {
        throw callErrorOf(error);
      },
    );
    if (!response.ok) throw await errorOfResponse(response);
    return response;
  }

  /** The JSON of an answer; null when it has none. Throws `CallError`. */
  async json(method: string, path: string, body?: object): Promise<unknown> {
    const response = await this.send(path, {
      method,
      ...(body && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
      signal: AbortSignal.timeout(60_000),
    });
    const text = await response.text();
    return text === '' ? null : JSON.parse(text);
  }

  /** A page of the list of a gateway's sandboxes, with the time by the clock of the gateway, in milliseconds, or NaN. */
  async listPage(query: string): Promise<SandboxPage> {
    const response = await this.send(`/gateway/sandboxes?${query}`, { signal: AbortSignal.timeout(20_000) });
    const { headers } = response;
    const sentAt = Date.parse(headers.get('date') ?? '');
    return { items: await response.json(), next: headers.get('x-next-token'), sentAt };
  }

  /** A link to this console for another window, which opens where this one is. */
  async newLink(): Promise<string> {
    const { secret } = (await this.json('POST', '/links')) as { secret: string };
    return `${location.origin}/#${secret}${partsOfFragment(location.hash).place}`;
  }
}

const STORED = 'session';

/**
 * The console by the secret in the fragment of the address, or by the session that this tab has stored. Storage of a tab belongs to
 * this port alone, unlike a cookie, which a browser sends to each port of the address. Throws `CallError`.
 */
export async function openConsole(): Promise<ConsoleClient> {
  const { secret, place } = partsOfFragment(location.hash);
  if (secret !== '') {
    history.replaceState(null, '', place === '' ? '/' : `/#${place}`);
    const response = await fetch('/session', { method: 'POST', body: JSON.stringify({ secret }) });
    if (response.ok) {
      const { session, about } = (await response.json()) as { session: string; about: About };
      sessionStorage.setItem(STORED, session);
      return new ConsoleClient(session, about);
    }
    if (sessionStorage.getItem(STORED) === null) throw await errorOfResponse(response);
  }
  const session = sessionStorage.getItem(STORED);
  if (session === null) throw new CallError('unauthenticated', 'this window has no session');
  const response = await fetch('/about', { headers: { 'x-console-session': session } });
  if (!response.ok) throw await errorOfResponse(response);
  return new ConsoleClient(session, (await response.json()) as About);
}
