import { useRef, useState } from 'preact/hooks';
import { printable } from '../../../output/printable.ts';
import type { FileEntry } from '../files/file-entry.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { readContent, type TextContent } from './file-content.ts';

interface FileEditorProps {
  readonly workspace: Workspace;
  readonly entry: FileEntry;
  readonly content: TextContent;
  onLeave(): void;
}

/** Edits a text. It is saved only if the file is the one that was read; otherwise the user decides. */
export function FileEditor({ workspace, entry, content, onLeave }: FileEditorProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  const [isSaving, setSaving] = useState(false);
  const save = async () => {
    // The element ends all lines with a line feed.
    const text = (area.current?.value ?? '').replaceAll('\n', content.lineEnd ?? '\n');
    setSaving(true);
    const isOver = await saveText(workspace, entry, text, content.etag);
    setSaving(false);
    if (isOver) onLeave();
  };
  return (
    <>
      <textarea
        ref={area}
        class="editor"
        aria-label={`Text of ${printable(entry.name)}`}
        defaultValue={content.text}
        spellcheck={false}
        onKeyDown={(event) => {
          if (event.key !== 's' || !(event.ctrlKey || event.metaKey)) return;
          event.preventDefault();
          void save();
        }}
      />
      <div class="bar">
        <button type="button" class="primary" disabled={isSaving} onClick={() => void save()}>
          Save
        </button>
        <button type="button" onClick={onLeave}>
          Discard
        </button>
      </div>
    </>
  );
}

/** Saves a text; false: the user goes on with it. True also if he gave it up for what somebody else has written. */
async function saveText(
  workspace: Workspace,
  entry: FileEntry,
  text: string,
  etag: string | null,
): Promise<boolean> {
  const { daemon, questions, notices } = workspace;
  const { signal } = new AbortController();
  try {
    await daemon.upload(entry.path, new Blob([text]), { signal, ...(etag !== null && { ifMatch: etag }) });
    notices.say(`${printable(entry.name)} is saved`);
    return true;
  } catch (thrown) {
    const error = callErrorOf(thrown);
    if (error.status !== 412) {
      notices.say(error.message, true);
      return false;
    }
  }
  const answer = await questions.ask({
    title: 'Somebody else has changed the file',
    text: `${printable(entry.path)} is not the file any more that you began with.`,
    answers: [
      { name: 'overwrite', label: 'Overwrite it with mine', isDanger: true },
      { name: 'theirs', label: 'Show theirs, discard mine' },
    ],
  });
  if (answer?.answer !== 'overwrite') return answer !== null;
  const now = await readContent(daemon, entry).catch(() => null);
  return saveText(workspace, entry, text, now?.kind === 'text' ? now.etag : null);
}
