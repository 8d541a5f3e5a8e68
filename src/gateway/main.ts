import process from 'node:process';
import { EnvdError, messageOf } from '../base/errors.ts';
import { nameProcess } from '../base/process-name.ts';
import { run } from './run.ts';

try {
  nameProcess('envd-gateway');
  await run();
} catch (error) {
  process.stderr.write(`envd-gateway: ${messageOf(error)}\n`);
  // 2: a value that was understood and cannot be used.
  process.exitCode = error instanceof EnvdError && error.kind === 'invalid_argument' ? 2 : 1;
}
