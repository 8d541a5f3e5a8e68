import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Whether V8 takes the code that an image has of its program, with the flags of its launcher. */
export function acceptsCode(image: string, name: string): boolean {
  const launcher = readFileSync(join(image, 'bin', name), 'utf8');
  const output = execFileSync(join(image, 'lib', name), argumentsToAsk(image, name, launcher), {
    encoding: 'utf8',
  });
  return isAccepted(output);
}

/** Arguments with which the Node of an image, whose launcher has this text, tells whether V8 takes the code. */
export function argumentsToAsk(image: string, name: string, launcher: string): string[] {
  const loader = JSON.stringify(join(image, 'lib', `${name}.cjs`));
  const program = `console.log('rejected:', require(${loader}).script.cachedDataRejected)`;
  return [...flagsOf(launcher), '-e', program, 'argv1', '--version'];
}

/** The flags that a launcher gives Node. */
function flagsOf(launcher: string): string[] {
  return /(?:exec|set --) "\$lib\/\S+" (--.*?) "\$lib\/\S+\.cjs"/.exec(launcher)?.[1]?.split(' ') ?? [];
}

/** Reads what it has printed. */
export function isAccepted(output: string): boolean {
  const [, rejected] = /^rejected: (true|false)$/m.exec(output) ?? [];
  if (!rejected) throw new Error(`V8 was given no code: ${output}`);
  return rejected === 'false';
}
