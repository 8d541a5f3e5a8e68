import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeEach } from 'vitest';
import { needs } from './needs.ts';

const TEST = fileURLToPath(new URL('../..', import.meta.url));

/** The test files that need no root: they do not start processes as other users, change owners or mount. */
const WITHOUT_ROOT = [
  /^(architecture|names)\./,
  /^unit\/base\//,
  /^daemon\/(life\/start|process\/without-root)\./,
  /\/linux\/\w+\/(base64|digest|inotify|links|mounts|signals|tool|write-fully)\./,
  /^unit\/daemon\/http\/(?!rest\/freeze|rpc\/filesystem)/,
  /\/services\/init\/(init|metadata|steps|timestamp)/,
  /\/services\/process\/\w+\/(environment|event-log|events|history|output|output-recovery|reader)\./,
  /\/services\/watch\/(bursts|counted|overflow|races|random|tools)\./,
];

beforeEach(({ task }) => {
  const file = relative(TEST, task.file.filepath);
  if (!WITHOUT_ROOT.some((pattern) => pattern.test(file))) needs('root');
});
