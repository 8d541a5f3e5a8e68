import { usageError } from '../output/failure.ts';
import type { ConnectionSettings } from './contexts.ts';

const DEFAULT_URL = 'http://127.0.0.1:49983';
const DEFAULT_PREFIX = 'Svc';

/** A daemon, and the way to reach it. */
export interface Endpoint {
  /** Messages use this name, such as `http://127.0.0.1:49983` or `sandbox box at http://…`. */
  readonly name: string;
  /** The URL, without a slash at its end. */
  readonly url: string;
  /** The gateway and the sandbox, if the daemon is reached through a gateway, otherwise null. */
  readonly route: GatewayRoute | null;
  readonly token: string | null;
  readonly user: string | null;
}

/** A gateway, with a key of the platform or of a client. */
export interface GatewayPlace {
  readonly url: string;
  readonly apiKey: string | null;
}

/** A gateway, and the headers by which it finds the sandbox and its port. */
interface GatewayRoute extends GatewayPlace {
  readonly sandbox: string;
  readonly port: number | null;
  readonly headerPrefix: string;
}

/** A token or a key that was given, but is for another place. */
interface UnusedSecret {
  /** The index of its layer. */
  readonly layer: number;
  readonly name: 'token' | 'apiKey';
  /** The place that it is for. */
  readonly place: string;
}

/**
 * Merges the settings of flags, variables and a context. The first layer that names a server decides. A token or a key goes
 * only to the server that its own layer names, or to one that is named more specifically beside it. So the token of a context
 * never goes to the server of `--url`.
 */
export function mergeSettings(layers: readonly ConnectionSettings[]): {
  readonly settings: ConnectionSettings;
  readonly unused: readonly UnusedSecret[];
} {
  let settings: ConnectionSettings = {};
  const unused: UnusedSecret[] = [];
  for (const [index, layer] of layers.entries()) {
    const used = usable(layer, settings);
    for (const name of ['token', 'apiKey'] as const) {
      const isLeft = layer[name] !== undefined && used[name] === undefined;
      if (isLeft && settings[name] === undefined)
        unused.push({ layer: index, name, place: placeOf({ ...settings, ...layer }) });
    }
    settings = { ...used, ...settings };
  }
  return { settings, unused };
}

/** Returns what a layer adds to the settings of those before it. */
function usable(layer: ConnectionSettings, before: ConnectionSettings): ConnectionSettings {
  if (!isSameServer(layer, before)) {
    const { user, headerPrefix } = layer;
    return { ...(user !== undefined && { user }), ...(headerPrefix !== undefined && { headerPrefix }) };
  }
  const { token, port, ...others } = layer;
  const isOther =
    [layer, before].every(({ sandbox }) => sandbox !== undefined) && layer.sandbox !== before.sandbox;
  // The token and the port are those of the sandbox.
  return {
    ...others,
    ...(!isOther && { ...(token !== undefined && { token }), ...(port !== undefined && { port }) }),
  };
}

/** Returns whether two layers do not name different servers. */
function isSameServer(one: ConnectionSettings, other: ConnectionSettings): boolean {
  const [first, second] = [one, other].map(({ url, gateway }) => ({ url, gateway }));
  const isNamed = [first, second].every((place) => place?.url !== undefined || place?.gateway !== undefined);
  if (!isNamed) return true;
  return isSameUrl(first?.url, second?.url) && isSameUrl(first?.gateway, second?.gateway);
}

function isSameUrl(one: string | undefined, other: string | undefined): boolean {
  if (one === undefined || other === undefined) return one === other;
  return readUrl(one)?.href === readUrl(other)?.href;
}

function placeOf({ url, gateway, sandbox }: ConnectionSettings): string {
  const place = url ?? gateway ?? DEFAULT_URL;
  return sandbox === undefined ? place : `sandbox ${sandbox} at ${place}`;
}

/**
 * Returns the daemon that the settings name, by default the one on this machine. Throws a `Failure` with the reason `usage`.
 */
export function targetOf(settings: ConnectionSettings): Endpoint {
  const { url, gateway, sandbox, port, token = null, user = null } = settings;
  if (url !== undefined && gateway !== undefined)
    throw usageError('--url and --gateway exclude each other: give one of them');
  requireHeader('the token', token);
  if (gateway === undefined) {
    if (sandbox !== undefined) throw usageError('--sandbox needs --gateway');
    const place = originOf(url ?? DEFAULT_URL);
    return { name: place, url: place, route: null, token, user };
  }
  if (sandbox === undefined) throw usageError('--gateway needs --sandbox: give the id of the sandbox');
  if (!/^[\x21-\x7e]+$/.test(sandbox)) throw usageError('--sandbox must be printable ASCII without blanks');
  const { url: place, apiKey } = gatewayOf(settings);
  const headerPrefix = settings.headerPrefix ?? DEFAULT_PREFIX;
  const route = { url: place, apiKey, sandbox, port: port ?? null, headerPrefix };
  return { name: `sandbox ${sandbox} at ${place}`, url: place, route, token, user };
}

/** Returns the gateway that the settings name. Throws a `Failure` with the reason `usage`. */
export function gatewayOf({ gateway, apiKey }: ConnectionSettings): GatewayPlace {
  if (gateway === undefined)
    throw usageError('there is no gateway: give --gateway, ENVCTL_GATEWAY or a context that has one');
  requireHeader('the key', apiKey ?? null);
  return { url: originOf(gateway), apiKey: apiKey ?? null };
}

/** Returns the header by which a request does not resume a paused sandbox. Without a gateway there is none. */
export function neverWakingHeader({ route }: Endpoint): Record<string, string> {
  return route === null ? {} : { [`${route.headerPrefix.toLowerCase()}-sandbox-wake`]: 'never' };
}

/** Returns the headers of every request to this daemon. */
export function headersOf({ route, token }: Endpoint): Record<string, string> {
  return {
    ...(token !== null && { 'x-access-token': token }),
    ...(route && {
      [`${route.headerPrefix.toLowerCase()}-sandbox-id`]: route.sandbox,
      ...(route.port !== null && {
        [`${route.headerPrefix.toLowerCase()}-sandbox-port`]: String(route.port),
      }),
      ...keyHeader(route),
    }),
  };
}

/** Returns the header with the key of a gateway, or none if there is no key. */
export function keyHeader({ apiKey }: GatewayPlace): Record<string, string> {
  return apiKey === null ? {} : { 'x-api-key': apiKey };
}

/** Throws a `Failure` with the reason `usage` for a value that no header can carry. */
function requireHeader(name: string, secret: string | null): void {
  // Node's client may write characters of Latin-1 in one byte or in two, and envd accepts both.
  if (secret !== null && !/^[\t\x20-\x7e\xa0-\xff]*$/.test(secret))
    throw usageError(`${name} has characters that no header can carry`);
}

function readUrl(text: string): URL | null {
  // `host:port` would be read as a scheme.
  return URL.parse(/^[a-z0-9.-]+(:\d+)?(\/|$)|^\[[0-9a-f:]+\]/i.test(text) ? `http://${text}` : text);
}

function originOf(text: string): string {
  const url = readUrl(text);
  if (url && url.hash !== '')
    throw usageError('this is the address of a console, which a browser opens: give the URL of the daemon');
  if (!url || !/^https?:$/.test(url.protocol)) throw usageError(`'${text}' is not a URL with http or https`);
  if (url.username + url.password !== '')
    throw usageError('a URL must not have a password: use --token and --user');
  return `${url.origin}${url.pathname}`.replace(/\/+$/, '');
}
