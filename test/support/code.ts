import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Whether V8 takes the code that an image has of its program, with the flags of its launcher. */
export function acceptsCode(image: string, name: string): boolean {
  const launcher = readFileSync(join(image, 'bin', name), 'utf8');
  const flags = /exec "\$lib\/\S+" (.*?) "\$lib/.exec(launcher)?.[1]?.split(' ') ?? [];
  const loader = JSON.stringify(join(image, 'lib', `${name}.cjs`));
  const program = `const { script } = require(${loader}); console.log('rejected:', script.cachedDataRejected)`;
  const args = [...flags, '-e', program, 'argv1', '--version'];
  const output = execFileSync(join(image, 'lib', name), args, { encoding: 'utf8' });
  const [, rejected] = /^rejected: (true|false)$/m.exec(output) ?? [];
  if (!rejected) throw new Error(`V8 was given no code: ${output}`);
  return rejected === 'false';
}
