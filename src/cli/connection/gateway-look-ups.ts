import { Failure } from '../output/failure.ts';
import type { ConnectionSettings } from './contexts.ts';
import { gatewayOf, keyHeader } from './endpoint.ts';
import { HttpClient } from './http.ts';

/** A gateway may be silent for this time, in milliseconds. */
const SILENCE_MS = 10_000;

/** Returns a client for the gateway that the settings name. Throws `Failure`. */
export function gatewayClient(settings: ConnectionSettings): HttpClient {
  const gateway = gatewayOf(settings);
  return new HttpClient(gateway.url, `the gateway ${gateway.url}`, keyHeader(gateway));
}

/**
 * Adds what a gateway tells to settings that name a sandbox of it: the token of the sandbox, if there is a key, and the prefix of
 * the headers. Throws `Failure`.
 */
export async function lookUp(settings: ConnectionSettings): Promise<ConnectionSettings> {
  const { gateway, sandbox, apiKey, token, headerPrefix } = settings;
  if (gateway === undefined || sandbox === undefined) return settings;
  const client = gatewayClient(settings);
  try {
    const [foundToken, foundPrefix] = await Promise.all([
      token === undefined && apiKey !== undefined ? tokenOfSandbox(client, sandbox) : token,
      headerPrefix ?? prefixOfHeaders(client),
    ]);
    return {
      ...settings,
      ...(foundToken !== undefined && { token: foundToken }),
      ...(foundPrefix !== undefined && { headerPrefix: foundPrefix }),
    };
  } finally {
    client.close();
  }
}

/** Returns the token of a sandbox' daemon, or undefined if the gateway tells this key none. Throws `Failure`. */
export async function tokenOfSandbox(gateway: HttpClient, sandbox: string): Promise<string | undefined> {
  const path = `/sandboxes/${encodeURIComponent(sandbox)}`;
  const body = await gateway.json({ path, silenceMs: SILENCE_MS }).catch((error: unknown) => {
    if (error instanceof Failure && ['refused', 'not_found', 'failed'].includes(error.reason)) return null;
    throw error;
  });
  const { envdAccessToken } = (body ?? {}) as { envdAccessToken?: unknown };
  return typeof envdAccessToken === 'string' && envdAccessToken !== '' ? envdAccessToken : undefined;
}

/**
 * Returns the prefix of the headers by which a gateway finds sandboxes, or undefined if it does not tell. A gateway answers a request
 * that names no sandbox with the name of the missing header. Throws a `Failure` if it cannot be reached.
 */
export async function prefixOfHeaders(gateway: HttpClient): Promise<string | undefined> {
  const told = await gateway
    .text({ path: '/', allow: [400, 404], silenceMs: SILENCE_MS })
    .catch((error: unknown) => {
      if (error instanceof Failure && error.reason === 'unreachable') throw error;
      return '';
    });
  return /\bheader ([A-Za-z0-9][A-Za-z0-9-]{0,63})-Sandbox-Id\b/.exec(told)?.[1];
}
