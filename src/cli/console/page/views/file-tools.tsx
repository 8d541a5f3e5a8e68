import { useRef } from 'preact/hooks';
import { printable } from '../../../output/printable.ts';
import type { ShownDirectory } from '../files/directory-model.ts';
import { chosenItems } from '../files/dropped-files.ts';
import { type FileEntry, parentOf } from '../files/file-entry.ts';
import { FilterField } from '../parts/filter-field.tsx';
import type { Workspace } from '../workspace/workspace.ts';
import type { FileActions } from './file-actions.ts';

interface EntryToolsProps {
  readonly actions: FileActions;
  readonly chosen: readonly FileEntry[];
  open(entry: FileEntry): void;
}

interface FileToolsProps extends EntryToolsProps {
  readonly workspace: Workspace;
  readonly listing: ShownDirectory;
  readonly filter: string;
  setFilter(text: string): void;
}

export function FileTools(props: FileToolsProps) {
  const { workspace, actions, listing, filter, setFilter } = props;
  const { path, isLive, isLoading, entries } = listing;
  const go = (event: SubmitEvent) => {
    event.preventDefault();
    const wanted = new FormData(event.currentTarget as HTMLFormElement).get('path');
    if (typeof wanted === 'string' && wanted !== '') actions.goTo(wanted);
  };
  return (
    <>
      <Breadcrumbs path={path} onGo={(each) => actions.goTo(each)} />
      <form class="bar" onSubmit={go} key={path}>
        <button type="button" onClick={() => actions.goTo(parentOf(path))} disabled={path === '/'}>
          Up
        </button>
        <input
          class="grow"
          name="path"
          aria-label="Directory"
          defaultValue={path}
          spellcheck={false}
          autocomplete="off"
        />
        <button type="submit">Go</button>
        <button type="button" onClick={() => void workspace.directory.refresh()}>
          Refresh
        </button>
      </form>
      <div class="bar">
        <DirectoryTools {...props} />
        <EntryTools {...props} />
        <span class="grow" />
        <span class="muted" role="status">
          {isLoading ? 'loading' : `${entries.length} entries${isLive ? ', live' : ''}`}
          {props.chosen.length > 1 && `, ${props.chosen.length} selected`}
        </span>
        <FilterField what="files" value={filter} onFilter={setFilter} />
      </div>
    </>
  );
}

/** The directories on the way to the one that is open. */
function Breadcrumbs({ path, onGo }: { readonly path: string; onGo(path: string): void }) {
  const names = path.split('/').filter(Boolean);
  const crumbs = names.map((name, index) => [name, `/${names.slice(0, index + 1).join('/')}`] as const);
  return (
    <nav class="crumbs" aria-label="Directories above">
      {[['/', '/'] as const, ...crumbs].map(([name, each]) => (
        <button
          key={each}
          type="button"
          class="plain"
          aria-current={each === path ? 'location' : undefined}
          title={printable(each)}
          onClick={() => onGo(each)}
        >
          {printable(name)}
        </button>
      ))}
    </nav>
  );
}

function DirectoryTools({ actions }: EntryToolsProps) {
  return (
    <>
      <UploadButton actions={actions} label="Upload files" isDirectory={false} />
      <UploadButton actions={actions} label="Upload directory" isDirectory />
      <button type="button" onClick={() => void actions.makeFile()}>
        New file
      </button>
      <button type="button" onClick={() => void actions.makeDirectory()}>
        New directory
      </button>
    </>
  );
}

/** What can be done with the entries that are chosen. */
export function EntryTools({ actions, chosen, open }: EntryToolsProps) {
  const only = chosen.length === 1 ? chosen[0] : undefined;
  const isNone = chosen.length === 0;
  const hasOther = chosen.some(({ kind }) => kind === 'other');
  return (
    <>
      <button type="button" disabled={!only || hasOther} onClick={() => only && open(only)}>
        Open
      </button>
      <button type="button" disabled={isNone || hasOther} onClick={() => void actions.download(chosen)}>
        Download
      </button>
      <button type="button" disabled={!only} onClick={() => only && void actions.rename(only)}>
        Rename
      </button>
      <button type="button" class="danger" disabled={isNone} onClick={() => void actions.remove(chosen)}>
        Delete
      </button>
    </>
  );
}

interface UploadButtonProps {
  readonly actions: FileActions;
  readonly label: string;
  readonly isDirectory: boolean;
}

function UploadButton({ actions, label, isDirectory }: UploadButtonProps) {
  const input = useRef<HTMLInputElement>(null);
  const upload = () => {
    const element = input.current;
    if (!element?.files) return;
    const { files } = element;
    void actions
      .upload(() => chosenItems(files))
      .then(() => {
        // The same file may be chosen again.
        element.value = '';
      });
  };
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label={label}
        {...{ webkitdirectory: isDirectory }}
        onChange={upload}
      />
      <button type="button" onClick={() => input.current?.click()}>
        {label}
      </button>
    </>
  );
}
