import { useEffect, useState } from 'preact/hooks';
import { formatBytes } from '../../../output/formats.ts';
import { printable, printableLines } from '../../../output/printable.ts';
import type { FileEntry } from '../files/file-entry.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { type FileContent, readContent } from './file-content.ts';
import { FileEditor } from './file-editor.tsx';

interface FileViewerProps {
  readonly workspace: Workspace;
  readonly entry: FileEntry;
  onClose(): void;
}

/** Shows a picture or a text, which can be edited if it is small. */
export function FileViewer({ workspace, entry, onClose }: FileViewerProps) {
  const [content, setContent] = useState<FileContent | null>(null);
  const [isEdited, setEdited] = useState(false);
  const load = async () => {
    setContent(
      await readContent(workspace.daemon, entry).catch((error: unknown) => ({
        kind: 'problem' as const,
        text: callErrorOf(error).message,
      })),
    );
  };
  useEffect(() => void load(), [entry.path]);
  useEffect(() => {
    if (content?.kind === 'picture') return () => URL.revokeObjectURL(content.url);
    return undefined;
  }, [content]);
  return (
    <section class="viewer" aria-label={`Content of ${printable(entry.name)}`}>
      <div class="bar">
        <h2>{printable(entry.name)}</h2>
        <span class="grow" />
        {content?.kind === 'text' && content.isWhole && content.lineEnd !== null && !isEdited && (
          <button type="button" onClick={() => setEdited(true)}>
            Edit
          </button>
        )}
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
      {isEdited && content?.kind === 'text' ? (
        <FileEditor
          {...{
            workspace,
            entry,
            content,
            onLeave: () => {
              setEdited(false);
              void load();
            },
          }}
        />
      ) : (
        <Content entry={entry} content={content} />
      )}
    </section>
  );
}

function Content({ entry, content }: { readonly entry: FileEntry; readonly content: FileContent | null }) {
  switch (content?.kind) {
    case 'text':
      return (
        <>
          {!content.isWhole && <p class="muted">The first part of {formatBytes(entry.size)}.</p>}
          <pre tabIndex={0}>{printableLines(content.text)}</pre>
        </>
      );
    case 'picture':
      return <img src={content.url} alt={printable(entry.name)} />;
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
