import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { formatBytes } from '../../../output/formats.ts';
import { printable } from '../../../output/printable.ts';
import { droppedItems } from '../files/dropped-files.ts';
import { type FileEntry, fileNameOf, parentOf } from '../files/file-entry.ts';
import { byText, type DataColumn, DataTable, sortedRows } from '../parts/data-table.tsx';
import { useValue } from '../state/observable.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { DirectoryTreeView } from './directory-tree-view.tsx';
import { FileActions } from './file-actions.ts';
import { EntryTools, FileTools } from './file-tools.tsx';
import { FileViewer } from './file-viewer.tsx';
import { UploadBar } from './upload-bar.tsx';

const COLUMNS: readonly DataColumn<FileEntry>[] = [
  {
    title: 'Name',
    width: 'minmax(8rem, 1fr)',
    cell: ({ name, kind, isLink }) => (
      <span class={`name ${kind}`}>
        {printable(name)}
        {kind === 'directory' && '/'}
        {isLink && ' →'}
      </span>
    ),
    compare: (one, other) => byText(one.name, other.name),
  },
  {
    title: 'Size',
    width: '5.5rem',
    isNumber: true,
    cell: ({ size, kind }) => (kind === 'file' ? formatBytes(size) : ''),
    compare: (one, other) => sizeOf(one) - sizeOf(other),
  },
  {
    title: 'Modified',
    width: '12.5rem',
    isWide: true,
    cell: ({ modified }) => (modified ? localTime(modified) : ''),
    compare: (one, other) => Number(one.modified) - Number(other.modified),
  },
  { title: 'Mode', width: '6.5rem', isWide: true, cell: ({ permissions }) => printable(permissions) },
  { title: 'Owner', width: '6rem', isWide: true, cell: ({ owner }) => printable(owner) },
];

/** By the clock of the user, in the order of ISO 8601. */
function localTime(time: Date): string {
  return Number.isNaN(time.getTime()) ? '-' : time.toLocaleString('sv-SE');
}

/** That of a directory says nothing of what is in it. */
function sizeOf({ kind, size }: FileEntry): number {
  return kind === 'file' ? size : -1;
}

export function FilesView({ workspace }: { readonly workspace: Workspace }) {
  const listing = useValue(workspace.directory.listing);
  const [filter, setFilter] = useState('');
  const [selected, setSelected] = useState<readonly string[]>([]);
  const shown = useValue(workspace.file);
  const sort = useValue(workspace.sortedFiles);
  const actions = useMemo(() => new FileActions(workspace, (name) => setSelected([name])), [workspace]);
  useOpenDirectory(workspace);
  useEffect(() => setFilter(''), [listing.path]);
  const rows = useMemo(
    () =>
      sortedRows(
        listing.entries.filter(({ name }) => name.toLowerCase().includes(filter.toLowerCase())),
        COLUMNS,
        sort,
      ),
    [listing.entries, filter, sort],
  );
  const names = new Set(selected);
  const chosen = rows.filter(({ name }) => names.has(name));
  const open = (each: FileEntry) => {
    if (each.kind === 'directory') void workspace.directory.open(each.path);
    else if (each.kind === 'file') workspace.file.set(each.path);
  };
  return (
    <DropZone actions={actions}>
      <FileTools {...{ workspace, actions, chosen, listing, filter, setFilter, open }} />
      <UploadBar uploads={workspace.uploads} />
      <UnsavedEdits workspace={workspace} />
      {listing.problem && <p class="problem wrap">{listing.problem}</p>}
      <div class="panes">
        <DirectoryTreeView
          {...{ workspace, path: listing.path, isListed: !listing.isLoading && listing.problem === null }}
        />
        <DataTable
          {...{ label: `Files in ${printable(listing.path)}`, columns: COLUMNS, rows, selected, sort }}
          hasSeveral
          menu={<EntryTools {...{ actions, chosen, open }} />}
          onSort={(wanted) => workspace.sortedFiles.set(wanted)}
          keyOf={({ name }) => name}
          onSelect={setSelected}
          onOpen={open}
          onKey={(event, each) => handleKey(event, each, chosen, actions)}
        />
        {shown && (
          <FileViewer key={shown} {...{ workspace, path: shown }} onClose={() => workspace.file.set(null)} />
        )}
      </div>
    </DropZone>
  );
}

/** The files with edits that are not saved, besides the one that is shown. */
function UnsavedEdits({ workspace }: { readonly workspace: Workspace }) {
  const drafts = useValue(workspace.drafts.all);
  const shown = useValue(workspace.file);
  const others = [...drafts.keys()].filter((path) => path !== shown);
  if (others.length === 0) return null;
  return (
    <div class="bar" role="status">
      Not saved yet:
      {others.map((path) => (
        <button key={path} type="button" title={printable(path)} onClick={() => workspace.file.set(path)}>
          {printable(fileNameOf(path))}
        </button>
      ))}
    </div>
  );
}

function handleKey(
  event: KeyboardEvent,
  entry: FileEntry | undefined,
  chosen: readonly FileEntry[],
  actions: FileActions,
): void {
  if (event.key === 'Backspace') actions.goTo(parentOf(actions.path));
  else if (event.key === 'Delete' && entry) void actions.remove(chosen);
  else if (event.key === 'F2' && entry) void actions.rename(entry);
  else return;
  event.preventDefault();
}

/** Opens the directory where the user was, or the home, and watches it while the view is shown. */
function useOpenDirectory({ directory }: Workspace): void {
  useEffect(() => {
    const { path } = directory.listing.value;
    void (path === '' ? directory.openHome() : directory.open(path));
    return () => directory.close();
  }, [directory]);
}

interface DropZoneProps {
  readonly actions: FileActions;
  readonly children: preact.ComponentChildren;
}

/** Takes files and directories that are dropped anywhere in the view. */
function DropZone({ actions, children }: DropZoneProps) {
  const [isOver, setOver] = useState(false);
  const zone = useRef<HTMLDivElement>(null);
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const { dataTransfer } = event;
    if (dataTransfer) void actions.upload(() => droppedItems(dataTransfer));
  };
  const over = (event: DragEvent) => {
    event.preventDefault();
    setOver(true);
  };
  const leave = (event: DragEvent) => {
    if (!zone.current?.contains(event.relatedTarget as Node | null)) setOver(false);
  };
  return (
    <div
      ref={zone}
      class={isOver ? 'view files over' : 'view files'}
      onDragOver={over}
      onDragLeave={leave}
      onDrop={drop}
    >
      {children}
    </div>
  );
}
