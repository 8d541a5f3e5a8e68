import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { anonymousMemoryOf, cpuMsOf } from '../../support/machine/proc.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { startGateway } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';

/*
 * Many connections at once, without a token, on which more requests come than one may have: each is closed, and those that it
 * sent beyond its limit are not parsed.
 */

const MIB = 1024 * 1024;
const CONNECTIONS = 200;
const BURST = 'GET /a HTTP/1.1\r\nHost: abcdefghijk\r\n\r\n'.repeat(2000);

for (const [name, start, health] of [
  ['daemon', startDaemon, '/health'],
  ['gateway', startGateway, '/gateway/health'],
] as const) {
  test(`bursts on ${CONNECTIONS} connections of the ${name} take little memory, and CPU as so many single requests do`, async () => {
    const program = await owned<Awaited<ReturnType<typeof start>>>(start());
    const costOf = async (bytes: string) => {
      const before = cpuMsOf(program.pid);
      await attack(program.port, bytes);
      expect((await fetch(program.url + health)).status).toBe(204);
      return cpuMsOf(program.pid) - before;
    };
    const request = BURST.slice(0, BURST.indexOf('GET', 1));
    // The first requests also compile.
    for (let round = 0; round < 3; round++) await costOf(request);
    const single = await costOf(request);
    const memory = anonymousMemoryOf(program.pid);
    let most = memory;
    const watch = setInterval(() => {
      most = Math.max(most, anonymousMemoryOf(program.pid));
    }, 10);
    onTestFinished(() => clearInterval(watch));
    const burst = await costOf(BURST);
    expect(most - memory).toBeLessThan(150 * MIB);
    // Parsing all of what was read takes many times as much.
    expect(burst).toBeLessThan(8 * single + 500);
  });
}

/** Sends the bytes on all connections, and resolves when each has been closed, or answered or left with all sent. */
async function attack(port: number, bytes: string): Promise<void> {
  await Promise.all(
    Array.from({ length: CONNECTIONS }, async () => {
      const socket = connect(port, '127.0.0.1').on('error', () => {});
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.once('connect', () => socket.write(bytes));
      socket.once('data', () => socket.destroy());
      await closed;
    }),
  );
}
