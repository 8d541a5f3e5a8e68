import { formatBytes } from '../../../output/formats.ts';
import { printable } from '../../../output/printable.ts';
import type { GuestMonitor } from '../state/guest-monitor.ts';
import { ageOf, commandOf, type GuestSnapshot } from '../state/guest-snapshot.ts';
import { useValue } from '../state/observable.ts';
import type { HealthMessage, ProcessMessage } from '../wire/messages.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { useAllProcesses } from './all-processes.ts';
import { GlancePlots } from './glance-plots.tsx';
import { useSystem } from './guest-system.ts';

export function GlanceView({ workspace }: { readonly workspace: Workspace }) {
  const { monitor } = workspace;
  const state = useValue(monitor.state);
  return (
    <div class="glance" tabIndex={0} role="region" aria-label="Glance">
      <Facts state={state} workspace={workspace} />
      <Staleness state={state} seenAt={monitor.seenAt} />
      <GlancePlots monitor={monitor} />
      <Since monitor={monitor} />
      <Busiest workspace={workspace} />
      <Abilities abilities={state.health?.abilities ?? {}} />
    </div>
  );
}

interface FactsProps {
  readonly state: GuestSnapshot;
  readonly workspace: Workspace;
}

function Facts({ state: { reach, message, health, listeners, ports }, workspace }: FactsProps) {
  const system = useSystem(workspace.monitor, workspace.daemon, reach === 'reachable');
  const open = listeners ?? ports?.ports ?? [];
  const numbers = [...new Set(open.map(({ port }) => port))].sort((one, other) => one - other);
  const frozen = [
    health?.frozen?.workload && 'the workload',
    health?.frozen?.filesystem && 'the file system',
  ];
  const facts: readonly (readonly [string, string])[] = [
    ['Sandbox', workspace.name],
    ['State', reach === 'lost' ? `lost: ${message}` : reach],
    ['Host name', system?.hostName || 'not told'],
    ['System', system?.name || 'not told'],
    ['Up for', ageOf(system?.bootedAt)],
    ['Ports', numbers.join(', ') || 'none is known'],
    ['Version', health?.version === undefined ? 'not told' : `envd ${health.version}`],
    ['Interface', health?.interface ?? 'not told'],
    ['Daemon runs for', health?.since === undefined ? 'not told' : ageOf(health.since)],
    ['Frozen', health?.frozen ? frozen.filter(Boolean).join(' and ') || 'no' : 'not told'],
  ];
  return (
    <dl class="facts">
      {facts.map(([title, value]) => (
        <div key={title}>
          <dt>{title}</dt>
          <dd class="wrap">{printable(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

const MOST_BUSY = 5;

/** The processes that take most of the CPU, and of memory where that is equal. */
function Busiest({ workspace }: { readonly workspace: Workspace }) {
  const { processes, cpu } = useAllProcesses(workspace);
  const cpuOf = ({ pid }: ProcessMessage) => cpu.get(pid) ?? 0;
  const memoryOf = ({ usage }: ProcessMessage) => Number(usage?.memoryBytes ?? 0);
  const busy = processes
    .filter(({ usage }) => usage !== undefined)
    .sort((one, other) => cpuOf(other) - cpuOf(one) || memoryOf(other) - memoryOf(one))
    .slice(0, MOST_BUSY);
  if (busy.length === 0) return null;
  return (
    <>
      <h2>Busiest processes</h2>
      <table class="busiest">
        <thead>
          <tr>
            {['PID', 'CPU', 'Memory', 'Command'].map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {busy.map((process) => (
            <tr key={process.pid}>
              <td>{process.pid}</td>
              <td>{cpuOf(process).toFixed(1)} %</td>
              <td>{formatBytes(memoryOf(process))}</td>
              <td>{printable(commandOf(process))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/** From when the figures are, while the daemon does not answer. */
function Staleness({
  state: { reach },
  seenAt,
}: {
  readonly state: GuestSnapshot;
  readonly seenAt: Date | null;
}) {
  if (reach === 'reachable' || seenAt === null) return null;
  return (
    <p class="problem">
      All figures are of {seenAt.toTimeString().slice(0, 8)}, when the daemon answered last.
    </p>
  );
}

/** Why the plots may begin when the page was opened. */
function Since({ monitor }: { readonly monitor: GuestMonitor }) {
  if (useValue(monitor.hasHistory) !== false) return null;
  return (
    <p class="muted">
      This daemon keeps no figures, so the plots begin at {monitor.since.toTimeString().slice(0, 5)}, when the
      page was opened.
    </p>
  );
}

function Abilities({ abilities }: { readonly abilities: NonNullable<HealthMessage['abilities']> }) {
  const names = Object.entries(abilities);
  if (names.length === 0) return null;
  return (
    <details>
      <summary>What this guest can</summary>
      <ul class="abilities">
        {names.map(([name, { available, reason }]) => (
          <li key={name} class={available ? '' : 'muted'}>
            {available ? '✓' : '✗'} {printable(name)}
            {!available && `: ${printable(reason ?? 'no reason is told')}`}
          </li>
        ))}
      </ul>
    </details>
  );
}
