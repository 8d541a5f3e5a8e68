import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Observable, useValue } from '../state/observable.ts';

/** Something that the user fills in. */
export interface QuestionField {
  readonly name: string;
  readonly label: string;
  readonly value?: string;
  /** `check` has the value `on`, or none; `lines` are NAME=VALUE. */
  readonly kind?: 'text' | 'check' | 'lines' | 'choice';
  /** Those of a text are only offered. */
  readonly choices?: readonly (readonly [value: string, label: string])[];
  readonly hint?: string;
}

export interface UserQuestion {
  readonly title: string;
  readonly text?: string;
  readonly fields?: readonly QuestionField[];
  /** What the user looks at to answer it. */
  readonly detail?: ComponentChildren;
  /** The buttons beside `Cancel`; one that destroys something is marked, and is behind the others. */
  readonly answers: readonly { readonly name: string; readonly label: string; readonly isDanger?: boolean }[];
}

/** The lines NAME=VALUE of a text, which was checked. */
export function assignmentsIn(text = ''): Readonly<Record<string, string>> {
  const found = text.split('\n').flatMap((line) => {
    const at = line.indexOf('=');
    return at > 0 ? [[line.slice(0, at).trim(), line.slice(at + 1)] as const] : [];
  });
  return Object.fromEntries(found);
}

/** Says at the field which line is no assignment. */
function checkLines({ currentTarget: area }: { readonly currentTarget: HTMLTextAreaElement }): void {
  const wrong = area.value.split('\n').find((line) => line.trim() !== '' && line.indexOf('=') <= 0);
  area.setCustomValidity(wrong === undefined ? '' : `'${wrong}' is not NAME=VALUE`);
}

/** The button that was pressed, and what was filled in. */
export interface QuestionAnswer {
  readonly answer: string;
  readonly values: Readonly<Record<string, string>>;
}

interface OpenQuestion {
  readonly question: UserQuestion;
  resolve(answer: QuestionAnswer | null): void;
}

/** The questions to the user, one at a time, in a dialog. */
export class Questions {
  readonly open = new Observable<OpenQuestion | null>(null);

  /** Resolves with the answer; null: it was canceled, or another question was asked. */
  ask(question: UserQuestion): Promise<QuestionAnswer | null> {
    this.open.value?.resolve(null);
    return new Promise((resolve) =>
      this.open.set({
        question,
        resolve: (answer) => {
          this.open.set(null);
          resolve(answer);
        },
      }),
    );
  }

  /** Whether the user says yes. */
  async confirm(title: string, text: string, label: string): Promise<boolean> {
    return (await this.ask({ title, text, answers: [{ name: 'yes', label, isDanger: true }] })) !== null;
  }

  /** A text; null: canceled, or empty. */
  async text(title: string, label: string, value: string, button: string): Promise<string | null> {
    const fields = [{ name: 'text', label, value }];
    const answer = await this.ask({ title, fields, answers: [{ name: 'yes', label: button }] });
    return answer?.values.text || null;
  }
}

export function QuestionDialog({ questions }: { readonly questions: Questions }) {
  const open = useValue(questions.open);
  return open && <OpenDialog key={open} open={open} />;
}

function OpenDialog({ open: { question, resolve } }: { readonly open: OpenQuestion }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const cancel = useRef<HTMLButtonElement>(null);
  const isDangerous = question.answers.some(({ isDanger }) => isDanger);
  const isForm = (question.fields?.length ?? 0) > 0;
  useEffect(() => {
    dialog.current?.showModal();
    // A form that destroys nothing begins at its first field.
    if (isDangerous || !isForm) cancel.current?.focus();
  }, []);
  const answers = [
    ...question.answers.filter(({ isDanger }) => !isDanger),
    ...question.answers.filter(({ isDanger }) => isDanger),
  ];
  const answer = (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const values = Object.fromEntries([...data].map(([name, value]) => [name, String(value)]));
    const button = event.submitter as HTMLButtonElement | null;
    resolve({ answer: button?.value || (answers[0]?.name ?? ''), values });
  };
  return (
    <dialog
      ref={dialog}
      class={question.detail ? 'large' : undefined}
      aria-labelledby="question"
      onClose={() => resolve(null)}
    >
      <form onSubmit={answer}>
        <h2 id="question">{question.title}</h2>
        {question.text && <p class="wrap">{question.text}</p>}
        {question.detail}
        {question.fields?.map((field) => (
          <Field key={field.name} field={field} />
        ))}
        <div class="buttons">
          <button type="button" ref={cancel} onClick={() => resolve(null)}>
            Cancel
          </button>
          {answers.map(({ name, label, isDanger }) => (
            <button key={name} type="submit" value={name} class={isDanger ? 'danger' : 'primary'}>
              {label}
            </button>
          ))}
        </div>
      </form>
    </dialog>
  );
}

function Field({ field }: { readonly field: QuestionField }) {
  const { name, label, value = '', kind = 'text', choices = [], hint } = field;
  if (kind === 'check')
    return (
      <label class="check">
        <input type="checkbox" name={name} defaultChecked={value === 'on'} /> {label}
      </label>
    );
  return (
    <label>
      {label}
      {kind === 'text' && (
        <input name={name} defaultValue={value} list={`${name}s`} autocomplete="off" spellcheck={false} />
      )}
      {kind === 'text' && (
        <datalist id={`${name}s`}>
          {choices.map(([choice]) => (
            <option key={choice} value={choice} />
          ))}
        </datalist>
      )}
      {kind === 'lines' && (
        <textarea name={name} rows={3} defaultValue={value} spellcheck={false} onInput={checkLines} />
      )}
      {kind === 'choice' && (
        <select name={name}>
          {choices.map(([choice, text]) => (
            <option key={choice} value={choice}>
              {text}
            </option>
          ))}
        </select>
      )}
      {hint && <small>{hint}</small>}
    </label>
  );
}
