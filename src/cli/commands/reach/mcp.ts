import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import process from 'node:process';
import type { Readable, Writable } from 'node:stream';
import { parseAs, parsePort } from '../../../base/program/settings.ts';
import type { McpSandbox } from '../../mcp/sandbox.ts';
import { Failure, usageError } from '../../output/failure.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import { parseDuration } from '../spec/parsers.ts';

interface McpOptions {
  readonly create?: string;
  readonly timeout?: number;
  readonly root?: string;
  readonly readOnly?: boolean;
  readonly commands?: boolean;
  readonly http?: boolean;
  readonly listenPort?: number;
  readonly httpTokenFile?: string;
}

/** A sandbox that was created has this time from the last call on, in milliseconds. */
const USUAL_LIFE_MS = 3_600_000;
const LEAST_TOKEN = 16;
const TOKEN_BYTES = 32;

const parseRoot = parseAs(
  (text) => (text.startsWith('/') ? text : null),
  'It must be an absolute path in the sandbox.',
);

export const mcpCommand = defineCommand<McpOptions>({
  name: 'mcp',
  summary: 'Give an agent the tools for a sandbox, by the Model Context Protocol',
  examples: ['envctl mcp --root /work', 'envctl --gateway URL mcp --create TEMPLATE'],
  details: [
    'The agent starts this command, and speaks to it on standard input and output. It ends with its input, and stops the commands that it has started. With --http it listens on 127.0.0.1 instead, until it gets SIGINT or SIGTERM.',
    '--root limits the tools for files. It does not limit commands, which may do whatever their user may: --no-commands leaves them out.',
    'With --create the sandbox is created at the first call of a tool, and removed at the end. If this command is killed, the sandbox expires by --timeout.',
  ],
  arguments: [],
  options: [
    { flags: '--create <template>', help: 'create a sandbox of this template through the gateway' },
    {
      flags: '--timeout <time>',
      help: 'with --create: it expires after this time without a call; default: 1h',
      parse: parseDuration,
    },
    {
      flags: '--root <directory>',
      help: 'tools for files reach only what is below this directory of the sandbox',
      parse: parseRoot,
    },
    { flags: '--read-only', help: 'no tool changes anything or runs a command' },
    { flags: '--no-commands', help: 'no tool runs a command' },
    { flags: '--http', help: 'listen on a port of this machine; clients need the token that is printed' },
    { flags: '--listen-port <number>', help: 'with --http: the port; default: a free one', parse: parsePort },
    {
      flags: '--http-token-file <file>',
      help: 'with --http: the token that clients need; default: a new one',
      completes: 'file',
    },
  ],
  json: 'with --http one line: {"url","token"}',
  async run(call, options) {
    const { root = null, readOnly: isReadOnly = false, commands: hasCommands = true } = options;
    requireFitting(options);
    const token = options.http ? await httpToken(options.httpTokenFile) : null;
    const sandbox = await sandboxOf(call, options);
    // The libraries are loaded for this command only.
    const { SandboxTools } = await import('../../mcp/server.ts');
    const { version } = call;
    const tools = new SandboxTools({ sandbox, root, isReadOnly, hasCommands, version });
    if (root !== null && hasCommands && !isReadOnly)
      call.output.warn('commands reach more than --root: --no-commands leaves them out');
    using stop = new StopOnSignal();
    try {
      if (token === null) await serveOnStreams(call, tools, stop.signal);
      else await serveOnPort(call, tools, { port: options.listenPort ?? 0, token }, stop.signal);
    } finally {
      await tools.end();
    }
    return 0;
  },
});

type Tools = Parameters<typeof import('../../mcp/stdio.ts').serveStreams>[0];

function requireFitting({ create, timeout, http, listenPort, httpTokenFile }: McpOptions): void {
  if (timeout !== undefined && create === undefined) throw usageError('--timeout needs --create');
  if (!http && (listenPort !== undefined || httpTokenFile !== undefined))
    throw usageError('--listen-port and --http-token-file need --http');
}

async function sandboxOf(call: Call, { create, timeout }: McpOptions): Promise<McpSandbox> {
  if (create === undefined) {
    const connection = await call.connection();
    return { isRemoved: false, connection: async () => connection, leave: async () => {} };
  }
  const settings = await call.settings();
  if (settings.sandbox !== undefined) throw usageError('--create and --sandbox exclude each other');
  const { CreatedSandbox } = await import('../../mcp/sandbox.ts');
  return new CreatedSandbox(await call.gateway(), settings, create, timeout ?? USUAL_LIFE_MS);
}

async function httpToken(file: string | undefined): Promise<string> {
  if (file === undefined) return randomBytes(TOKEN_BYTES).toString('base64url');
  const text = await readFile(file, 'utf8').catch((error: Error) => {
    throw new Failure('usage', `cannot read --http-token-file ${file}: ${error.message}`);
  });
  const token = text.trim();
  if (token.length >= LEAST_TOKEN && /^[\x21-\x7e]+$/.test(token)) return token;
  throw usageError(`--http-token-file must have ${LEAST_TOKEN} printable ASCII characters or more`);
}

async function serveOnStreams(call: Call, tools: Tools, signal: AbortSignal): Promise<void> {
  const { serveStreams } = await import('../../mcp/stdio.ts');
  const { stdin, stdout } = call.surroundings;
  if (stdin.isTTY) call.output.note('[an agent speaks to this command on its standard input; ^D ends it]');
  // An error of the output ends the program at once, which would leave the sandbox and what runs in it behind.
  stdout.removeAllListeners('error').on('error', () => {});
  await serveStreams(tools, { input: stdin as Readable, output: stdout as Writable }, signal);
}

async function serveOnPort(
  call: Call,
  tools: Tools,
  { port, token }: { readonly port: number; readonly token: string },
  signal: AbortSignal,
): Promise<void> {
  const { McpHttpServer } = await import('../../mcp/http.ts');
  const server = await McpHttpServer.open(tools, port, token);
  const { url } = server;
  await call.output.result({ url, token }, async () => {
    await call.output.line(url);
    await call.output.line(`Authorization: Bearer ${token}`);
  });
  const stopped = Promise.withResolvers<void>();
  signal.addEventListener('abort', () => stopped.resolve());
  if (!signal.aborted) await stopped.promise;
  await server.close();
}

/** Aborts at the first signal to end, so that what was made is removed. The second one ends this program. */
class StopOnSignal implements Disposable {
  readonly #abort = new AbortController();

  constructor() {
    for (const name of SIGNALS) process.on(name, this.#onSignal);
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  [Symbol.dispose](): void {
    for (const name of SIGNALS) process.off(name, this.#onSignal);
  }

  readonly #onSignal = (): void => {
    if (this.#abort.signal.aborted) process.exit(LEFT);
    this.#abort.abort();
  };
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** A shell shows this exit code for a program that SIGINT has ended (128 and 2). */
const LEFT = 130;
