import type { RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { printable } from '../../../output/printable.ts';
import type { Draft } from '../files/drafts.ts';
import { fileNameOf } from '../files/file-entry.ts';
import type { Notices } from '../parts/notices.tsx';
import { callErrorOf } from '../wire/call-error.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { askConflict } from './conflict.tsx';
import type { TextContent } from './file-content.ts';
import type { TextEditor, TextEditorOptions } from './text-editor.ts';

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
  const { drafts, questions, notices } = workspace;
  const holder = useRef<HTMLDivElement>(null);
  const editor = useRef<TextEditor | null>(null);
  const [isSaving, setSaving] = useState(false);
  const [begun] = useState(() => beginOf(drafts.get(path), content));
  const [isKept, setKept] = useState(true);
  const keep = () => {
    const { text = '' } = editor.current ?? {};
    if (text === begun.text) drafts.remove(path);
    else setKept(drafts.keep(path, { text, etag: begun.etag, lineEnd: begun.lineEnd }));
  };
  const save = async () => {
    const { current } = editor;
    if (current === null || current.isReadOnly) return;
    const sent = current.text;
    const text = sent.replaceAll('\n', begun.lineEnd);
    setSaving(true);
    // What is typed while it is saved would be lost.
    current.isReadOnly = true;
    const isOver = await saveText(workspace, path, text, begun.etag);
    current.isReadOnly = false;
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
  useEffect(() => {
    const options = {
      text: begun.draft?.text ?? begun.text ?? '',
      label: `Text of ${printable(fileNameOf(path))}`,
      onChange: keep,
      onSave: () => void save(),
    };
    return openEditor(notices, options, holder, editor);
  }, []);
  return (
    <>
      <EditNotes isOld={begun.draft !== null} isKept={isKept} />
      <div class="editor" ref={holder} />
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

/** Makes an editor in an element when its module is loaded, until the returned function is called. */
function openEditor(
  notices: Notices,
  options: TextEditorOptions,
  holder: RefObject<HTMLElement | null>,
  editor: RefObject<TextEditor | null>,
): () => void {
  let hasLeft = false;
  void notices.attempt(async () => {
    const module = await import('./text-editor.ts');
    if (!hasLeft && holder.current) editor.current = new module.TextEditor(holder.current, options);
  });
  return () => {
    hasLeft = true;
    editor.current?.dispose();
  };
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
  const { daemon, notices } = workspace;
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
  const answer = await askConflict(workspace, path, text);
  if (!answer?.isOverwritten) return answer !== null;
  // If that is not the file any more that was shown, the question is asked again.
  return saveText(workspace, path, text, answer.etag);
}
