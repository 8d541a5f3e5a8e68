import { createClient } from '@redis/client';
import { within } from '../../base/abort.ts';
import { EnvdError, messageOf } from '../../base/errors.ts';
import type { Locate } from './redis-link.ts';

/** How long one of those who are asked may take to answer, in ms. */
const LIMIT_MS = 1000;

/** A command, and its reply. */
export type Ask = (...command: readonly string[]) => Promise<unknown>;

/** What one of those who are asked says of the server that takes writes. */
export interface WitnessAnswer {
  readonly address: readonly [host: string, port: string];
  /** It is alive, and no other one is being put in its place. */
  readonly isSettled: boolean;
}

export interface Witnesses {
  /** What one of them is called. */
  readonly word: string;
  /** URLs. */
  readonly urls: readonly string[];
  /** Throws what one of them has to complain of. */
  tell(ask: Ask, url: string): Promise<WitnessAnswer>;
}

/**
 * Asks where the server is that takes writes. More than half must tell, and all who do must agree: a server that is
 * back while another one is put in its place would take changes, which are lost.
 *
 * @param url with another host and port, that of the server
 */
export function agreedServer(url: string, { word, urls, tell }: Witnesses): Locate {
  return async () => {
    const reasons: string[] = [];
    const answers = await Promise.all(
      urls.map((witness) =>
        within(LIMIT_MS, askOne(witness, tell), late).catch((error: unknown) => {
          reasons.push(`${new URL(witness).host}: ${messageOf(error)}`);
          return null;
        }),
      ),
    );
    const told = answers.filter((answer) => answer !== null);
    const [first] = told;
    if (!first || 2 * told.length <= urls.length) {
      const who = first ? `only ${told.length} of ${urls.length} ${word}s tell` : `no ${word} tells`;
      throw new EnvdError('unavailable', `${who} where the registry is: ${reasons.join('; ')}`);
    }
    const isAgreed = told.every(
      ({ address, isSettled }) => isSettled && address.join() === first.address.join(),
    );
    if (!isAgreed)
      throw new EnvdError('unavailable', `the ${word}s are not agreed on which server has the registry`);
    return withHost(url, first.address);
  };
}

async function askOne(url: string, tell: Witnesses['tell']): Promise<WitnessAnswer> {
  const client = createClient({
    url,
    disableOfflineQueue: true,
    socket: { connectTimeout: LIMIT_MS, socketTimeout: LIMIT_MS, reconnectStrategy: false },
  });
  // The promises tell the same error; without a listener it would be uncaught.
  client.on('error', () => {});
  try {
    await client.connect();
    return await tell((...command) => client.sendCommand(command), url);
  } finally {
    if (client.isOpen) client.destroy();
  }
}

/** `url` with another host, which may be an IPv6 address, and another port. */
export function withHost(url: string, [host, port]: readonly [string, string]): string {
  const located = new URL(url);
  located.hostname = host.includes(':') ? `[${host.replace(/^\[|\]$/g, '')}]` : host;
  located.port = port;
  return located.href;
}

function late(): never {
  throw new Error(`no answer within ${LIMIT_MS} ms`);
}
