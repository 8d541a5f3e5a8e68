/**
 * What a unary call costs the daemon in CPU, with everything around it (hooks, gate, log), beside the same methods
 * through connect-node on a bare `node:http` server with the daemon's flags. Run: `npm run bench -- unary`
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, type DescMessage, type MessageInitShape, toBinary, toJsonString } from '@bufbuild/protobuf';
import { ListDirRequestSchema, StatRequestSchema } from '../../src/gen/filesystem/filesystem_pb.js';
import { filesPerSecond } from '../support/clients/bench-files-client.ts';
import { startPlain } from '../support/clients/plain-connect.ts';
import { DAEMON_FLAGS, startBenchDaemon } from './daemon.ts';
import { cpuOf, printTable, show, takeTurns } from './figures.ts';

const ROUNDS = Number(process.env.ROUNDS ?? 7);
const CALLS = 2000;
const CONNECTIONS = 16;
const ENTRIES = 100;

function call<Schema extends DescMessage>(
  method: string,
  schema: Schema,
  init: MessageInitShape<Schema>,
  codec: 'json' | 'proto',
): Buffer {
  const message = create(schema, init);
  const body = codec === 'json' ? Buffer.from(toJsonString(schema, message)) : toBinary(schema, message);
  const head = [
    `POST /filesystem.Filesystem/${method} HTTP/1.1`,
    'host: bench',
    `content-type: application/${codec}`,
    'connect-protocol-version: 1',
    `content-length: ${body.length}`,
  ];
  return Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), body]);
}

async function compare(): Promise<void> {
  await using daemon = await startBenchDaemon();
  const plain = fork(import.meta.filename, ['plain'], { execArgv: DAEMON_FLAGS });
  const [plainPort] = (await once(plain, 'message')) as [number];
  const directory = join(daemon.scratch, 'listed');
  mkdirSync(directory);
  for (let index = 0; index < ENTRIES; index++) writeFileSync(join(directory, String(index)), '');
  const rows: Record<string, string>[] = [];
  for (const codec of ['json', 'proto'] as const) {
    for (const [name, request] of [
      ['Stat', call('Stat', StatRequestSchema, { path: directory }, codec)],
      [`ListDir, ${ENTRIES} entries`, call('ListDir', ListDirRequestSchema, { path: directory }, codec)],
    ] as const) {
      const requests = Array.from({ length: CALLS }, () => request);
      const cost = (pid: number, port: number) => () =>
        cpuOf(pid, () => filesPerSecond(port, requests, CONNECTIONS));
      const cpu = await takeTurns(
        { ours: cost(daemon.pid, daemon.port), plain: cost(plain.pid ?? 0, plainPort) },
        ROUNDS,
      );
      rows.push({
        call: name,
        codec,
        'ours, µs': show((cpu.ours * 1000) / CALLS),
        'connect-node, µs': show((cpu.plain * 1000) / CALLS),
        'ours / connect-node': (cpu.ours / cpu.plain).toFixed(2),
      });
    }
  }
  plain.disconnect();
  printTable(`CPU of a call, medians of ${ROUNDS} rounds, ${CONNECTIONS} connections`, rows);
}

if (process.argv[2] === 'plain') {
  const { url } = await startPlain();
  process.send?.(Number(new URL(url).port));
  process.on('disconnect', () => process.exit());
} else {
  await compare();
}
