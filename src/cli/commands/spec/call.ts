import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ReadStream } from 'node:tty';
import { Connection } from '../../connection/connection.ts';
import { type ConnectionSettings, ContextFile } from '../../connection/contexts.ts';
import { gatewayOf, keyHeader, mergeSettings, targetOf } from '../../connection/endpoint.ts';
import { HttpClient } from '../../connection/http.ts';
import { Failure, usageError } from '../../output/failure.ts';
import { Printer, type PrintStream } from '../../output/printer.ts';
import type { CommandDescription } from './description.ts';
import type { GlobalOptions } from './global-options.ts';

/** The environment in which the program was started. */
export interface Surroundings {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: NodeJS.ReadableStream & Partial<Pick<ReadStream, 'isTTY' | 'setRawMode'>>;
  readonly stdout: PrintStream;
  readonly stderr: PrintStream;
}

/** One execution of a command, with its arguments, its output and its connections. */
export class Call {
  readonly arguments: readonly string[];
  readonly surroundings: Surroundings;
  readonly output: Printer;
  readonly contexts: ContextFile;
  /** All commands, for commands that describe them. */
  readonly table: readonly CommandDescription[];
  /** The version of envctl. */
  readonly version: string;
  readonly #left = new AbortController();
  readonly #options: GlobalOptions;
  readonly #open: { close(): void }[] = [];

  constructor(
    surroundings: Surroundings,
    { table, version }: { readonly table: readonly CommandDescription[]; readonly version: string },
    options: GlobalOptions,
    args: readonly string[],
  ) {
    const { env, stdout, stderr } = surroundings;
    this.surroundings = surroundings;
    this.table = table;
    this.version = version;
    this.arguments = args;
    this.#options = options;
    this.output = new Printer(stdout, stderr, { json: options.json ?? false, quiet: options.quiet ?? false });
    this.contexts = new ContextFile(env.XDG_CONFIG_HOME || join(env.HOME || '/', '.config'));
  }

  /** Returns an argument that the table of the command requires. */
  argument(index: number): string {
    const value = this.arguments[index];
    if (value === undefined) throw usageError('an argument is missing');
    return value;
  }

  /** Returns the settings of flags, variables, and the context that is named or current. Throws `Failure`. */
  async settings(): Promise<ConnectionSettings> {
    const name = this.#options.context ?? (this.surroundings.env.ENVCTL_CONTEXT || undefined);
    return mergeSettings([await this.flagSettings(), this.#variables(), await this.#context(name)]);
  }

  /** Returns the settings of the flags alone. Throws `Failure`. */
  async flagSettings(): Promise<ConnectionSettings> {
    const { url, gateway, sandbox, port, token, tokenFile, apiKey, user, headerPrefix } = this.#options;
    if (token !== undefined && tokenFile !== undefined)
      throw usageError('--token and --token-file exclude each other: give one of them');
    const secret = tokenFile === undefined ? token : await readSecret(tokenFile);
    return defined({ url, gateway, sandbox, port, token: secret, apiKey, user, headerPrefix });
  }

  /** Connects to the daemon that the settings name. Throws `Failure`. */
  async connection(): Promise<Connection> {
    return this.#connect(await this.settings());
  }

  /** Connects to the daemon of another context. Throws `Failure`. */
  async connectionTo(context: string): Promise<Connection> {
    return this.#connect(await this.#context(context));
  }

  /** Returns the client of the gateway that the settings name. Throws `Failure`. */
  async gateway(): Promise<HttpClient> {
    const gateway = gatewayOf(await this.settings());
    return this.#owned(new HttpClient(gateway.url, `the gateway ${gateway.url}`, keyHeader(gateway)));
  }

  /** A signal that aborts when the user leaves a running command. */
  get leaving(): AbortSignal {
    return this.#left.signal;
  }

  leave(): void {
    this.#left.abort();
  }

  close(): void {
    for (const each of this.#open) each.close();
  }

  async #connect(settings: ConnectionSettings): Promise<Connection> {
    return this.#owned(new Connection(targetOf(settings)));
  }

  #owned<T extends { close(): void }>(opened: T): T {
    this.#open.push(opened);
    return opened;
  }

  #variables(): ConnectionSettings {
    const of = (name: string) => this.surroundings.env[`ENVCTL_${name}`] || undefined;
    const port = of('PORT');
    if (port !== undefined && !/^\d{1,5}$/.test(port)) throw usageError('ENVCTL_PORT must be a port');
    return defined({
      url: of('URL'),
      gateway: of('GATEWAY'),
      sandbox: of('SANDBOX'),
      port: port === undefined ? undefined : Number(port),
      token: of('TOKEN'),
      apiKey: of('API_KEY'),
      user: of('USER'),
      headerPrefix: of('HEADER_PREFIX'),
    });
  }

  /** Returns the settings of a context. Without a name, returns those of the current context, or none. */
  async #context(name: string | undefined): Promise<ConnectionSettings> {
    const { current, contexts } = await this.contexts.read();
    const wanted = name ?? current;
    if (wanted === null) return {};
    const found = contexts.get(wanted);
    if (found) return found;
    throw usageError(`there is no context '${wanted}': \`envctl context list\` lists them`);
  }
}

async function readSecret(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch((error: Error) => {
    throw new Failure('usage', `cannot read --token-file ${path}: ${error.message}`);
  });
  return text.trim();
}

/** Returns an object without its undefined members. */
function defined(
  settings: { readonly [Name in keyof ConnectionSettings]: ConnectionSettings[Name] | undefined },
) {
  return Object.fromEntries(
    Object.entries(settings).filter(([, value]) => value !== undefined),
  ) as ConnectionSettings;
}
