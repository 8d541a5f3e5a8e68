import { createClient } from '@redis/client';
import { within } from '../../base/abort.ts';
import { EnvdError, messageOf } from '../../base/errors.ts';
import type { Locate } from './redis-link.ts';

/** A witness must answer within this time, in ms. */
const LIMIT_MS = 1000;

/** Sends a command to a witness and resolves with the reply. */
export type Ask = (...command: readonly string[]) => Promise<unknown>;

/** The answer of one witness about the server that accepts writes. */
export interface WitnessAnswer {
  readonly address: readonly [host: string, port: string];
  /** If true, the server is alive and no other one is replacing it. */
  readonly isSettled: boolean;
}

/** The Sentinels or nodes that know which server accepts writes. */
export interface Witnesses {
  /** Messages call a witness by this word. */
  readonly word: string;
  readonly urls: readonly string[];
  /** Asks the witness at `url`. Throws when it has no usable answer. */
  tell(ask: Ask, url: string): Promise<WitnessAnswer>;
}

/**
 * Returns a function that finds the server that accepts writes. More than half of the witnesses must answer, and all answers
 * must agree. Otherwise a server that comes back while another one replaces it could accept changes, which would be lost. The
 * function throws `unavailable`.
 *
 * @param url the URL of the server is this one, with another host and port
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
      const who = first ? `only ${told.length} of ${urls.length} ${word}s say` : `no ${word} says`;
      throw new EnvdError('unavailable', `${who} where the registry is: ${reasons.join('; ')}`);
    }
    const isAgreed = told.every(
      ({ address, isSettled }) => isSettled && address.join() === first.address.join(),
    );
    if (!isAgreed)
      throw new EnvdError(
        'unavailable',
        `the ${word}s do not agree on which server has the registry: a failover may be under way`,
      );
    return withHost(url, first.address);
  };
}

async function askOne(url: string, tell: Witnesses['tell']): Promise<WitnessAnswer> {
  const client = createClient({
    url,
    disableOfflineQueue: true,
    socket: { connectTimeout: LIMIT_MS, socketTimeout: LIMIT_MS, reconnectStrategy: false },
  });
  // The promises reject with the same error. Without a listener it would also be uncaught.
  client.on('error', () => {});
  try {
    await client.connect();
    return await tell((...command) => client.sendCommand(command), url);
  } finally {
    if (client.isOpen) client.destroy();
  }
}

/** Returns `url` with another host, which may be an IPv6 address, and another port. */
export function withHost(url: string, [host, port]: readonly [string, string]): string {
  const located = new URL(url);
  located.hostname = host.includes(':') ? `[${host.replace(/^\[|\]$/g, '')}]` : host;
  located.port = port;
  return located.href;
}

function late(): never {
  throw new Error(`no answer within ${LIMIT_MS} ms`);
}
