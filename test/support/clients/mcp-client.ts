import { tmpdir } from 'node:os';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { onTestFinished } from 'vitest';
import { envctlCommand } from '../programs/programs.ts';

/** What a tool has answered: its own words, what it quotes from the sandbox, and whether it has failed. */
export interface ToolAnswer {
  readonly words: string;
  readonly quoted: readonly string[];
  readonly isError: boolean;
}

/** The published client of the protocol, which has started `envctl mcp` on its standard streams. */
export interface McpClient {
  readonly client: Client;
  /** Calls a tool. `signal` cancels the call. */
  call(name: string, input?: Record<string, unknown>, signal?: AbortSignal): Promise<ToolAnswer>;
  /** The pid of envctl. */
  readonly pid: number;
  /** What envctl has written to standard error. */
  readonly stderr: () => string;
  /** Ends the standard input of envctl, and waits until it has ended. */
  close(): Promise<void>;
}

const { PATH = '', NODE_COMPILE_CACHE = '' } = process.env;

export async function startMcp(
  url: string,
  args: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): Promise<McpClient> {
  const [node, program] = envctlCommand();
  const none = { XDG_CONFIG_HOME: '/dev/null/none', HOME: '/dev/null/none', TMPDIR: tmpdir() };
  const transport = new StdioClientTransport({
    command: node,
    args: [program, 'mcp', ...args],
    env: { PATH, NODE_COMPILE_CACHE, ...none, ...(url !== '' && { ENVCTL_URL: url }), ...env },
    stderr: 'pipe',
  });
  let written = '';
  transport.stderr?.on('data', (piece: Buffer) => {
    written += piece;
  });
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(transport);
  const { pid } = transport;
  onTestFinished(() => client.close());
  return {
    ...{ client, pid: pid ?? 0, stderr: () => written, close: () => client.close() },
    call: (name, input, signal) => callTool(client, name, input, signal),
  };
}

export async function callTool(
  client: Client,
  name: string,
  input: Record<string, unknown> = {},
  signal?: AbortSignal,
): Promise<ToolAnswer> {
  const request = { name, arguments: input };
  const { content, isError } = await client.callTool(request, {
    timeout: 240_000,
    ...(signal && { signal }),
  });
  const texts = content.map((each) => (each.type === 'text' ? each.text : ''));
  const [words = '', ...blocks] = texts;
  return {
    words,
    // Without the lines around it, of which the words tell the mark.
    quoted: blocks.map((block) => block.split('\n').slice(1, -1).join('\n')),
    isError: isError === true,
  };
}
