import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { replaceFile } from '../../os/replace-file.ts';
import type { InitStep } from './init.ts';

/** Ends the line that is ours, so that the next call finds it. */
const MARK = '# envd';

/**
 * Gives the address of the platform's hyperloop a name, in place of the one before.
 * @param file hosts(5), `/etc/hosts`
 */
export function hostsStep(file: string, name: string): InitStep {
  return {
    name: 'hosts entry',
    runs: 'unless stale',
    async run({ request: { hyperloopIP } }) {
      if (hyperloopIP === null) return;
      if (isIP(hyperloopIP) === 0) {
        throw new EnvdError('invalid_argument', `hyperloopIP must be an IP address: '${hyperloopIP}'`);
      }
      const current = await readHosts(file);
      const kept = current.split('\n').filter((line) => line !== '' && !line.endsWith(MARK));
      const next = [...kept, `${hyperloopIP}\t${name} ${MARK}`, ''].join('\n');
      if (next !== current) await replaceFile(file, next);
    },
  };
}

async function readHosts(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return '';
    throw error;
  }
}
