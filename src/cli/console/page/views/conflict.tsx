import { printable, printableLines } from '../../../output/printable.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { type FileContent, readContent } from './file-content.ts';

/** What becomes of an edit whose file somebody else has changed. */
export interface ConflictAnswer {
  readonly isOverwritten: boolean;
  /** Of the file that was shown; null: the daemon tells none, or there is none. */
  readonly etag: string | null;
}

/** Shows how the file differs from the edit, and asks which one stays; null: the user goes on with the edit. */
export async function askConflict(
  { daemon, questions }: Workspace,
  path: string,
  mine: string,
): Promise<ConflictAnswer | null> {
  const theirs = await readContent(daemon, path).catch((error: unknown) => ({
    ...{ kind: 'problem' as const, text: callErrorOf(error).message },
  }));
  const answer = await questions.ask({
    title: 'Somebody else has changed the file',
    text: `${printable(path)} is not the file any more that you began with.`,
    detail: <Differences lines={await differences(theirs, mine)} />,
    answers: [
      { name: 'overwrite', label: 'Overwrite it with mine', isDanger: true },
      { name: 'theirs', label: 'Show theirs, discard mine', isDanger: true },
    ],
  });
  if (answer === null) return null;
  return { isOverwritten: answer.answer === 'overwrite', etag: theirs.kind === 'text' ? theirs.etag : null };
}

/** The lines that differ, or why they are not known. */
async function differences(theirs: FileContent, mine: string): Promise<readonly string[] | string> {
  if (theirs.kind === 'problem') return theirs.text;
  if (theirs.kind !== 'text') return 'It is no text any more.';
  const module = await import('./text-differences.ts').catch(() => null);
  const [before, after] = [theirs.text, mine].map((text) => text.replaceAll('\r\n', '\n'));
  const lines = module?.differencesOf(before ?? '', after ?? '') ?? null;
  if (lines === null) return 'They differ too much to be compared.';
  return lines.length === 0 ? 'They are the same text.' : lines;
}

const KINDS: Readonly<Record<string, string>> = { '+': 'added', '-': 'removed', '@': 'muted' };

function Differences({ lines }: { readonly lines: readonly string[] | string }) {
  if (typeof lines === 'string') return <p class="wrap muted">{printable(lines)}</p>;
  return (
    <>
      <p>
        <span class="removed">−</span> is only in theirs, <span class="added">+</span> only in yours:
      </p>
      <pre class="differences" tabIndex={0} role="region" aria-label="Differences">
        {lines.map((line, index) => (
          <div key={index} class={KINDS[line[0] ?? '']}>
            {printableLines(line) || ' '}
          </div>
        ))}
      </pre>
    </>
  );
}
