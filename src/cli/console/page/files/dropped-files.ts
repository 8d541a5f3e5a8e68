/** A file or an empty directory that is to be uploaded, by its path below what was dropped. */
export interface DroppedItem {
  readonly path: string;
  /** null: an empty directory. */
  readonly file: File | null;
}

/** Most files of one upload. */
const MAX_FILES = 20_000;

/** Everything that was dropped, with what is below directories. Throws when there is too much. */
export async function droppedItems(transfer: DataTransfer): Promise<DroppedItem[]> {
  // The list is emptied when the handler of the event returns.
  const roots = [...transfer.items].flatMap((item) => item.webkitGetAsEntry() ?? []);
  const items: DroppedItem[] = [];
  const waiting = [...roots];
  for (let entry = waiting.pop(); entry; entry = waiting.pop()) {
    const path = entry.fullPath.replace(/^\//, '');
    if (isFile(entry)) items.push({ path, file: await fileOf(entry) });
    else {
      const children = await childrenOf(entry as FileSystemDirectoryEntry);
      if (children.length === 0) items.push({ path, file: null });
      waiting.push(...children);
    }
    if (items.length + waiting.length > MAX_FILES)
      throw new Error(`these are more than ${MAX_FILES} files: use \`envctl cp\``);
  }
  return items;
}

/** The files of an input element; those of a directory with their paths below it. */
export function chosenItems(files: FileList): DroppedItem[] {
  if (files.length > MAX_FILES) throw new Error(`these are more than ${MAX_FILES} files: use \`envctl cp\``);
  return [...files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

function isFile(entry: FileSystemEntry): entry is FileSystemFileEntry {
  return entry.isFile;
}

function fileOf(entry: FileSystemFileEntry): Promise<File> {
  return new Promise((resolve, reject) => entry.file(resolve, reject));
}

/** A reader tells a part of the entries at a time, and none at the end. */
async function childrenOf(directory: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = directory.createReader();
  const all: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    );
    if (some.length === 0 || all.length > MAX_FILES) return all;
    all.push(...some);
  }
}
