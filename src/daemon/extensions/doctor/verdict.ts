import type { Abilities } from '../../services/guest/abilities.ts';

/** Whether a platform may pause and resume this guest. */
export interface Verdict {
  readonly readyForPause: boolean;
  /** Why it may not. */
  readonly obstacles: readonly string[];
  /** What else does not work. A pause does without it. */
  readonly limits: readonly string[];
  /** The options that the kernel seems to be built without. */
  readonly kernelOptions: readonly string[];
}

/**
 * A pause needs these: programs that go on during the pause see it as a jump of the clock in the middle of their work, and a guest
 * whose clock cannot be set stays behind after each resume.
 */
const NEEDED: readonly (keyof Abilities)[] = ['freeze', 'clock'];

/** Judges what a guest can. */
export function judge(abilities: Abilities, kernelOptions: readonly string[]): Verdict {
  const missing = Object.entries(abilities).flatMap(([name, ability]) =>
    ability.available ? [] : [{ isNeeded: isNeeded(name), text: `${name}: ${ability.reason}` }],
  );
  const obstacles = missing.filter((one) => one.isNeeded).map(({ text }) => text);
  const limits = missing.filter((one) => !one.isNeeded).map(({ text }) => text);
  return { readyForPause: obstacles.length === 0, obstacles, limits, kernelOptions };
}

function isNeeded(name: string): boolean {
  return NEEDED.some((needed) => needed === name);
}
