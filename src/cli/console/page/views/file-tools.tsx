import { useRef } from 'preact/hooks';
import type { ShownDirectory } from '../files/directory-model.ts';
import { chosenItems } from '../files/dropped-files.ts';
import { type FileEntry, parentOf } from '../files/file-entry.ts';
import type { Workspace } from '../workspace/workspace.ts';
import type { FileActions } from './file-actions.ts';

interface FileToolsProps {
  readonly workspace: Workspace;
  readonly actions: FileActions;
  readonly entry: FileEntry | undefined;
  readonly listing: ShownDirectory;
  readonly filter: string;
  setFilter(text: string): void;
  open(entry: FileEntry): void;
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
        <EntryTools {...props} />
        <span class="grow" />
        <span class="muted" role="status">
          {isLoading ? 'loading' : `${entries.length} entries${isLive ? ', live' : ''}`}
        </span>
        <input
          type="search"
          aria-label="Filter files"
          placeholder="Filter"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
      </div>
    </>
  );
}

function EntryTools({ actions, entry, open }: FileToolsProps) {
  return (
    <>
      <UploadButton actions={actions} label="Upload files" isDirectory={false} />
      <UploadButton actions={actions} label="Upload directory" isDirectory />
      <button type="button" onClick={() => void actions.makeDirectory()}>
        New directory
      </button>
      <button type="button" disabled={!entry || entry.kind === 'other'} onClick={() => entry && open(entry)}>
        Open
      </button>
      <button
        type="button"
        disabled={!entry || entry.kind === 'other'}
        onClick={() => entry && void actions.download(entry)}
      >
        Download
      </button>
      <button type="button" disabled={!entry} onClick={() => entry && void actions.rename(entry)}>
        Rename
      </button>
      <button
        type="button"
        class="danger"
        disabled={!entry}
        onClick={() => entry && void actions.remove(entry)}
      >
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
