import { Observable, useValue } from '../state/observable.ts';
import { callErrorOf } from '../wire/call-error.ts';

interface Notice {
  readonly id: number;
  readonly text: string;
  readonly isError: boolean;
  readonly url: string | undefined;
}

const SHOWN_MS = 10_000;
const MAX_SHOWN = 5;

/** Short messages to the user, which go away by themselves. */
export class Notices {
  readonly shown = new Observable<readonly Notice[]>([]);
  #count = 0;

  /** `url`: is offered to be opened. */
  say(text: string, isError = false, url?: string): void {
    const id = this.#count++;
    this.shown.update((shown) => [...shown.slice(1 - MAX_SHOWN), { id, text, isError, url }]);
    setTimeout(() => this.dismiss(id), SHOWN_MS);
  }

  dismiss(id: number): void {
    this.shown.update((shown) => shown.filter((each) => each.id !== id));
  }

  /** Does something for the user, and says why it failed; returns whether it did not. */
  async attempt(work: () => Promise<unknown>): Promise<boolean> {
    try {
      await work();
      return true;
    } catch (error) {
      this.say(callErrorOf(error).message, true);
      return false;
    }
  }
}

export function NoticeList({ notices }: { readonly notices: Notices }) {
  const shown = useValue(notices.shown);
  return (
    <div class="notices" role="status" aria-live="polite">
      {shown.map(({ id, text, isError, url }) => (
        <div key={id} class={isError ? 'notice error' : 'notice'}>
          <span class="wrap">
            {text}{' '}
            {url !== undefined && (
              <a href={url} target="_blank" rel="noopener noreferrer">
                {url}
              </a>
            )}
          </span>
          <button type="button" class="plain" aria-label="Dismiss" onClick={() => notices.dismiss(id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
