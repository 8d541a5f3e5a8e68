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

  async rename({ name, path }: FileEntry): Promise<void> {
    const { questions, daemon } = this.#workspace;
    const title = `Rename ${printable(name)}`;
    const wanted = await questions.text(title, 'New name, or a path', name, 'Rename');
    if (wanted === null || wanted === name) return;
    const destination = wanted.startsWith('/') ? wanted : joined(this.path, wanted);
    const isThere = await daemon.unary('filesystem.Filesystem/Stat', { path: destination }).then(
      () => true,
      () => false,
    );
    const text = `${printable(destination)} exists, and is replaced.`;
    if (isThere && !(await questions.confirm('Replace it?', text, 'Replace'))) return;
    await this.#change(() => daemon.unary('filesystem.Filesystem/Move', { source: path, destination }));
    this.#select(wanted);
  }

  async remove({ name, path, kind, isLink }: FileEntry): Promise<void> {
    const { questions, daemon } = this.#workspace;
    const isTree = kind === 'directory' && !isLink;
    const text = printable(path) + (isTree ? ' and everything below it' : '');
    if (!(await questions.confirm(`Delete ${printable(name)}?`, text, 'Delete'))) return;
    await this.#change(() => daemon.unary('filesystem.Filesystem/Remove', { path }));
  }

  /** Saves a file, or a directory as an archive. */
  async download({ path, kind }: FileEntry): Promise<void> {
    const { daemon, notices, monitor } = this.#workspace;
    const hasZip = monitor.state.value.health?.abilities?.zip?.available === true;
    const format = kind === 'directory' ? (hasZip ? 'zip' : 'tar') : null;
    await notices.attempt(() => daemon.download(path, format));
  }

  /** Uploads into the directory that is open; asks before it replaces something. */
  async upload(read: () => Promise<readonly DroppedItem[]> | readonly DroppedItem[]): Promise<void> {
    const { directory, uploads, questions, notices } = this.#workspace;
    const { path, entries } = directory.listing.value;
    await notices.attempt(async () => {
      const items = await read();
      const tops = new Set(items.map((item) => item.path.split('/')[0] ?? ''));
      const known = entries.filter(({ name }) => tops.has(name)).map(({ name }) => printable(name));
      const text = `${known.slice(0, 10).join(', ')}${known.length > 10 ? ` and ${known.length - 10} more` : ''} exists. Files with the same names are replaced.`;
      if (
        items.length === 0 ||
        (known.length > 0 && !(await questions.confirm('Replace files?', text, 'Replace')))
      )
        return;
      await uploads.add(path, items);
      if (!directory.listing.value.isLive) await directory.refresh();
    });
  }

  /** Changes something in the directory, which is listed again where no watch shows the change. */
  async #change(work: () => Promise<unknown>): Promise<void> {
    const { notices, directory } = this.#workspace;
    if ((await notices.attempt(work)) && !directory.listing.value.isLive) await directory.refresh();
  }
}
