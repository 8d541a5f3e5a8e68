import type { PageCommand } from '../parts/palette.tsx';
import { THEMES } from '../parts/theme.ts';
import { durationOf } from '../state/guest-snapshot.ts';
import type { Navigation } from './navigation.ts';
import { VIEWS } from './place.ts';
import { EXTENSIONS_S, extendSandbox, resumeSandbox } from './sandbox-operations.ts';
import type { PageParts, Workspace } from './workspace.ts';

/** What can be done where the user is, for the palette. */
export function commandsOf(parts: PageParts, navigation: Navigation): PageCommand[] {
  const current = navigation.current.value;
  return [
    ...(current ? [...inWorkspace(current), ...onSandbox(parts, current)] : []),
    ...(parts.client.about.hasGateway && current
      ? [{ name: 'All sandboxes', run: () => navigation.show(null) }]
      : []),
    ...parts.list.state.value.sandboxes.map(({ sandboxID }) => ({
      name: `Open the sandbox ${sandboxID}`,
      run: () => navigation.show(sandboxID),
    })),
    { name: 'New window', run: () => void openWindow(parts) },
    ...THEMES.map((theme) => ({ name: `Theme: ${theme}`, run: () => parts.theme.set(theme) })),
  ];
}

/** Opens another window at the place of this one. */
export function openWindow({ client, notices }: PageParts): Promise<boolean> {
  return notices.attempt(async () => window.open(await client.newLink(), '_blank', 'noopener'));
}

function inWorkspace(workspace: Workspace): PageCommand[] {
  const { terminals, view } = workspace;
  return [
    ...VIEWS.map((name, index) => ({
      ...{ name, keys: `Alt+Shift+${index + 1}` },
      run: () => view.set(name),
    })),
    { name: 'New terminal', keys: 'Alt+Shift+T', run: () => void workspace.openShell() },
    ...terminals.tabs.value.map((tab, index) => ({
      name: `Terminal ${index + 1}: ${tab.state.value.name ?? tab.state.value.title}`,
      run: () => {
        terminals.current.set(tab);
        view.set('Terminals');
      },
    })),
  ];
}

function onSandbox(parts: PageParts, { sandbox, lease }: Workspace): PageCommand[] {
  const kind = lease?.state.value.kind;
  if (sandbox === null) return [];
  if (kind === 'paused') return [{ name: 'Resume', run: () => void resumeSandbox(parts, sandbox) }];
  if (kind !== 'running') return [];
  return [
    ...EXTENSIONS_S.map((seconds) => ({
      name: `Extend by ${durationOf(seconds)}`,
      run: () => void extendSandbox(parts, sandbox, seconds),
    })),
    { name: 'Pause', run: () => void parts.notices.attempt(() => parts.list.change(sandbox, 'pause')) },
  ];
}
