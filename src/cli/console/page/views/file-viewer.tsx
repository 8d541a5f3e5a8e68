import { useEffect, useState } from 'preact/hooks';
import { formatBytes } from '../../../output/formats.ts';
import { printable, printableLines } from '../../../output/printable.ts';
import { fileNameOf } from '../files/file-entry.ts';
import { useValue } from '../state/observable.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { type FileContent, readContent } from './file-content.ts';
import { FileEditor } from './file-editor.tsx';

interface FileViewerProps {
  readonly workspace: Workspace;
  readonly path: string;
  onClose(): void;
}

/** Shows a picture or a text, which can be edited if it is small. An edit that was not saved goes on. */
export function FileViewer({ workspace, path, onClose }: FileViewerProps) {
  const { drafts, questions } = workspace;
  const [content, setContent] = useState<FileContent | null>(null);
  const [isEdited, setEdited] = useState(drafts.get(path) !== null);
  const isDirty = useValue(drafts.all).has(path);
  const load = async () => {
    // A call would wake it.
    const { obstacle } = workspace;
    const read = obstacle ? Promise.reject(new Error(obstacle)) : readContent(workspace.daemon, path);
    setContent(
      await read.catch((error: unknown) => ({ kind: 'problem' as const, text: callErrorOf(error).message })),
    );
  };
  useEffect(() => void load(), [path]);
  useEffect(() => {
    if (content?.kind === 'picture') return () => URL.revokeObjectURL(content.url);
    return undefined;
  }, [content]);
  const close = async () => {
    if (isDirty) {
      const answer = await questions.ask({
        title: 'The edit is not saved',
        text: printable(path),
        answers: [
          { name: 'keep', label: 'Keep it for later' },
          { name: 'discard', label: 'Discard it', isDanger: true },
        ],
      });
      if (answer === null) return;
      if (answer.answer === 'discard') drafts.remove(path);
    }
    onClose();
  };
  const name = printable(fileNameOf(path));
  const text = content?.kind === 'text' ? content : null;
  const isEditor = isEdited && (text !== null || drafts.get(path) !== null);
  return (
    <section class="viewer" aria-label={`Content of ${name}`}>
      <div class="bar">
        <h2 class={isDirty ? 'unsaved' : undefined}>{name}</h2>
        <span class="grow" />
        {text?.isWhole && text.isUtf8 && text.lineEnd !== null && !isEdited && (
          <button type="button" onClick={() => setEdited(true)}>
            Edit
          </button>
        )}
        <button type="button" onClick={() => void close()}>
          Close
        </button>
      </div>
      {isEditor ? (
        <FileEditor
          {...{ workspace, path, content: text }}
          onLeave={() => {
            setEdited(false);
            void load();
          }}
        />
      ) : (
        <Content name={name} content={content} />
      )}
    </section>
  );
}

function Content({ name, content }: { readonly name: string; readonly content: FileContent | null }) {
  switch (content?.kind) {
    case 'text':
      return (
        <>
          {!content.isWhole && <p class="muted">The first part of {formatBytes(content.size)}.</p>}
          {!content.isUtf8 && (
            <p class="muted">This is not UTF-8. It is shown as Latin-1, and cannot be edited here.</p>
          )}
          <pre tabIndex={0}>{printableLines(content.text)}</pre>
        </>
      );
    case 'picture':
      return <img src={content.url} alt={name} />;
    case 'problem':
      return <p class="problem wrap">{content.text}</p>;
    case 'binary':
      return (
        <p class="muted">This is neither text nor a picture that can be shown. Download it to see it.</p>
      );
    default:
      return <p class="muted">loading</p>;
  }
}
