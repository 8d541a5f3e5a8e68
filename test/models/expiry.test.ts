import { afterEach, expect, test, vi } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { ExpiryModel, type State } from './expiry.ts';
import { type Clock, Replay } from './replay.ts';
import { Search } from './search.ts';

const NOTHING = { crashes: 0, failures: 0, lost: 0, jumps: 0, wishes: 0 };
const OUTCOMES = ['pause', 'remove'] as const;
/** Walks of the model that are played: ENVD_MODEL_WALKS=1000 for many. */
const WALKS = Number(process.env.ENVD_MODEL_WALKS ?? 12);
const LONGEST = 40;
/** Renewals and jumps of the registry's clock are not played. */
const NOT_PLAYED = /renews|sees that|the clock jumps/;

/** What may go wrong together: `npm run models` searches more. */
test.each([
  { ...NOTHING, crashes: 1, failures: 1 },
  { ...NOTHING, crashes: 1, lost: 1 },
  { ...NOTHING, wishes: 2 },
  { ...NOTHING, jumps: 1, wishes: 1 },
  { ...NOTHING, failures: 1, wishes: 1 },
])('two gateways, %j: in every order of their steps, no sandbox is lost', (budget) => {
  for (const outcome of OUTCOMES) {
    const { violation } = new Search(new ExpiryModel(budget, outcome)).run();
    expect(violation).toBeNull();
  }
});

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** The clocks stand, and no claim is renewed. */
function stoppedClock(): Clock {
  const clock = { now: Math.ceil(performance.now()) };
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  vi.spyOn(performance, 'now').mockImplementation(() => clock.now);
  const hrtime = (): [number, number] => [Math.floor(clock.now / 1000), (clock.now % 1000) * 1e6];
  vi.spyOn(process, 'hrtime').mockImplementation(hrtime);
  return clock;
}

/** By a linear congruential generator: the same walks each time. */
function chance(seed: number): (count: number) => number {
  let state = seed;
  return (count) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * count);
  };
}

test.each(OUTCOMES)(
  'the real gateways do what the model does; what expires is to %s',
  async (outcome) => {
    const clock = stoppedClock();
    const model = new ExpiryModel({ crashes: 1, failures: 2, lost: 1, jumps: 0, wishes: 3 }, outcome);
    for (let seed = 1; seed <= WALKS; seed += 1) {
      const any = chance(seed);
      await using replay = await Replay.start(scratch(), outcome, clock);
      let state: State = model.initial;
      const walked: string[] = [];
      while (walked.length < LONGEST) {
        const moves = model.moves(state).filter(({ name }) => !NOT_PLAYED.test(name));
        const move = moves[any(moves.length)];
        if (!move) break;
        walked.push(move.name);
        await replay.play(move.name, move.to).catch((error: unknown) => {
          throw new Error(`walk ${seed}: ${error}: ${walked.join('; ')}`, { cause: error });
        });
        state = move.to;
      }
    }
  },
  300_000,
);

test('a gateway that was suspended for longer than its lease does not freeze the guest', async () => {
  const clock = stoppedClock();
  const model = new ExpiryModel({ ...NOTHING, wishes: 1 }, 'pause');
  await using replay = await Replay.start(scratch(), 'pause', clock);
  let state: State = model.initial;
  for (const name of [
    'a claims',
    '5000 ms pass',
    'a long time to live is set',
    'b claims',
    'the freeze by b is done',
    'b records that it is done',
    'the thaw by b is done',
    'b records that it is done',
    'a gives up',
  ]) {
    const move = model.moves(state).find((each) => each.name === name);
    if (!move) throw new Error(`the model has no '${name}' here`);
    await replay.play(name, move.to);
    state = move.to;
  }
  expect(state).toMatchObject({ isFrozen: false, record: { phase: 'running' } });
});
