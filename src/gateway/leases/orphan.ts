import { DAEMON_PORT, type Sandbox } from './sandbox.ts';
import { register, toRemoving } from './transitions.ts';

/** Returns a record for a machine that has none, so that the kill hook removes the machine as it does any other. */
export function removeOrphan(id: string, now: number): Sandbox {
  const nowhere = {
    address: '',
    ip: null,
    port: DAEMON_PORT,
    accessToken: null,
    envdVersion: '0.0.0',
    metadata: {},
  };
  const record = register(null, { id, ...nowhere, onExpiry: 'remove', owner: null }, 0, now);
  return toRemoving({ ...record, endCause: 'orphan' }, now);
}
