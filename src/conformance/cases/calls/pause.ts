import { strict as assert } from 'node:assert';
import { given, section } from '../../suite/cases.ts';
import { jsonOf, refusedRest, type TestedDaemon, until } from '../../suite/daemon.ts';
import { sh } from '../../suite/running.ts';
import { byPid } from '../../suite/transcript.ts';
import { initAgain, postFor } from './control-calls.ts';

const FREEZE_MEMBERS = [
  ...[
    'mode',
    'visited',
    'allowlisted',
    'truncated',
    'preFrozen',
    'requested',
    'frozen',
    'notFrozen',
    'failed',
  ],
  ...['unobservable', 'sweepMs', 'waitMs'],
];
const COLLAPSE_MEMBERS = ['regions', 'chunks', 'collapsed', 'alreadyHuge', 'skipped', 'elapsedMs'];
/** A process that writes to a file over and over. */
async function ticking(daemon: TestedDaemon) {
  const file = `${await daemon.makeDir()}/ticks`;
  const running = await daemon.start({ process: sh(`while :; do echo >>'${file}'; sleep 0.05; done`) });
  const ticks = async () => (await daemon.stat(file)).size;
  const goesOn = async () => {
    const before = await ticks();
    await until(async () => (await ticks()) > before);
  };
  return { pid: running.pid, ticks, goesOn };
}

/** Ends what a case froze, whatever became of the case. */
const thawAtEnd = (daemon: TestedDaemon) => daemon.atEnd(() => daemon.rest('POST', '/unfreeze'));

const canFreeze = given('freeze', 'cgroups');

export const PAUSE = section('7', 'Pause', {
  'POST /freeze with a wait: 200 with what became of it, and the workload stands still': canFreeze(
    async (daemon) => {
      thawAtEnd(daemon);
      const { ticks, goesOn } = await ticking(daemon);
      await until(async () => (await ticks().catch(() => 0n)) > 0n);
      const answer = await postFor(daemon, '/freeze?maxWaitMs=5000', 200);
      const told = JSON.parse(String(answer.body));
      assert.deepEqual(Object.keys(told).sort(), FREEZE_MEMBERS.toSorted());
      assert.deepEqual([told.failed, told.notFrozen, told.truncated], [0, 0, false]);
      const before = await ticks();
      await new Promise((resolve) => setTimeout(resolve, 300));
      assert.equal(await ticks(), before);
      await postFor(daemon, '/unfreeze', 204);
      await goesOn();
    },
  ),
  'POST /freeze without a wait is 204; /init thaws': canFreeze(async (daemon) => {
    thawAtEnd(daemon);
    const { ticks, goesOn } = await ticking(daemon);
    await until(async () => (await ticks().catch(() => 0n)) > 0n);
    await postFor(daemon, '/freeze', 204);
    assert.equal((await initAgain(daemon)).status, 204);
    await goesOn();
  }),
  'what is frozen can be killed': canFreeze(async (daemon) => {
    thawAtEnd(daemon);
    const { pid } = await ticking(daemon);
    await postFor(daemon, '/freeze?maxWaitMs=5000', 200);
    await daemon.process.sendSignal({ process: byPid(pid), signal: 9 });
    await postFor(daemon, '/unfreeze', 204);
    await until(async () => !(await daemon.process.list({})).processes.some((each) => each.pid === pid));
  }),
  'a process with the tag _system is not frozen': canFreeze(async (daemon) => {
    thawAtEnd(daemon);
    const running = await daemon.start({ process: { cmd: 'cat', cwd: '/' }, tag: '_system' });
    await postFor(daemon, '/freeze?maxWaitMs=5000', 200);
    const value = new TextEncoder().encode('awake');
    await daemon.process.sendInput({
      process: byPid(running.pid),
      input: { input: { case: 'stdin', value } },
    });
    await running.wrote('awake');
    await postFor(daemon, '/unfreeze', 204);
  }),
  'POST /unfreeze is 204 when nothing is frozen': canFreeze(async (daemon) => {
    for (let times = 0; times < 2; times += 1) await postFor(daemon, '/unfreeze', 204);
  }),
  'POST /freeze where nothing can be frozen is 412': given('freeze')(async (daemon) => {
    if (daemon.guest.cgroups) return;
    thawAtEnd(daemon);
    refusedRest(await daemon.rest('POST', '/freeze'), 412);
  }),
  'POST /collapse: its members in this order': given('freeze')(async (daemon) => {
    const told = jsonOf<Record<string, number>>(await daemon.rest('POST', '/collapse'), 200);
    assert.deepEqual(Object.keys(told), COLLAPSE_MEMBERS);
    assert.equal((await daemon.rest('GET', '/health')).status, 204);
  }),
  'POST /fsfreeze and /fsthaw are 204, again too': given(
    'fsfreeze',
    'root',
  )(async (daemon) => {
    daemon.atEnd(() => daemon.rest('POST', '/fsthaw'));
    for (let times = 0; times < 2; times += 1) await postFor(daemon, '/fsfreeze', 204);
    assert.equal((await daemon.rest('GET', '/health')).status, 204);
    for (let times = 0; times < 2; times += 1) await postFor(daemon, '/fsthaw', 204);
    await daemon.upload(daemon.at('file'), 'written again');
  }),
});
