import { useRef, useState } from 'preact/hooks';
import { printable } from '../../../output/printable.ts';
import type { Draft } from '../files/drafts.ts';
import { fileNameOf } from '../files/file-entry.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { readContent, type TextContent } from './file-content.ts';

interface FileEditorProps {
  readonly workspace: Workspace;
  readonly path: string;
  /** null: it cannot be read now, but there is an edit of it that was not saved. */
  readonly content: TextContent | null;
  onLeave(): void;
}

interface EditBegin {
  /** The edit that goes on; null: it is a new one. */
  readonly draft: Draft | null;
  /** The text of the file; null: it is another file now, or cannot be read. */
  readonly text: string | null;
  readonly etag: string | null;
  readonly lineEnd: '\n' | '\r\n';
}

/** The file as it was when the edit began, however long ago. */
function beginOf(draft: Draft | null, content: TextContent | null): EditBegin {
  const { etag = null, lineEnd } = draft ?? content ?? {};
  const isSame = draft === null || draft.etag === content?.etag;
  const text = isSame ? (content?.text.replaceAll('\r\n', '\n') ?? null) : null;
  return { draft, text, etag, lineEnd: lineEnd ?? '\n' };
}

/**
 * Edits a text. It is saved only if the file is the one that the edit began with; otherwise the user decides. What is not saved is kept
 * when the user goes elsewhere or loads the page again.
 */
export function FileEditor({ workspace, path, content, onLeave }: FileEditorProps) {
  const { drafts, questions } = workspace;
  const area = useRef<HTMLTextAreaElement>(null);
  const [isSaving, setSaving] = useState(false);
  const [begun] = useState(() => beginOf(drafts.get(path), content));
  const [isKept, setKept] = useState(true);
  const keep = () => {
    // The element ends all lines with a line feed.
    const text = area.current?.value ?? '';
    if (text === begun.text) drafts.remove(path);
    else setKept(drafts.keep(path, { text, etag: begun.etag, lineEnd: begun.lineEnd }));
  };
  const save = async () => {
    if (isSaving) return;
    const sent = area.current?.value ?? '';
    const text = sent.replaceAll('\n', begun.lineEnd);
    setSaving(true);
    const isOver = await saveText(workspace, path, text, begun.etag);
    setSaving(false);
    if (!isOver) return;
    // Another edit of the file may have begun meanwhile.
    if ((drafts.get(path)?.text ?? sent) === sent) drafts.remove(path);
    onLeave();
  };
  const discard = async () => {
    const isClean = drafts.get(path) === null;
    if (!isClean && !(await questions.confirm('Discard the edit?', printable(path), 'Discard it'))) return;
    drafts.remove(path);
    onLeave();
  };
  return (
    <>
      <EditNotes isOld={begun.draft !== null} isKept={isKept} />
      <textarea
        ref={area}
        class="editor"
        aria-label={`Text of ${printable(fileNameOf(path))}`}
        defaultValue={begun.draft?.text ?? content?.text ?? ''}
        spellcheck={false}
        // What is typed while it is saved would be lost.
        readOnly={isSaving}
        onInput={keep}
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
        <button type="button" disabled={isSaving} onClick={() => void discard()}>
          Discard
        </button>
      </div>
    </>
  );
}

function EditNotes({ isOld, isKept }: { readonly isOld: boolean; readonly isKept: boolean }) {
  return (
    <div role="status">
      {isOld && <p class="muted">This edit is not saved yet.</p>}
      {!isKept && <p class="problem">The browser has no room to keep this edit over a reload.</p>}
    </div>
  );
}

/** Saves a text; false: the user goes on with it. True also if he gave it up for what somebody else has written. */
async function saveText(
  workspace: Workspace,
  path: string,
  text: string,
  etag: string | null,
): Promise<boolean> {
  const { daemon, questions, notices } = workspace;
  const { signal } = new AbortController();
  try {
    await daemon.upload(path, new Blob([text]), { signal, ...(etag !== null && { ifMatch: etag }) });
    notices.say(`${printable(fileNameOf(path))} is saved`);
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
    text: `${printable(path)} is not the file any more that you began with.`,
    answers: [
      { name: 'overwrite', label: 'Overwrite it with mine', isDanger: true },
      { name: 'theirs', label: 'Show theirs, discard mine', isDanger: true },
    ],
  });
  if (answer?.answer !== 'overwrite') return answer !== null;
  const now = await readContent(daemon, path).catch(() => null);
  return saveText(workspace, path, text, now?.kind === 'text' ? now.etag : null);
}
