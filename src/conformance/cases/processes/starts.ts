import { strict as assert } from 'node:assert';
import { createHash } from 'node:crypto';
import { Code } from '@connectrpc/connect';
import { type Check, given, section } from '../../suite/cases.ts';
import { as, CODECS, refused, type TestedDaemon, until } from '../../suite/daemon.ts';
import { type Running, type StartInit, sh } from '../../suite/running.ts';

const MIB = 1024 * 1024;
/** A command that cannot be started is either of these. */
const CANNOT_START = [Code.InvalidArgument, Code.NotFound] as const;

const run = async (daemon: TestedDaemon, request: StartInit, headers: Record<string, string> = {}) =>
  (await daemon.start(request, { headers })).ended;

/** The environment of a process. */
async function environment(
  daemon: TestedDaemon,
  envs: Record<string, string> = {},
  headers = {},
): Promise<Map<string, string>> {
  const { stdout } = await run(daemon, { process: { cmd: 'env', cwd: '/', envs }, stdin: false }, headers);
  const lines = String(stdout).split('\n');
  return new Map(lines.map((line) => [line.split('=')[0] ?? '', line.slice(line.indexOf('=') + 1)]));
}

const listed = async (daemon: TestedDaemon, pid: number) =>
  (await daemon.process.list({})).processes.some((each) => each.pid === pid);
const isAlive = async (daemon: TestedDaemon, pid: number) =>
  (await daemon.shell(`kill -0 ${pid} 2>/dev/null && echo yes || echo no`)) === 'yes';

/** Output of a process in both codecs. */
const inBothCodecs =
  (check: (daemon: TestedDaemon, run: (request: StartInit) => Promise<Running>) => Promise<void>): Check =>
  async (daemon) => {
    for (const codec of CODECS) await check(daemon, (request) => daemon.start(request, {}, codec));
  };

const ENDS: readonly (readonly [string, number, boolean, string, string | undefined])[] = [
  ['exit 0', 0, true, 'exit status 0', undefined],
  ['exit 3', 3, true, 'exit status 3', 'exit status 3'],
  ['exit 255', 255, true, 'exit status 255', 'exit status 255'],
  ['kill -KILL $$', -1, false, 'signal: killed', 'signal: killed'],
  ['kill -TERM $$', -1, false, 'signal: terminated', 'signal: terminated'],
  ['kill -HUP $$', -1, false, 'signal: hangup', 'signal: hangup'],
  ['kill -INT $$', -1, false, 'signal: interrupt', 'signal: interrupt'],
];

export const STARTS = section('6', 'Start: environment and identity', {
  'the variables of the user, a PATH, and PWD': async (daemon) => {
    const { name, home } = daemon.guest.user;
    const got = await environment(daemon);
    assert.deepEqual(
      ['HOME', 'USER', 'LOGNAME', 'PWD'].map((each) => got.get(each)),
      [home, name, name, '/'],
    );
    assert(got.get('PATH'));
  },
  'those of another user': given('another user')(async (daemon) => {
    const { name, home } = daemon.other;
    const got = await environment(daemon, {}, as(name));
    assert.deepEqual([got.get('HOME'), got.get('USER'), got.get('LOGNAME')], [home, name, name]);
  }),
  "the daemon's global variables, then those of the request": async (daemon) => {
    const { body } = await daemon.rest('GET', '/envs');
    const global = Object.entries(JSON.parse(String(body)) as Record<string, string>);
    const got = await environment(daemon, { CONFORMANCE: 'a=b c', HOME: '/elsewhere' });
    assert.deepEqual([got.get('CONFORMANCE'), got.get('HOME')], ['a=b c', '/elsewhere']);
    for (const [name, value] of global) if (!value.includes('\n')) assert.equal(got.get(name), value, name);
  },
  'arguments are passed as they are': async (daemon) => {
    const args = ['-c', 'printf "%s|" "$@"', 'sh', '', 'a b', '$HOME', 'ü', '*'];
    const { stdout } = await run(daemon, { process: { cmd: '/bin/sh', args, cwd: '/' } });
    assert.equal(String(stdout), '|a b|$HOME|ü|*|');
  },
  'cwd: a path as in section 3, and PWD is it': async (daemon) => {
    const path = await daemon.makeDir('d');
    const { stdout } = await run(daemon, { process: { ...sh('pwd; echo "$PWD"'), cwd: `${path}/../d/` } });
    assert.equal(String(stdout), `${path}\n${path}\n`);
    const home = await run(daemon, { process: { ...sh('pwd'), cwd: '~' } });
    assert.equal(String(home.stdout), `${daemon.guest.user.home}\n`);
  },
  'cwd: a missing one is refused': async (daemon) => {
    const cwd = daemon.at('none');
    await refused(
      daemon.start({ process: { cmd: 'true', cwd } }),
      Code.InvalidArgument,
      `cwd '${cwd}' does not exist`,
    );
  },
  'cwd: one that the user cannot enter is refused': given('another user')(async (daemon) => {
    const cwd = await daemon.makeDir('closed');
    await daemon.shell(`chmod 700 '${cwd}'`);
    const call = daemon.start({ process: { cmd: 'true', cwd } }, { headers: as(daemon.other.name) });
    await refused(call, [Code.PermissionDenied, Code.InvalidArgument]);
  }),
  'a command that is missing, or is no program, is refused before start': async (daemon) => {
    const start = (cmd: string) => daemon.start({ process: { cmd, cwd: '/' } });
    await daemon.upload(daemon.at('plain'), '#!/bin/sh\necho no\n');
    await refused(start('conformance-none'), CANNOT_START, /no such file|not found|ENOENT/i);
    await refused(start(daemon.at('none')), CANNOT_START, /no such file|not found|ENOENT/i);
    await refused(start(daemon.at('plain')), CANNOT_START, /permission denied|EACCES/i);
    await refused(
      start(await daemon.makeDir('d')),
      CANNOT_START,
      /permission denied|directory|EACCES|EISDIR/i,
    );
    await refused(start(''), CANNOT_START);
  },
  'a script without #! runs through /bin/sh': async (daemon) => {
    const cmd = daemon.at('script');
    await daemon.upload(cmd, 'echo "ran with $1"\n');
    await daemon.shell(`chmod 755 '${cmd}'`);
    const { stdout } = await run(daemon, { process: { cmd, args: ['it'], cwd: '/' } });
    assert.equal(String(stdout), 'ran with it\n');
  },
  "the user's supplementary groups, and none of the daemon's": given('another user')(async (daemon) => {
    const { name, uid, gid } = daemon.other;
    assert.equal(await daemon.shell('id -u; id -g', as(name)), `${uid}\n${gid}`);
    const groups = (await daemon.shell('id -G', as(name))).split(' ').sort();
    assert.deepEqual(groups, (await daemon.shell(`id -G ${name}`)).split(' ').sort());
  }),
  'nice 0, oom_score_adj 100': given('root')(async (daemon) => {
    const stat = await daemon.shell('cat /proc/self/stat; cat /proc/self/oom_score_adj');
    const [line = '', adjustment] = stat.split('\n');
    // After the name, which may have blanks: state is the first, nice the 17th.
    assert.deepEqual([line.split(') ')[1]?.split(' ')[16], adjustment], ['0', '100']);
  }),
  'cgroups: user, ptys for terminals, and neither with the tag _system': given('cgroups')(async (daemon) => {
    const script = { process: sh('cat /proc/self/cgroup') };
    const cgroup = async (more: Partial<StartInit>) => {
      const { stdout, pty } = await run(daemon, { ...script, ...more });
      return /^0::(.*?)\r?$/m.exec(`${stdout}${pty}`)?.[1] ?? '';
    };
    assert.match(await cgroup({}), /\/user(\/|$)/);
    assert.match(await cgroup({ pty: {} }), /\/ptys(\/|$)/);
    assert.doesNotMatch(await cgroup({ tag: '_system' }), /\/(user|ptys)(\/|$)/);
  }),
  'soft limits are not those that a server has raised for itself': async (daemon) => {
    const [soft, hard] = (await daemon.shell('ulimit -Sn; ulimit -Hn')).split('\n');
    assert(Number(soft) <= Number(hard) || hard === 'unlimited');
  },
});

export const OUTPUT = section('6', 'Start: output and end', {
  'start comes first, then data, then one end': inBothCodecs(async (_, start) => {
    const running = await start({ process: sh('echo one; echo two'), stdin: false });
    const { stdout } = await running.ended;
    assert.equal(String(stdout), 'one\ntwo\n');
    const { kinds } = running;
    assert.deepEqual(
      [kinds[0], kinds.at(-1), new Set(kinds.slice(1, -1))],
      ['start', 'end', new Set(['data'])],
    );
  }),
  'stdout and stderr are told apart': inBothCodecs(async (_, start) => {
    const { stdout, stderr, pty } = await (await start({ process: sh('echo out; echo err >&2') })).ended;
    assert.deepEqual([String(stdout), String(stderr), pty.length], ['out\n', 'err\n', 0]);
  }),
  'every byte comes as it was written': inBothCodecs(async (daemon, start) => {
    const bytes = Buffer.from(Array.from({ length: 256 * 64 }, (_, i) => i % 256));
    await daemon.upload(daemon.at('bytes'), bytes);
    const { stdout } = await (await start({ process: { cmd: 'cat', args: [daemon.at('bytes')], cwd: '/' } }))
      .ended;
    assert(bytes.equals(stdout));
  }),
  'all of much output comes before the end': inBothCodecs(async (daemon, start) => {
    const length = 8 * MIB;
    const script = `head -c ${length} /dev/urandom | tee '${await daemon.makeDir()}/copy'`;
    const { stdout, end } = await (await start({ process: sh(script) })).ended;
    assert.deepEqual([stdout.length, end?.exitCode], [length, 0]);
    const sum = (await daemon.shell(`sha256sum <'${daemon.at('copy')}'`)).split(' ')[0];
    assert.equal(createHash('sha256').update(stdout).digest('hex'), sum);
  }),
  ...Object.fromEntries(
    ENDS.map(([script, ...wanted]) => [
      `the end of '${script}'`,
      inBothCodecs(async (_, start) => {
        const { end } = await (await start({ process: sh(script), stdin: false })).ended;
        assert.deepEqual([end?.exitCode, end?.exited, end?.status, end?.error], wanted);
      }),
    ]),
  ),
  'when the stream has ended, the process is not listed and is reaped': async (daemon) => {
    for (let round = 0; round < 5; round += 1) {
      const { pid, ended } = await daemon.start({ process: { cmd: 'true', cwd: '/' } });
      await ended;
      assert.deepEqual([await listed(daemon, pid), await isAlive(daemon, pid)], [false, false]);
    }
  },
  'a background child that keeps the pipes delays the end, and can go on writing': async (daemon) => {
    const path = await daemon.makeDir();
    const [flag, over] = [`${path}/alive`, `${path}/over`];
    const wait = `while test -d '${path}' && ! test -e '${over}'; do sleep 0.1; done`;
    const script = `(${wait}; echo late; echo late >&2; echo yes >'${flag}') & echo first`;
    const { ended } = await daemon.start({ process: sh(script) });
    const { stdout, end } = await ended;
    assert.deepEqual([String(stdout), end?.exitCode], ['first\n', 0]);
    await daemon.upload(over);
    await until(() =>
      daemon.stat(flag).then(
        ({ size }) => size > 0n,
        () => false,
      ),
    );
  },
  'Connect-Timeout-Ms is the deadline of the process, which is killed': async (daemon) => {
    const headers = { 'connect-timeout-ms': '700' };
    const process = { cmd: 'sleep', args: ['100'], cwd: '/' };
    const running = await daemon.start({ process }, { headers });
    await refused(running.ended, Code.DeadlineExceeded);
    await until(async () => !(await isAlive(daemon, running.pid)));
  },
  'Connect-Timeout-Ms 0 is no deadline': async (daemon) => {
    const { end } = await run(daemon, { process: sh('sleep 1; exit 4') }, { 'connect-timeout-ms': '0' });
    assert.equal(end?.exitCode, 4);
  },
  'a process does not end with the request or connection that started it': async (daemon) => {
    const gone = new AbortController();
    const { pid, ended } = await daemon.start(
      { process: { cmd: 'sleep', args: ['100'] } },
      { signal: gone.signal },
    );
    gone.abort();
    await refused(ended, Code.Canceled);
    assert.deepEqual([await listed(daemon, pid), await isAlive(daemon, pid)], [true, true]);
    await daemon.shell(`kill -KILL ${pid}`);
    await until(async () => !(await listed(daemon, pid)));
  },
  'with nobody attached output is drained': async (daemon) => {
    const gone = new AbortController();
    const script = `head -c ${16 * MIB} /dev/zero; echo yes >'${await daemon.makeDir()}/done'`;
    const { ended } = await daemon.start({ process: sh(`sleep 1; ${script}`) }, { signal: gone.signal });
    gone.abort();
    await refused(ended, Code.Canceled);
    await until(async () => (await daemon.names()).includes('done'));
  },
  'keepalives come as often as asked': async (daemon) => {
    const headers = { 'keepalive-ping-interval': '1' };
    await (await daemon.start({ process: { cmd: 'cat', cwd: '/' } }, { headers })).told('keepalive');
  },
  'an interval that is none is not looked at': async (daemon) => {
    for (const interval of ['0', '-1', 'x', '']) {
      const running = await daemon.start(
        { process: sh('sleep 0.2; echo well') },
        { headers: { 'keepalive-ping-interval': interval } },
      );
      assert.equal(String((await running.ended).stdout), 'well\n', interval);
      assert(!running.kinds.includes('keepalive'));
    }
  },
});
