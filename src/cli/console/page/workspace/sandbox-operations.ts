import { formatSeconds } from '../../../output/formats.ts';
import { printable } from '../../../output/printable.ts';
import type { TableSort } from '../parts/data-table.tsx';
import type { Notices } from '../parts/notices.tsx';
import { assignmentsIn, type Questions } from '../parts/questions.tsx';
import { durationOf } from '../state/guest-snapshot.ts';
import type { Observable } from '../state/observable.ts';
import type { SandboxList } from '../state/sandbox-list.ts';

/** Where the user is in the list, which stays when a sandbox is opened. */
export interface ListPlace {
  readonly selected: readonly string[];
  readonly filter: string;
  readonly sort: TableSort | null;
}

/** What the operations on a sandbox need. */
export interface SandboxParts {
  readonly list: SandboxList;
  readonly questions: Questions;
  readonly notices: Notices;
  readonly listPlace: Observable<ListPlace>;
}

/** By how many seconds a sandbox can be extended. */
export const EXTENSIONS_S = [600, 3600];

/** Returns whether it was extended. */
export function extendSandbox(
  { list, notices }: SandboxParts,
  id: string,
  seconds: number,
): Promise<boolean> {
  return notices.attempt(async () => {
    const leftMs = await list.extend(id, seconds);
    notices.say(`${printable(id)} was extended by ${durationOf(seconds)}${leftText(leftMs)}.`);
  });
}

/** Resumes it for the time that it had left, and returns whether it runs. */
export function resumeSandbox({ list, notices }: SandboxParts, id: string): Promise<boolean> {
  return notices.attempt(async () => {
    await list.change(id, 'resume', {});
    const sandbox = list.find(id);
    notices.say(`${printable(id)} runs again${leftText(sandbox ? list.leftMs(sandbox) : null)}.`);
  });
}

const LIFETIMES: readonly (readonly [seconds: string, label: string])[] = [
  ['3600', '1 hour'],
  ['300', '5 minutes'],
  ['86400', '1 day'],
];

/** Asks what a new sandbox is like, and creates it; null: there is none. */
export async function createSandbox({ list, questions, notices }: SandboxParts): Promise<string | null> {
  const names = [
    ...(await list.templates()),
    ...list.state.value.sandboxes.map(({ alias, templateID = '' }) => alias ?? templateID),
  ];
  const choices = [...new Set(names)].filter(Boolean).map((name) => [name, name] as const);
  const answer = await questions.ask({
    title: 'Create a sandbox',
    fields: [
      { name: 'template', label: 'Template', choices, value: choices[0]?.[0] ?? '' },
      { name: 'timeout', label: 'Time', kind: 'choice', choices: LIFETIMES },
      { name: 'pauses', label: 'Pause it when the time is up, instead of removing it', kind: 'check' },
      { name: 'private', label: 'Its ports are private', kind: 'check' },
      { name: 'metadata', label: 'Metadata', kind: 'lines', hint: 'NAME=VALUE, one a line' },
    ],
    answers: [{ name: 'yes', label: 'Create' }],
  });
  const { template = '', timeout, pauses, metadata, ...values } = answer?.values ?? {};
  if (template === '') return null;
  let id = '';
  const isDone = await notices.attempt(async () => {
    notices.say(`A sandbox of ${printable(template)} is being created.`);
    id = await list.create({
      ...{ templateID: template, timeout: Number(timeout), autoPause: pauses === 'on' },
      ...{ metadata: assignmentsIn(metadata), network: { allowPublicTraffic: values.private !== 'on' } },
    });
    notices.say(`${printable(id)} was created.`);
  });
  return isDone && id !== '' ? id : null;
}

function leftText(leftMs: number | null): string {
  return leftMs === null ? '' : `, and has ${formatSeconds(leftMs / 1000)} left`;
}
