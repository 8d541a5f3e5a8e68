import { parsePort } from '../../../base/program/settings.ts';
import { readPageFiles } from '../../console/server/page-files.ts';
import { ConsoleServer } from '../../console/server/server.ts';
import { usageError } from '../../output/failure.ts';
import { defineCommand } from '../spec/command.ts';
import { SANDBOX_ARGUMENT } from '../spec/sandbox-argument.ts';

interface ConsoleOptions {
  readonly listenPort?: number;
  readonly origin?: string;
}

export const consoleCommand = defineCommand<ConsoleOptions>({
  name: 'console',
  summary: 'Serve a page with the terminals, processes, files and figures of a sandbox',
  examples: ['envctl console', 'envctl console ID'],
  details: [
    'It listens on 127.0.0.1 and prints an address, which works once. Enter prints another one, ^C ends it. The page gets neither the token nor the key: this program adds them to the calls that it passes on.',
    'With --gateway the page lists its sandboxes, too. Behind a proxy with TLS, --origin is the origin that browsers see; the proxy must pass the header Host on.',
  ],
  arguments: [SANDBOX_ARGUMENT],
  options: [
    { flags: '--listen-port <number>', help: 'the port of the page; default: a free one', parse: parsePort },
    { flags: '--origin <url>', help: 'where browsers find the page, if a proxy is in front' },
  ],
  json: 'one line for each address: {"url"}',
  async run(call, { listenPort = 0, origin }) {
    const [sandbox] = call.arguments;
    if (sandbox !== undefined) call.chooseSandbox(sandbox);
    const connection = await call.settings();
    const server = await ConsoleServer.open(
      { page: readPageFiles(), connection, version: call.version },
      { port: listenPort, origin: origin === undefined ? null : originIn(origin) },
    );
    const tell = () => {
      const url = server.newLink();
      return call.output.result({ url }, () => call.output.line(url));
    };
    await tell();
    const { stdin } = call.surroundings;
    if (stdin.isTTY) {
      call.output.note({
        style: 'dim',
        text: '[the address works once; Enter prints another one, ^C ends the console]',
      });
      stdin.on('data', () => void tell());
    }
    await server.closed();
    return 0;
  },
});

function originIn(text: string): string {
  const url = URL.parse(text);
  if (url && /^https?:$/.test(url.protocol) && url.pathname === '/' && url.search + url.hash === '')
    return url.origin;
  throw usageError(`--origin must be like https://console.example; it is '${text}'`);
}
