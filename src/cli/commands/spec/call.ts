import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ReadStream } from 'node:tty';
import type { Connection } from '../../connection/connection.ts';
import { type ConnectionSettings, ContextFile } from '../../connection/contexts.ts';
import { headersOf, mergeSettings, targetOf } from '../../connection/endpoint.ts';
import { gatewayClient, lookUp } from '../../connection/gateway-look-ups.ts';
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
  /** Loads all commands, for commands that describe them. */
  readonly table: () => Promise<readonly CommandDescription[]>;
  /** The version of envctl. */
  readonly version: string;
  readonly #left = new AbortController();
  #options: GlobalOptions;
  readonly #open: { close(): void }[] = [];
  #sandbox: string | undefined;
  /** Says which secrets were given, but not used. */
  #unused: readonly string[] = [];

  constructor(
    surroundings: Surroundings,
    { table, version }: Pick<Call, 'table' | 'version'>,
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

  /** Uses these options instead of those of the command line. */
  useOptions(options: GlobalOptions): void {
    this.#options = options;
  }

  /** Returns the settings of flags, variables, and the context that is named or current. Throws `Failure`. */
  async settings(): Promise<ConnectionSettings> {
    const name = this.#options.context ?? (this.surroundings.env.ENVCTL_CONTEXT || undefined);
    const [context, used] = await this.#context(name);
    const { settings, unused } = mergeSettings([await this.flagSettings(), this.#variables(), context]);
    this.#unused = unused.map(({ layer, name: secret, place }) => {
      const what = secret === 'token' ? 'token' : 'key';
      const variable = secret === 'token' ? 'ENVCTL_TOKEN' : 'ENVCTL_API_KEY';
      return `the ${what} of ${layer === 1 ? variable : `the context '${used}'`} was not used, because it is for ${place}`;
    });
    return settings;
  }

  /** Returns a failure with what the settings may have to do with it. */
  explained(failure: Failure): Failure {
    if (failure.reason !== 'refused' || this.#unused.length === 0) return failure;
    return new Failure('refused', [failure.message, ...this.#unused].join('; '), { cause: failure });
  }

  /** Chooses a sandbox of the gateway, as `--sandbox` does. Throws a `Failure` if the option names another one. */
  chooseSandbox(id: string): void {
    const { sandbox = id } = this.#options;
    if (sandbox !== id)
      throw usageError(`'${id}' and --sandbox '${sandbox}' exclude each other: give one of them`);
    this.#sandbox = id;
  }

  /** Tells that a command waits for a paused sandbox. */
  readonly tellPaused = (): void => {
    this.output.note({ style: 'dim', text: '[the sandbox is paused; waiting until it is resumed]' });
  };

  /** Returns the settings of the flags alone. Throws `Failure`. */
  async flagSettings(): Promise<ConnectionSettings> {
    const {
      url,
      gateway,
      sandbox = this.#sandbox,
      port,
      token,
      tokenFile,
      apiKey,
      user,
      headerPrefix,
    } = this.#options;
    if (token !== undefined && tokenFile !== undefined)
      throw usageError('--token and --token-file exclude each other: give one of them');
    const secret = tokenFile === undefined ? token : await readSecret(tokenFile);
    return defined({ url, gateway, sandbox, port, token: secret, apiKey, user, headerPrefix });
  }

  /** Connects to the daemon that the settings name. Throws `Failure`. */
  async connection(): Promise<Connection> {
    return this.#connect(await this.settings());
  }

  /** Returns the client of the daemon that the settings name, for a command that makes no RPC. Throws `Failure`. */
  async http(): Promise<HttpClient> {
    const target = targetOf(await lookUp(await this.settings()));
    return this.#owned(new HttpClient(target.url, target.name, headersOf(target)));
  }

  /**
   * Connects to the daemon of another context, or of a sandbox of the gateway that the settings name. A context goes first. Throws
   * `Failure`.
   */
  async connectionByName(name: string): Promise<Connection> {
    const { contexts } = await this.contexts.read();
    const context = contexts.get(name);
    if (context) return this.#connect(context);
    const settings = await this.settings();
    if (settings.gateway === undefined) throw noContext(name);
    // The token and the port are those of the sandbox that the settings name.
    const { token: _, port: _port, ...others } = settings;
    return this.#connect(settings.sandbox === name ? settings : { ...others, sandbox: name });
  }

  /** Returns the client of the gateway that the settings name. Throws `Failure`. */
  async gateway(): Promise<HttpClient> {
    return this.#owned(gatewayClient(await this.settings()));
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
    // Settings that lead nowhere are told before the gateway is asked.
    targetOf(settings);
    // Loading the libraries of RPCs takes longer than a command that needs none of them.
    const { Connection } = await import('../../connection/connection.ts');
    return this.#owned(new Connection(targetOf(await lookUp(settings)), this.#options.whenPaused));
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

  /** Returns the settings of a context with its name. Without a name, returns those of the current context, or none. */
  async #context(
    name: string | undefined,
  ): Promise<readonly [settings: ConnectionSettings, name: string | null]> {
    const { current, contexts } = await this.contexts.read();
    const wanted = name ?? current;
    if (wanted === null) return [{}, null];
    const found = contexts.get(wanted);
    if (found) return [found, wanted];
    throw noContext(wanted);
  }
}

function noContext(name: string): Failure {
  return usageError(`there is no context '${name}': \`envctl context list\` lists them`);
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
