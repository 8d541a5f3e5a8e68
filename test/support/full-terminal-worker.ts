// Writes more input to a terminal than it takes, and is terminated.
import { parentPort } from 'node:worker_threads';
import { Terminal } from '../../src/daemon/os/pty.ts';
import { ROOT } from './users.ts';

const terminal = Terminal.open({ cols: 80, rows: 24 }, ROOT);
terminal.input.write(Buffer.alloc(1_000_000));
setInterval(() => terminal.resize({ cols: 80, rows: 25 }), 1000);
parentPort?.postMessage('full');
