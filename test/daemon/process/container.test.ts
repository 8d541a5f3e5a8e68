import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { Code } from '@connectrpc/connect';
import { expect, test } from 'vitest';
import type { Verdict } from '../../../src/daemon/extensions/doctor/verdict.ts';
import type { HealthReport } from '../../../src/daemon/services/guest/health.ts';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { type CgroupsShown, strictContainer } from '../../support/machine/container.ts';
import { startDaemon } from '../../support/programs/daemon.ts';

const CONTAINERS: readonly (readonly [uid: number, cgroups: CgroupsShown])[] = [
  [0, 'hidden'],
  [54_321, 'read-only'],
];

/** It does not exist and cannot be made. */
const RUNTIME = '--runtime-directory=/run/envd-in-a-container';
const MAIN = 'src/daemon/main.ts';
const missing = (reason: RegExp) => ({ available: false, reason: expect.stringMatching(reason) });

/** What such a container lacks. */
const LACKS = {
  root: missing(
    /^the daemon (is not root: |has no CAP_CHOWN, CAP_DAC_OVERRIDE, .*CAP_SETUID, .*it cannot act as other users)/,
  ),
  clock: missing(/CAP_SYS_TIME.*cannot set the clock/),
  freeze: missing(/cgroup|EROFS/),
  fsfreeze: missing(/CAP_SYS_ADMIN/),
  attributes: missing(/EROFS|EACCES/),
  records: missing(/EROFS|EACCES/),
  recovery: missing(/NOTIFY_SOCKET/),
};

test.each(CONTAINERS)(
  'in a container without rights, as uid %i with cgroups %s, the daemon serves its user',
  async (uid, cgroups) => {
    const { command, directory } = strictContainer(uid, cgroups);
    await using daemon = await startDaemon({ command: command(MAIN), args: [RUNTIME], cgroupRoot: null });
    const client = connectTo(daemon.url);
    const script = 'id -u; grep CapEff /proc/self/status; cat >file; cat file; exit 3';
    const run = await transcribe(
      client.process.start({ process: { cmd: '/bin/sh', args: ['-c', script], cwd: directory }, tag: 'one' }),
      async ({ case: name }) => {
        if (name !== 'start') return;
        const process = { selector: { case: 'tag', value: 'one' } } as const;
        const stdin = new TextEncoder().encode('typed\n');
        await client.process.sendInput({ process, input: { input: { case: 'stdin', value: stdin } } });
        await client.process.closeStdin({ process });
      },
    );
    expect(String(run.stdout)).toBe(`${uid}\nCapEff:\t0000000000000000\ntyped\n`);
    expect(run.end).toMatchObject({ exitCode: 3, exited: true });
    const pty = await transcribe(
      client.process.start({
        process: { cmd: 'tty', cwd: directory },
        pty: { size: { cols: 90, rows: 30 } },
      }),
    );
    expect(String(pty.pty)).toMatch(/^\/dev\/pts\/\d+\r\n$/);
    const put = (path: string) =>
      fetch(`${daemon.url}/files?${new URLSearchParams({ path })}`, {
        method: 'POST',
        headers: { 'content-type': 'application/octet-stream' },
        body: 'content',
      });
    expect((await put(`${directory}/made/by/upload`)).status).toBe(200);
    expect(await (await fetch(`${daemon.url}/files?path=${directory}/made/by/upload`)).text()).toBe(
      'content',
    );
    const { entry } = await client.filesystem.stat({ path: `${directory}/made/by/upload` });
    expect(entry).toMatchObject({ size: 7n, owner: uid === 0 ? 'root' : `${uid}` });
    const refused = await put('/etc/of-a-client');
    expect([refused.status, await refused.text()]).toEqual([403, expect.stringMatching(/read-only/i)]);
    const found: string[] = [];
    for await (const { event } of client.filesystem.find({ path: `${directory}/made`, content: 'content' }))
      if (event.case === 'found') found.push(`${event.value.path}:${event.value.text}`);
    expect(found).toEqual([`${directory}/made/by/upload:content`]);
    const change = { path: `${directory}/made`, content: 'content', replacement: 'changed' };
    await client.filesystem.replace(change);
    expect(readFileSync(`${directory}/made/by/upload`, 'utf8')).toBe('changed');
    const { watcherId } = await client.filesystem.createWatcher({ path: directory });
    writeFileSync(`${directory}/seen`, '');
    await expect
      .poll(async () =>
        (await client.filesystem.getWatcherEvents({ watcherId })).events.map(({ name }) => name),
      )
      .toContain('seen');
    const other = { headers: { authorization: `Basic ${btoa('daemon:')}` } };
    await expect(client.filesystem.stat({ path: '/' }, other)).rejects.toMatchObject({
      code: Code.PermissionDenied,
      rawMessage: expect.stringContaining('alone; start it'),
    });
    expect((await fetch(`${daemon.url}/freeze`, { method: 'POST' })).status).toBe(412);
    expect((await fetch(`${daemon.url}/init`, { method: 'POST', body: '{"accessToken":"x"}' })).status).toBe(
      204,
    );
    expect(await daemon.stop()).toBe(0);
  },
);

test.each(CONTAINERS)(
  'as uid %i with cgroups %s, the health and the doctor say what is missing',
  async (uid, cgroups) => {
    const { command } = strictContainer(uid, cgroups);
    await using daemon = await startDaemon({ command: command(MAIN), args: [RUNTIME], cgroupRoot: null });
    const { abilities } = (await (await fetch(`${daemon.url}/health?verbose`)).json()) as HealthReport;
    expect(abilities).toMatchObject(LACKS);
    const [program, ...args] = command(MAIN);
    const { status, stdout } = spawnSync(program, [...args, 'doctor', '--host=127.0.0.1', RUNTIME], {
      encoding: 'utf8',
    });
    expect(status).toBe(3);
    const told = JSON.parse(stdout) as { abilities: object; verdict: Verdict };
    expect(told.abilities).toMatchObject({ ...LACKS, recovery: { available: expect.any(Boolean) } });
    expect(told.verdict).toMatchObject({
      readyForPause: false,
      obstacles: [expect.stringMatching(/^clock: /), expect.stringMatching(/^freeze: /)],
      limits: expect.arrayContaining([
        expect.stringMatching(/^fsfreeze: /),
        expect.stringMatching(/^attributes: /),
      ]),
    });
  },
);
