import { useEffect, useState } from 'preact/hooks';
import { Palette } from './parts/palette.tsx';
import { ShortcutList } from './parts/shortcuts.tsx';
import { Observable, useValue } from './state/observable.ts';
import { commandsOf } from './workspace/commands.ts';
import type { Navigation } from './workspace/navigation.ts';
import { VIEWS } from './workspace/place.ts';
import type { PageParts, Workspace } from './workspace/workspace.ts';

/** What lies over the page. */
export type OverlayName = 'commands' | 'shortcuts';

interface OverlaysProps {
  readonly parts: PageParts;
  readonly navigation: Navigation;
  readonly shown: Observable<OverlayName | null>;
}

/** The palette and the list of shortcuts, with the keys that work everywhere. */
export function Overlays({ parts, navigation, shown }: OverlaysProps) {
  const overlay = useValue(shown);
  useEffect(() => {
    const handle = (event: KeyboardEvent) => handleKey(event, navigation, shown);
    window.addEventListener('keydown', handle, true);
    return () => window.removeEventListener('keydown', handle, true);
  }, []);
  const close = () => shown.set(null);
  if (overlay === 'shortcuts') return <ShortcutList onClose={close} />;
  return overlay && <Palette commands={commandsOf(parts, navigation)} onClose={close} />;
}

/** The overlay that is shown, for as long as the component lives. */
export function useOverlay(): Observable<OverlayName | null> {
  return useState(() => new Observable<OverlayName | null>(null))[0];
}

function handleKey(event: KeyboardEvent, navigation: Navigation, shown: OverlaysProps['shown']): void {
  // A dialog has its own keys.
  if (document.querySelector('dialog[open]')) return;
  const act = actionOf(event, navigation, shown);
  if (!act) return;
  event.preventDefault();
  event.stopPropagation();
  act();
}

function actionOf(
  event: KeyboardEvent,
  { current }: Navigation,
  shown: OverlaysProps['shown'],
): (() => unknown) | null {
  const showCommands = () => shown.set('commands');
  const { altKey, shiftKey, key } = event;
  const where = event.target instanceof Element ? event.target : null;
  if (event.ctrlKey || event.metaKey) {
    // Ctrl+K is a key of shells.
    const isFree = !altKey && !shiftKey && !where?.closest('.xterm');
    return isFree && key.toLowerCase() === 'k' ? showCommands : null;
  }
  if (altKey && shiftKey) return event.code === 'KeyK' ? showCommands : inWorkspace(event, current.value);
  const isTyped = where?.closest('input, textarea, select, .xterm');
  return key === '?' && !isTyped ? () => shown.set('shortcuts') : null;
}

/** What Alt+Shift with a key does in a sandbox. */
function inWorkspace({ code }: KeyboardEvent, workspace: Workspace | null): (() => unknown) | null {
  if (workspace === null) return null;
  if (code === 'KeyT') return () => workspace.openShell();
  const view = VIEWS[Number(/^Digit(\d)$/.exec(code)?.[1]) - 1];
  return view ? () => workspace.view.set(view) : null;
}
