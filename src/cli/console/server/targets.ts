import type { Agent } from 'node:http';
import type { ConnectionSettings } from '../../connection/contexts.ts';
import { gatewayOf, headersOf, keyHeader, neverWakingHeader, targetOf } from '../../connection/endpoint.ts';
import { prefixOfHeaders, tokenOfSandbox } from '../../connection/gateway-look-ups.ts';
import { HttpClient } from '../../connection/http.ts';
import { Failure } from '../../output/failure.ts';

/** Where a call goes, with the headers that the page never sees. */
export interface CallTarget {
  readonly name: string;
  readonly url: string;
  readonly agent: Agent;
  readonly headers: Readonly<Record<string, string>>;
  /** The user of calls that name none. */
  readonly user: string | null;
}

/** How long the token of a sandbox is kept, in milliseconds, and of how many. */
const TOKEN_MS = 30_000;
const MAX_TOKENS = 1000;

interface KnownToken {
  readonly token: string | undefined;
  readonly until: number;
}

/** The daemon of the settings, the gateway of the settings, and the sandboxes behind it. */
export class Targets {
  readonly #settings: ConnectionSettings;
  readonly #http: HttpClient;
  #askedPrefix: Promise<string | undefined> | null = null;
  readonly #tokens = new Map<string, KnownToken>();

  /** Throws `usage` for settings that lead nowhere. */
  constructor(settings: ConnectionSettings) {
    this.#settings = settings;
    const place = settings.gateway === undefined ? targetOf(settings) : gatewayOf(settings);
    const key = settings.gateway === undefined ? {} : keyHeader(gatewayOf(settings));
    if (settings.sandbox !== undefined) targetOf(settings);
    this.#http = new HttpClient(place.url, settings.gateway ? `the gateway ${place.url}` : place.url, key);
  }

  /** What the page is told: the name of the daemon, or of the gateway, and the sandbox that was named. */
  get description(): {
    readonly name: string;
    readonly hasGateway: boolean;
    readonly sandbox: string | null;
    readonly gatewayUrl: string | null;
  } {
    const { gateway, sandbox = null } = this.#settings;
    const name = gateway === undefined ? targetOf(this.#settings).name : gatewayOf(this.#settings).url;
    return {
      name,
      hasGateway: gateway !== undefined,
      sandbox,
      gatewayUrl: gateway === undefined ? null : name,
    };
  }

  /** The gateway. Throws `usage` when there is none. */
  gateway(): CallTarget {
    const gateway = gatewayOf(this.#settings);
    const { agent } = this.#http;
    return { name: gateway.url, url: gateway.url, agent, headers: keyHeader(gateway), user: null };
  }

  /** A daemon: that of a sandbox, or of the settings. Throws `Failure`. */
  async daemon(sandbox: string | null): Promise<CallTarget> {
    const endpoint = targetOf(await this.#settingsOf(sandbox));
    const { agent } = this.#http;
    return {
      name: endpoint.name,
      url: endpoint.url,
      agent,
      // Only the page's own button resumes a paused sandbox.
      headers: { ...headersOf(endpoint), ...neverWakingHeader(endpoint) },
      user: endpoint.user,
    };
  }

  close(): void {
    this.#http.close();
  }

  async #settingsOf(sandbox: string | null): Promise<ConnectionSettings> {
    const own = this.#settings;
    const isOther = sandbox !== null && sandbox !== own.sandbox;
    if (isOther && own.gateway === undefined)
      throw new Failure('usage', 'there is no gateway, and so no other sandbox');
    // The token and the port that were told are those of the sandbox that was named.
    const { token: _, port: _port, ...others } = own;
    const settings = isOther ? { ...others, sandbox } : own;
    if (settings.gateway === undefined || settings.sandbox === undefined) return settings;
    const headerPrefix = settings.headerPrefix ?? (await this.#prefix());
    const token = settings.token ?? (await this.#tokenOf(settings.sandbox));
    return {
      ...settings,
      ...(headerPrefix !== undefined && { headerPrefix }),
      ...(token !== undefined && { token }),
    };
  }

  /** The prefix of the gateway's headers, which is asked for once. */
  #prefix(): Promise<string | undefined> {
    this.#askedPrefix ??= prefixOfHeaders(this.#http).catch((error: unknown) => {
      this.#askedPrefix = null;
      throw error;
    });
    return this.#askedPrefix;
  }

  /** The token by which the gateway's platform reaches a sandbox; undefined: it tells none to this key. */
  async #tokenOf(sandbox: string): Promise<string | undefined> {
    const known = this.#tokens.get(sandbox);
    if (known && known.until > performance.now()) return known.token;
    const token = await tokenOfSandbox(this.#http, sandbox);
    if (this.#tokens.size >= MAX_TOKENS) this.#tokens.clear();
    this.#tokens.set(sandbox, { token, until: performance.now() + TOKEN_MS });
    return token;
  }
}
