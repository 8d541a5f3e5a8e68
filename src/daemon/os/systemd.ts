import { native } from './native.ts';

/** What the service manager is told. */
export type ServiceState = 'ready' | 'stopping';

const MESSAGES: Readonly<Record<ServiceState, string>> = { ready: 'READY=1', stopping: 'STOPPING=1' };

/**
 * Tells the service manager about the daemon's state, sd_notify(3). `socket` is what the manager gave as
 * `NOTIFY_SOCKET`; null: nobody is told. Throws sendto(2)'s errors.
 */
export function notifyServiceManager(socket: string | null, state: ServiceState): void {
  if (socket !== null) native.notify(socket, MESSAGES[state]);
}
