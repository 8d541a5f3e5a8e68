import { useEffect, useRef } from 'preact/hooks';
import { printable } from '../../../output/printable.ts';
import type { TreeDirectory } from '../files/directory-tree.ts';
import { useValue } from '../state/observable.ts';
import type { Workspace } from '../workspace/workspace.ts';

interface DirectoryTreeProps {
  readonly workspace: Workspace;
  /** The directory that is open. */
  readonly path: string;
  /** Whether it could be listed: the tree leads to nothing that may not exist. */
  readonly isListed: boolean;
}

export function DirectoryTreeView({ workspace, path, isListed }: DirectoryTreeProps) {
  const rows = useValue(workspace.tree.rows);
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (path.startsWith('/') && isListed) void workspace.tree.reveal(path);
  }, [path, isListed]);
  useEffect(() => {
    list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' });
  }, [path, rows]);
  const move = (index: number) => (list.current?.children[index] as HTMLElement | undefined)?.focus();
  if (rows.length === 0) return null;
  const isOpened = rows.some((row) => row.path === path);
  return (
    <div class="tree" role="tree" aria-label="Directories" ref={list}>
      {rows.map((row, index) => (
        <div
          key={row.path}
          role="treeitem"
          aria-level={row.depth + 1}
          aria-expanded={row.isOpen}
          aria-selected={row.path === path}
          tabIndex={row.path === path || (!isOpened && index === 0) ? 0 : -1}
          class="twig"
          style={{ paddingLeft: `${row.depth * 0.8 + 0.2}rem` }}
          onClick={() => void workspace.directory.open(row.path)}
          onKeyDown={(event) => handleKey(event, row, workspace, { index, move })}
        >
          <span
            class="knob"
            aria-hidden="true"
            onClick={(event) => {
              event.stopPropagation();
              void workspace.tree.toggle(row.path);
            }}
          >
            {row.isOpen ? '▾' : '▸'}
          </span>
          {printable(row.name)}
        </div>
      ))}
    </div>
  );
}

function handleKey(
  event: KeyboardEvent,
  { path, isOpen }: TreeDirectory,
  { tree, directory }: Workspace,
  { index, move }: { readonly index: number; move(index: number): void },
): void {
  if (event.key === 'ArrowDown') move(index + 1);
  else if (event.key === 'ArrowUp') move(index - 1);
  else if (event.key === 'ArrowRight' && !isOpen) void tree.toggle(path);
  else if (event.key === 'ArrowLeft' && isOpen) void tree.toggle(path);
  else if (event.key === 'Enter' || event.key === ' ') void directory.open(path);
  else return;
  event.preventDefault();
}
