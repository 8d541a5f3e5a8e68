import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { byPid, connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

let daemon: TestDaemon;
beforeEach(async () => {
  needs('root');
  // Neither the daemon's groups nor its priorities are inherited by a process.
  const command = ['setpriv', '--groups=4,24', 'nice', '-n', '7', 'ionice', '-c', '2', '-n', '7'] as const;
  daemon ??= await startDaemon({ command: [...command, ...daemonCommand()] });
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
});

const sh = (script: string) => ({ cmd: '/bin/sh', args: ['-c', script] });

describe('identity', () => {
  test('a process has the groups, home, environment and directory of its user', async () => {
    const { process } = connectTo(daemon.url);
    const script = 'id -u; id -G; pwd; echo $HOME $USER $LOGNAME; env | grep -c NODE; umask';
    const headers = { authorization: `Basic ${Buffer.from('daemon:').toString('base64')}` };
    const run = await transcribe(process.start({ process: sh(script) }, { headers }));
    expect(String(run.stdout).split('\n')).toEqual([
      '1',
      '1',
      '/usr/sbin',
      '/usr/sbin daemon daemon',
      '0',
      '0022',
      '',
    ]);
  });

  test('signals, descriptors, priorities and session are the defaults', async () => {
    needs('ps');
    const { process } = connectTo(daemon.url);
    const script =
      'grep -E "Sig(Blk|Ign)" /proc/self/status; ls /proc/$$/fd; cat /proc/self/oom_score_adj; ' +
      'ps -o sid=,pgid=,ni= -p $$; ionice -p $$';
    const run = await transcribe(process.start({ process: sh(script) }));
    expect(
      String(run.stdout)
        .trim()
        .split(/\s*\n\s*/),
    ).toEqual([
      'SigBlk:\t0000000000000000',
      'SigIgn:\t0000000000000000',
      '0',
      '1',
      '2',
      '100',
      expect.stringMatching(new RegExp(`^${run.pid} +${run.pid} +0$`)),
      'best-effort: prio 4',
    ]);
  });

  test('the streams and the terminal belong to the user, who can open them by name', async () => {
    const { process } = connectTo(daemon.url);
    const headers = { authorization: `Basic ${Buffer.from('daemon:').toString('base64')}` };
    const pipes = sh(
      'echo out >/dev/stdout; echo err >/dev/stderr; cat /dev/stdin; stat -L -c %U /proc/self/fd/0',
    );
    const run = await transcribe(process.start({ process: pipes }, { headers }), async (event, { pid }) => {
      if (event.case === 'start') await process.closeStdin({ process: byPid(pid) });
    });
    expect(String(run.stdout)).toBe('out\ndaemon\n');
    expect(String(run.stderr)).toBe('err\n');
    const terminal = sh('echo out >$(tty); stat -c "%U %a" $(tty)');
    const seen = await transcribe(process.start({ process: terminal, pty: {} }, { headers }));
    expect(String(seen.pty)).toBe('out\r\ndaemon 620\r\n');
  });

  test('the daemon has the lowest OOM score', () => {
    const score = readFileSync(`/proc/${daemon.pid}/oom_score_adj`, 'utf8').trim();
    const refused = daemon.log.some(({ msg }) =>
      msg.startsWith('cannot protect the daemon from the out-of-memory killer'),
    );
    // Without CAP_SYS_RESOURCE (a test in a container) the daemon logs that it cannot set its score.
    expect({ score, refused }).toEqual(refused ? { score: '0', refused } : { score: '-1000', refused });
  });

  test('the cgroup is user for commands, ptys for terminals, the daemon’s own for _system', async () => {
    needs('cgroup v2');
    const { process } = connectTo(daemon.url);
    const cgroup = { cmd: 'sed', args: ['-n', 's/^0:://p', '/proc/self/cgroup'] };
    const name = daemon.cgroupRoot?.split('/').at(-1);
    const { stdout } = await transcribe(process.start({ process: cgroup }));
    expect(String(stdout)).toMatch(new RegExp(`^/${name}/user/\\d+-\\d+\n$`));
    const { pty } = await transcribe(process.start({ process: cgroup, pty: {} }));
    expect(String(pty)).toMatch(new RegExp(`^/${name}/ptys/\\d+-\\d+\r\n$`));
    // The cgroup is removed with its process.
    const leaves = () => readdirSync(`${daemon.cgroupRoot}/ptys`).filter((entry) => /^\d+-/.test(entry));
    await expect.poll(leaves).toEqual([]);
    const own = readFileSync(`/proc/${daemon.pid}/cgroup`, 'utf8').match(/^0::(.*)$/m)?.[1];
    expect(String((await transcribe(process.start({ process: cgroup, tag: '_system' }))).stdout)).toBe(
      `${own}\n`,
    );
  });
});

describe('a daemon that may not lower its own priorities', () => {
  const RAISE = ['sh', '-c', 'echo 500 >/proc/self/oom_score_adj && exec nice -n 7 "$@"', 'sh'] as const;
  const WITHOUT = ['setpriv', '--bounding-set=-sys_nice,-sys_resource'] as const;

  /** What a command of another user has, on pipes and in a terminal, and what the daemon has. */
  async function priorities(raise: readonly [string, ...string[]] = [...RAISE, ...WITHOUT]) {
    await using limited = await startDaemon({ command: [...raise, ...daemonCommand()] });
    const own = readFileSync(`/proc/${limited.pid}/stat`, 'utf8');
    const headers = { authorization: `Basic ${Buffer.from('daemon:').toString('base64')}` };
    const command = sh('echo $(id -un; ps -o ni= -p $$; cat /proc/self/oom_score_adj)');
    const { process } = connectTo(limited.url);
    const piped = await transcribe(process.start({ process: command }, { headers }));
    const inTerminal = await transcribe(process.start({ process: command, pty: {} }, { headers }));
    const [user, nice, score] = String(piped.stdout).trim().split(' ');
    expect(String(inTerminal.pty).trim()).toBe(`${user} ${nice} ${score}`);
    // After the name, which may have blanks: state is the first, nice the 17th.
    return { user, nice, score, own: own.slice(own.lastIndexOf(')') + 2).split(' ')[16] };
  }

  test('starts commands of other users with its nice value', async () => {
    needs('ps');
    const { user, nice, own } = await priorities();
    expect(Number(own)).toBeGreaterThan(0);
    expect([user, nice]).toEqual(['daemon', own]);
  });

  test('starts them with its out-of-memory score', async () => {
    needs('ps', 'a guarded out-of-memory score');
    expect((await priorities()).score).toBe('500');
  });

  test('starts them with its out-of-memory score where it may lower theirs, because they must go first', async () => {
    needs('ps');
    expect((await priorities([...WITHOUT, ...RAISE])).score).toBe('500');
  });
});
