import type { Sandbox } from '../leases/sandbox.ts';

/** A sandbox as the platform operations show it; `state` in the two words that published clients know. */
export function viewOf(sandbox: Sandbox) {
  const { id, address, port, metadata, envdVersion, onExpiry, phase, startedAt, deadline, failures } =
    sandbox;
  return {
    sandboxID: id,
    state: stateOf(sandbox),
    phase,
    ...{ address, port, metadata, envdVersion, onExpiry },
    startedAt: new Date(startedAt).toISOString(),
    endAt: new Date(deadline).toISOString(),
    failures,
  };
}

/** The same with the token, for whoever is about to connect. */
export function viewWithToken(sandbox: Sandbox) {
  const { accessToken } = sandbox;
  return { ...viewOf(sandbox), ...(accessToken !== null && { envdAccessToken: accessToken }) };
}

export function stateOf({ phase }: Sandbox): 'running' | 'paused' {
  return phase === 'paused' ? 'paused' : 'running';
}
