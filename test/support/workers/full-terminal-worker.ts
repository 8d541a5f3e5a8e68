// Writes more input to a terminal than it takes, and is terminated.
import { parentPort } from 'node:worker_threads';
import { PipePoller } from '../../../src/daemon/linux/processes/pipe-ends.ts';
import { Terminal } from '../../../src/daemon/linux/processes/pty.ts';
import { ROOT } from '../machine/users.ts';

const poller = new PipePoller();
const terminal = Terminal.open({ cols: 80, rows: 24 }, ROOT, (master) => poller.read(master, () => {}));
terminal.input.accept(Buffer.alloc(1_000_000));
setInterval(() => terminal.resize({ cols: 80, rows: 25 }), 1000);
parentPort?.postMessage('full');
