import { beforeEach, describe, expect, test } from 'vitest';
import {
  type Outcome,
  patternOf,
  RUN_IN_ORDER,
  readBlocks,
  startsGateway,
} from '../support/code/documents.ts';
import { needs } from '../support/machine/needs.ts';
import { runBlocks } from '../support/programs/talk.ts';

/* Runs each block of these documents as it stands. test/docs.test.ts says what runs the blocks of `console`. */

describe.each(RUN_IN_ORDER.map((documents) => ({ documents })))('$documents', ({ documents }) => {
  const blocks = documents
    .flatMap(readBlocks)
    .filter((block) => block.language !== 'console' || startsGateway(block));
  let outcomes: Outcome[];
  beforeEach(async () => {
    needs('mounts', 'ip', 'curl', 'openssl', 'python3', 'cgroup v2');
    outcomes ??= await runBlocks(blocks);
  });

  test.each(blocks.map(({ file, heading, line }, index) => [file, heading, line, index] as const))(
    '%s, %s: the block at line %i prints what is below it',
    (_file, _heading, _line, index) => {
      const { language, code, output } = blocks[index] ?? { language: '', code: '', output: '' };
      const { stdout, stderr, exitCode } = outcomes[index] ?? { stdout: '', stderr: '', exitCode: null };
      if (language === 'html') needs('chromium');
      if (language === 'py') needs('the published Python client');
      if (/^e2b /m.test(code)) needs('the published command-line client');
      // Chromium complains about a machine without a desktop.
      expect({ exitCode, stderr: language === 'html' ? '' : stderr }).toEqual({ exitCode: 0, stderr: '' });
      expect(stdout).toMatch(patternOf(output));
    },
  );
});
