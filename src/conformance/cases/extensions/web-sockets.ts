import { strict as assert } from 'node:assert';
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { section } from '../../suite/cases.ts';
import { jsonOf, refusedRest, type TestedDaemon, until } from '../../suite/daemon.ts';
import { NotRun } from '../../suite/not-run.ts';
import { offered } from '../../suite/offered.ts';

interface Client {
  readonly socket: WebSocket;
  /** The text messages. */
  readonly told: Record<string, unknown>[];
  readonly output: () => string;
  readonly closed: Promise<number>;
}

/** Opens a WebSocket with the token. */
async function open(daemon: TestedDaemon, path: string, protocol: string): Promise<Client> {
  const { url, token } = daemon.run;
  const address = String(url).replace(/^http/, 'ws').replace(/\/$/, '') + path;
  const headers = token === null ? {} : { 'x-access-token': token };
  const socket = new WebSocket(address, [protocol], { headers });
  daemon.atEnd(async () => socket.terminate());
  const told: Record<string, unknown>[] = [];
  let output = '';
  socket.on('message', (data, isBinary) => {
    if (isBinary) output += data;
    else told.push(JSON.parse(String(data)));
  });
  const closed = new Promise<number>((resolve) => socket.once('close', resolve));
  await once(socket, 'open');
  assert.equal(socket.protocol, protocol);
  return { socket, told, output: () => output, closed };
}

const SERVER = `import socket
s = socket.create_server(('127.0.0.1', 0))
print(s.getsockname()[1], flush=True)
while True:
    c = s.accept()[0]
    c.sendall(c.recv(100).upper())
    c.close()`;

/** Starts a server in the guest that answers with capital letters. Returns its port. */
async function serve(daemon: TestedDaemon): Promise<number> {
  if ((await daemon.shell('command -v python3 || true')) === '') throw new NotRun('the guest has no python3');
  const running = await daemon.start({ process: { cmd: 'python3', args: ['-c', SERVER], cwd: '/' } });
  await running.wrote('\n');
  return Number.parseInt(running.output, 10);
}

export const WEB_SOCKETS = section('++', 'WebSockets and ports (docs/extensions.md)', {
  'a terminal: output, input, size, and the end': offered('terminal', async (daemon) => {
    const cmd = 'read line; echo "got $line"; stty size; exit 3';
    const query = new URLSearchParams({ cols: '90', rows: '20', cwd: '/', cmd, tag: daemon.run.tag });
    const client = await open(daemon, `/terminal?${query}`, 'envd.terminal');
    client.socket.send(JSON.stringify({ type: 'resize', cols: 91, rows: 21 }));
    client.socket.send(JSON.stringify({ type: 'input', data: 'x' }));
    client.socket.send(Buffer.from('y\n'));
    assert.equal(await client.closed, 1000);
    assert.match(client.output(), /got xy\r\n21 91\r\n$/);
    const [first, last] = [client.told[0], client.told.at(-1)];
    assert.deepEqual([first?.type, first?.offset, last?.type, last?.exitCode], ['start', 0, 'end', 3]);
    const again = await open(daemon, `/terminal?process=${first?.pid}&from=0`, 'envd.terminal');
    await again.closed;
    assert.equal(again.output(), client.output());
  }),
  'a terminal that cannot be started is closed with 4000 and the status': offered(
    'terminal',
    async (daemon) => {
      const client = await open(daemon, '/terminal?process=999999999', 'envd.terminal');
      assert.equal(await client.closed, 4404);
    },
  ),
  'a request that is no WebSocket gets 426': offered('terminal', async (daemon) => {
    refusedRest(await daemon.rest('GET', '/terminal'), 426);
  }),
  'a wait for a port': offered('ports', async (daemon) => {
    const port = await serve(daemon);
    const found = jsonOf(await daemon.rest('POST', `/ports/${port}/wait`), 200);
    assert.deepEqual([found.port, found.address], [port, '127.0.0.1']);
    refusedRest(await daemon.rest('POST', '/ports/1/wait', { query: { timeoutMs: '50' } }), 504);
    refusedRest(await daemon.rest('POST', '/ports/0/wait'), 400);
  }),
  'a tunnel to a port': offered('ports', async (daemon) => {
    const port = await serve(daemon);
    const client = await open(daemon, `/ports/${port}/tunnel`, 'envd.tunnel');
    client.socket.send(Buffer.from('bytes'));
    await until(async () => client.output() === 'BYTES');
    await client.closed;
    const none = await open(daemon, '/ports/1/tunnel', 'envd.tunnel');
    assert.equal(await none.closed, 4404);
  }),
});
