import { printable } from '../../../output/printable.ts';
import type { DroppedItem } from '../files/dropped-files.ts';
import { type FileEntry, joined } from '../files/file-entry.ts';
import type { Workspace } from '../workspace/workspace.ts';

/** What the user does with files. */
export class FileActions {
  readonly #workspace: Workspace;
  readonly #select: (name: string) => void;

  /** `select`: shows an entry as the chosen one. */
  constructor(workspace: Workspace, select: (name: string) => void) {
    this.#workspace = workspace;
    this.#select = select;
  }

  /** The directory that is open. */
  get path(): string {
    return this.#workspace.directory.listing.value.path;
  }

  goTo(path: string): void {
    void this.#workspace.directory.open(path);
  }

  async makeDirectory(): Promise<void> {
    const name = await this.#workspace.questions.text('New directory', 'Name', '', 'Make it');
    if (name === null) return;
    await this.#change(() =>
      this.#workspace.daemon.unary('filesystem.Filesystem/MakeDir', { path: joined(this.path, name) }),
    );
    this.#select(name);
  }

  /** Makes an empty file, and opens it to be edited. */
  async makeFile(): Promise<void> {
    const { questions, notices, daemon, file } = this.#workspace;
    const name = await questions.text('New file', 'Name', '', 'Make it');
    if (name === null) return;
    const path = joined(this.path, name);
    if (await this.#exists(path)) return notices.say(`${printable(path)} exists already`, true);
    const { signal } = new AbortController();
    if (!(await this.#change(() => daemon.upload(path, new Blob([]), { signal })))) return;
    this.#select(name);
    file.set(path);
  }

  #exists(path: string): Promise<boolean> {
    return this.#workspace.daemon.unary('filesystem.Filesystem/Stat', { path }).then(
      () => true,
      () => false,
    );
  }

  async rename({ name, path }: FileEntry): Promise<void> {
    const { questions, daemon } = this.#workspace;
    const title = `Rename ${printable(name)}`;
    const wanted = await questions.text(title, 'New name, or a path', name, 'Rename');
    if (wanted === null || wanted === name) return;
    const destination = wanted.startsWith('/') ? wanted : joined(this.path, wanted);
    const isThere = await this.#exists(destination);
    const text = `${printable(destination)} exists, and is replaced.`;
    if (isThere && !(await questions.confirm('Replace it?', text, 'Replace'))) return;
    await this.#change(() => daemon.unary('filesystem.Filesystem/Move', { source: path, destination }));
    this.#select(wanted);
  }

  async remove(entries: readonly FileEntry[]): Promise<void> {
    const { questions, daemon } = this.#workspace;
    const lines = entries.map(
      ({ path, kind, isLink }) =>
        printable(path) + (kind === 'directory' && !isLink ? ' and everything below it' : ''),
    );
    const what = lines.length === 1 ? printable(entries[0]?.name ?? '') : `${lines.length} entries`;
    if (!(await questions.confirm(`Delete ${what}?`, firstOf(lines, '\n'), 'Delete'))) return;
    await this.#change(async () => {
      for (const { path } of entries) await daemon.unary('filesystem.Filesystem/Remove', { path });
    });
  }

  /** Saves files, and directories as archives. */
  async download(entries: readonly FileEntry[]): Promise<void> {
    const { daemon, notices, monitor } = this.#workspace;
    const hasZip = monitor.state.value.health?.abilities?.zip?.available === true;
    await notices.attempt(async () => {
      for (const { path, kind } of entries)
        await daemon.download(path, kind === 'directory' ? (hasZip ? 'zip' : 'tar') : null);
    });
  }

  /** Uploads into the directory that is open; asks before it replaces something. */
  async upload(read: () => Promise<readonly DroppedItem[]> | readonly DroppedItem[]): Promise<void> {
    const { directory, uploads, questions, notices } = this.#workspace;
    const { path, entries } = directory.listing.value;
    await notices.attempt(async () => {
      const items = await read();
      const tops = new Set(items.map((item) => item.path.split('/')[0] ?? ''));
      const known = entries.filter(({ name }) => tops.has(name)).map(({ name }) => printable(name));
      const text = `${firstOf(known, ', ')} exists. Files with the same names are replaced.`;
      if (
        items.length === 0 ||
        (known.length > 0 && !(await questions.confirm('Replace files?', text, 'Replace')))
      )
        return;
      await uploads.add(path, items);
      if (!directory.listing.value.isLive) await directory.refresh();
    });
  }

  /** Changes something in the directory, which is listed again where no watch shows the change. Returns whether it was changed. */
  async #change(work: () => Promise<unknown>): Promise<boolean> {
    const { notices, directory } = this.#workspace;
    const isDone = await notices.attempt(work);
    if (isDone && !directory.listing.value.isLive) await directory.refresh();
    return isDone;
  }
}

const MAX_NAMED = 10;

/** The first ones of many, with the number of the others. */
function firstOf(names: readonly string[], separator: string): string {
  const rest = names.length - MAX_NAMED;
  return names.slice(0, MAX_NAMED).join(separator) + (rest > 0 ? ` and ${rest} more` : '');
}
