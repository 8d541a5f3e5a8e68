import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EventType } from '../../../src/gen/filesystem/filesystem_pb.js';
import { connectTo } from '../clients/clients.ts';
import { reasonAgainst } from '../machine/machine.ts';
import { needs } from '../machine/needs.ts';
import { PidNamespace } from '../machine/pid-namespace.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
/** Commands that kill every Node server, and the Debian program that each needs. */
const KILLS = [
  ['pkill node', 'ps'],
  ['pkill -f node', 'ps'],
  ['killall node', 'killall'],
  ['kill $(pidof node)', 'pidof'],
] as const;

/** A program as users start it; `command` may use its scratch directory. */
export interface Program {
  /** The name of its process. */
  readonly name: string;
  readonly command: (scratch: string) => string;
  /** The path that answers 2xx. */
  readonly health: string;
  readonly watchesMounts: boolean;
}

/** Tests that a program survives commands that kill everything called `node`. */
export function describeKillsByName(what: string, program: Program): void {
  describe(what, () => {
    const cancel = new AbortController();
    let directory = '';
    let namespace: PidNamespace;
    let url: string;
    let created: AsyncIterator<string>;

    beforeAll(async () => {
      if (reasonAgainst('mounts')) return;
      directory = mkdtempSync(join(tmpdir(), 'envd-kills-'));
      const [behind, mounted] = [join(directory, 'behind'), join(directory, 'mounted')];
      for (const path of [behind, mounted]) mkdirSync(path);
      copyFileSync('/bin/sleep', join(directory, 'node'));
      namespace = new PidNamespace(ROOT);
      url = `http://127.0.0.1:${await namespace.start(program.command(directory))}`;
      if (!program.watchesMounts || reasonAgainst('fuse')) return;
      expect(await namespace.run(`bindfs --no-allow-other ${behind} ${mounted}`)).toBe(0);
      created = watch(url, mounted, cancel.signal);
      expect((await created.next()).value).toBe('start');
    });
    afterAll(async () => {
      cancel.abort();
      await namespace?.[Symbol.asyncDispose]();
      if (directory) rmSync(directory, { recursive: true });
    });

    test.for(KILLS)('lives on after `%s`', async ([kill, requirement]) => {
      needs('mounts', requirement);
      const start = `${directory}/node 1000 & until [ "$(cat /proc/$!/comm)" = node ]; do :; done`;
      // 128 + SIGTERM: a process called `node` is killed.
      expect(await namespace.run(`${start}; ${kill}; wait $!`)).toBe(143);
      expect((await fetch(`${url}${program.health}`)).ok).toBe(true);
      expect(namespace.log.filter(({ msg }) => msg === 'stopping')).toEqual([]);
    });

    test(`is found as '${program.name}'`, async () => {
      needs('mounts', 'ps');
      expect(await namespace.run(`pgrep -x ${program.name}`)).toBe(0);
      const threads = `/proc/$(pgrep -o -x ${program.name})/task/*/comm`;
      expect(await namespace.run(`! grep node ${threads}`)).toBe(0);
    });

    if (!program.watchesMounts) return;
    test('its watcher of network mounts survives', async () => {
      needs('fuse');
      writeFileSync(join(directory, 'behind/poem.txt'), 'roses');
      expect((await created.next()).value).toBe('poem.txt');
    });
  });
}

/** Yields `start`, then the names of created entries. */
async function* watch(url: string, path: string, signal: AbortSignal): AsyncGenerator<string> {
  const stream = connectTo(url).filesystem.watchDir({ path, allowNetworkMounts: true }, { signal });
  for await (const { event } of stream) {
    if (event.case === 'start') yield 'start';
    if (event.case === 'filesystem' && event.value.type === EventType.CREATE) yield event.value.name;
  }
}
