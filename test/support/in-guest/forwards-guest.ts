import { spawn } from 'node:child_process';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { startDaemon } from '../programs/daemon.ts';
import { until } from '../until.ts';

// A guest with an address of its own and two users who want the same ports: run in a network namespace with the address
// 10.77.0.2 at the default route. Prints its observations as JSON.
const ADDRESS = '10.77.0.2';
const STRANGER = 65534;

/** `serve`: each client gets a word. `grab`: tries to listen until it succeeds, or `stop` is called, which says how often. */
const PRELUDE = `import os, socket, sys, threading, time
def at(host, port):
    six = ':' in host
    one = socket.socket(socket.AF_INET6 if six else socket.AF_INET)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if six: one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind((host, port))
    one.listen(16)
    return one
def accept(one, word):
    while True:
        try: client, _ = one.accept()
        except OSError: return
        client.sendall(word.encode())
        client.close()
def serve(host, port, word):
    one = at(host, port)
    threading.Thread(target=accept, args=(one, word), daemon=True).start()
    return one
def end(one):
    one.shutdown(socket.SHUT_RDWR)
    one.close()
tries, stopped = [0, 0], threading.Event()
def grab(host, port):
    def run():
        while not stopped.is_set():
            tries[0] += 1
            try: accept(at(host, port), 'grabbed')
            except OSError: time.sleep(0.001)
    threading.Thread(target=run, daemon=True).start()
for line in sys.stdin:
    try: print(eval(line, globals()), flush=True)
    except OSError as error: print(os.strerror(error.errno), flush=True)`;

/** Python, which says what an expression is. */
function python(): (expression: string) => Promise<string> {
  const child = spawn('python3', ['-c', PRELUDE], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  return async (expression) => {
    child.stdin.write(`${expression}\n`);
    return String((await lines.next()).value);
  };
}

await using daemon = await startDaemon({ args: ['--host=0.0.0.0'] });

async function isForwarded(wanted: number): Promise<boolean> {
  const { ports } = (await (await fetch(`${daemon.url}/ports`)).json()) as {
    readonly ports: readonly { readonly port: number }[];
  };
  return ports.some(({ port }) => port === wanted);
}

/** A port that is new to the daemon is forwarded after all that listened before it has been seen. */
let marker = 4000;
async function allIsSeen(): Promise<void> {
  const port = marker++;
  await root(`serve('127.0.0.1', ${port}, 'marker')`);
  await until('the marker is forwarded', () => isForwarded(port));
}

/** What the port sends, or the code of the error. */
function ask(port: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, ADDRESS);
    let text = '';
    socket.on('data', (data) => {
      text += data;
    });
    socket.on('end', () => resolve(text));
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
  });
}

const root = python();
const stranger = python();
await stranger(`os.setuid(${STRANGER})`);

// A stranger at the other loopback address, both ways round, and at all addresses of IPv6.
await root(`globals().update(a=serve('::1', 3001, 'root'), b=serve('127.0.0.1', 3002, 'root'))`);
await root(`serve('127.0.0.1', 3003, 'root') and serve('::1', 3004, 'root')`);
for (const port of [3001, 3002, 3003, 3004]) await until(`${port} is forwarded`, () => isForwarded(port));
const listening = await stranger(
  `serve('127.0.0.1', 3001, 'stranger') and serve('::1', 3002, 'stranger') and serve('::', 3003, 'stranger') and 'yes'`,
);
await allIsSeen();
const kept = [await ask(3001), await ask(3002), await ask(3003)];
const direct = await stranger(`serve('${ADDRESS}', 3003, 'stranger')`);

// Over an upgrade, during which the stranger tries to listen at the guest's address himself.
for (const port of [3001, 3002, 3003, 3004]) await stranger(`grab('${ADDRESS}', ${port})`);
const readies = () => daemon.log.filter(({ msg }) => msg === 'ready').length;
await fetch(`${daemon.url}/upgrade`, { method: 'POST' });
await until('the new program listens', () => readies() === 2);
await allIsSeen();
const upgraded = [await ask(3001), await ask(3002), await ask(3003), await ask(3004)];
const tries = Number(await stranger('tries[0]'));
await stranger('stopped.set()');

// The first one's end.
await root('end(a) or end(b)');
const isStranger = (port: number) => async () => (await ask(port)) === 'stranger';
for (const port of [3001, 3002]) await until(`${port} is the stranger's`, isStranger(port));
const log = daemon.log.filter(({ msg }) => String(msg).includes('another user'));

await daemon.stop();
process.stdout.write(JSON.stringify({ listening, kept, direct, upgraded, tries, log }));
process.exit();
