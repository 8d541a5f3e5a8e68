import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readlinkSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { startDaemon } from './daemon.ts';
import { until } from './until.ts';

// A guest with an address of its own, whose listeners are hostile: run in a network namespace with the address 10.77.0.2 at
// the default route. Prints its observations as JSON.
const ADDRESS = '10.77.0.2';
const STRANGER = 65534;
const UNSHARED = ['unshare', '--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];

/** `serve`: of every client, each piece is answered with a word and the addresses that the server sees. */
const PRELUDE = `import os, socket, sys, threading
SOL, REUSEPORT, DEVICE = socket.SOL_SOCKET, socket.SO_REUSEPORT, socket.SO_BINDTODEVICE
def at(port, *options, protocol=0):
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    one.setsockopt(SOL, socket.SO_REUSEADDR, 1)
    for name, value in options: one.setsockopt(SOL, name, value)
    one.bind(('127.0.0.1', port))
    one.listen(16)
    return one
def answer(client, peer, word):
    while client.recv(100):
        names = [peer[0], client.getpeername()[0], client.getsockname()[0]]
        client.sendall(' '.join([word, *names]).encode())
    client.close()
def accept(one, word):
    while True:
        try: client, peer = one.accept()
        except OSError: return
        threading.Thread(target=answer, args=(client, peer, word), daemon=True).start()
def serve(one, word):
    threading.Thread(target=accept, args=(one, word), daemon=True).start()
    return one
def end(one):
    one.shutdown(socket.SHUT_RDWR)
    one.close()
for line in sys.stdin:
    try: print(eval(line, globals()), flush=True)
    except OSError as error: print(os.strerror(error.errno), flush=True)`;

/** Python, which says what an expression is. */
function python(...before: readonly string[]): (expression: string) => Promise<string> {
  const [program = '', ...args] = [...before, 'python3', '-c', PRELUDE];
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  return async (expression) => {
    child.stdin.write(`${expression}\n`);
    return String((await lines.next()).value);
  };
}

await using daemon = await startDaemon({ args: ['--host=0.0.0.0'] });

interface Port {
  readonly port: number;
  readonly steered: boolean;
}
async function stateOf(wanted: number): Promise<string> {
  const { ports } = (await (await fetch(`${daemon.url}/ports`)).json()) as {
    readonly ports: readonly Port[];
  };
  const found = ports.find(({ port }) => port === wanted);
  return found ? (found.steered ? 'steered' : 'carried') : 'closed';
}
const is = (state: string, port: number) =>
  until(`${port} is ${state}`, async () => (await stateOf(port)) === state);

/** What the port answers, or the code of the error. */
function ask(port: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: ADDRESS, allowHalfOpen: true }, () => socket.end('x'));
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
const elsewhere = python(...UNSHARED);

// What the server sees; a listener that is shut down, and begins again.
await root(`globals().update(a=serve(at(3001), 'first'))`);
await is('steered', 3001);
const names = await ask(3001);
await root('a.shutdown(socket.SHUT_RDWR)');
const shut = await ask(3001);
await is('closed', 3001);
await root(`a.listen(16) or serve(a, 'again')`);
await is('steered', 3001);
const again = await ask(3001);
// One that connects afterwards, which the kernel still has among the listeners.
await root(`globals().update(t=serve(at(3008), 'turned'), u=serve(at(3009), 'target'))`);
await is('steered', 3008);
await root(`t.shutdown(socket.SHUT_RDWR) or t.connect(('127.0.0.1', 3009))`);
await root(`t.send(b'x')`);
const turned = [await root('t.recv(100).decode()'), await root('t.close()')];
await is('closed', 3008);
turned.push(await ask(3008));

// Another network namespace, at a port of a listener here, and at one without.
await elsewhere(`[serve(at(port), 'foreign') for port in (3001, 3050, 3051)]`);
const kept = [await ask(3001), await stateOf(3001), await ask(3050)];
await root(`serve(at(3051), 'own')`);
await is('steered', 3051);
kept.push(await ask(3051));

// Bound to a device, by which no answer reaches a client: before it listens, and after.
await root(`serve(at(3002, (DEVICE, b'lo')), 'device')`);
await is('carried', 3002);
const device = [await ask(3002)];
await root(`serve(globals().setdefault('d', at(3003)), 'device')`);
await is('steered', 3003);
await root(`d.setsockopt(SOL, DEVICE, b'lo')`);
device.push(await ask(3003));

// Several sockets at a port, of which the last ends.
await root(`serve(at(3004, (REUSEPORT, 1)), 'group')`);
await root(`globals().update(h=serve(at(3004, (REUSEPORT, 1)), 'group'))`);
await is('steered', 3004);
const group = [await ask(3004)];
await root('end(h)');
group.push(await ask(3004), await ask(3004));

// Multipath TCP, as Go's servers have it: its sockets are not the kernel's to steer to.
const multipath = [await root(`serve(at(3010, protocol=262), 'multipath') and 'listens'`)];
if (multipath[0] === 'listens') {
  await is('carried', 3010);
  multipath.push(await ask(3010));
}

// Another user's at the same port.
await root(`globals().update(b=serve(at(3005), 'root'))`);
await is('steered', 3005);
await root('end(b)');
await stranger(`serve(at(3005), 'stranger')`);
const replaced = await ask(3005);

// A connection to elsewhere from the address and port of a forward.
const other = createServer().listen(4000, ADDRESS);
await once(other, 'listening');
await root(`globals().update(c=socket.socket())`);
await root(
  `c.setsockopt(SOL, socket.SO_REUSEADDR, 1) or c.bind(('${ADDRESS}', 3006)) or c.connect(('${ADDRESS}', 4000))`,
);
await root(`serve(at(3006), 'six')`);
await is('steered', 3006);
const outgoing = [await root('c.getpeername()[0]'), await root('c.getsockname()[0]'), await ask(3006)];

// So many of one user that not all are forwarded.
await stranger(`globals().update(many=[at(port) for port in range(20000, 25000)]) or len(many)`);
await root(`serve(at(3007), 'seven')`);
await is('steered', 3007);
const many = await ask(3007);

// An upgrade, over which a connection goes on; and the end of the daemon.
const open: Socket = connect(3001, ADDRESS);
const say = async () => {
  open.write('x');
  return String(await once(open, 'data'));
};
const descriptors = () =>
  readdirSync(`/proc/${daemon.pid}/fd`).filter((name) => {
    try {
      return readlinkSync(`/proc/${daemon.pid}/fd/${name}`).includes('bpf');
    } catch {
      return false;
    }
  }).length;
const readies = () => daemon.log.filter(({ msg }) => msg === 'ready').length;
const over = [await say()];
const before = descriptors();
await fetch(`${daemon.url}/upgrade`, { method: 'POST' });
await until('the new program listens', () => readies() === 2);
await is('steered', 3001);
over.push(await say(), await ask(3001));
const more = descriptors() - before;
await daemon.stop();
const stopped = [(await say()).split(' ')[0], await ask(3001)];
const seen = {
  multipath,
  turned,
  names,
  shut,
  again,
  kept,
  device,
  group,
  replaced,
  outgoing,
  many,
  over,
  more,
  stopped,
};
process.stdout.write(JSON.stringify(seen));
process.exit();
