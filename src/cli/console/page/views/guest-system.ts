import { useEffect } from 'preact/hooks';
import type { GuestMonitor } from '../state/guest-monitor.ts';
import type { GuestSystem } from '../state/guest-snapshot.ts';
import { useValue } from '../state/observable.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';

/** What the guest says of itself, read whenever it is reachable again; null: not known yet. */
export function useSystem({ system }: GuestMonitor, daemon: DaemonClient, isReachable: boolean) {
  useEffect(() => {
    if (isReachable) void readSystem(daemon).then((read) => system.set(read));
  }, [isReachable]);
  return useValue(system);
}

async function readSystem(daemon: DaemonClient): Promise<GuestSystem> {
  const [hostName = '', kernel = '', release = '', uptime = ''] = await Promise.all(
    ['/proc/sys/kernel/hostname', '/proc/sys/kernel/osrelease', '/etc/os-release', '/proc/uptime'].map(
      (path) =>
        daemon
          .get('/files', { path }, { headers: { range: 'bytes=0-4095' } })
          .then((response) => response.text())
          .catch(() => ''),
    ),
  );
  const seconds = Number.parseFloat(uptime);
  return {
    hostName: hostName.trim(),
    name: [/^PRETTY_NAME="?([^"\n]*)/m.exec(release)?.[1], kernel && `Linux ${kernel.trim()}`]
      .filter(Boolean)
      .join(', '),
    bootedAt: Number.isNaN(seconds) ? undefined : new Date(Date.now() - seconds * 1000).toISOString(),
  };
}
