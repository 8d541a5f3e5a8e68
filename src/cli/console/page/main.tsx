import { render } from 'preact';
import { ConsolePage } from './app.tsx';
import { Notices } from './parts/notices.tsx';
import { Questions } from './parts/questions.tsx';
import { applyTheme, chooseTheme, storedTheme } from './parts/theme.ts';
import { Observable } from './state/observable.ts';
import { SandboxList } from './state/sandbox-list.ts';
import { TabStorage } from './state/tab-storage.ts';
import { type CallError, callErrorOf } from './wire/call-error.ts';
import { openConsole } from './wire/console-client.ts';
import { partsOfFragment } from './wire/fragment.ts';
import { Navigation } from './workspace/navigation.ts';
import type { PageParts } from './workspace/workspace.ts';

applyTheme(storedTheme());
void start(document.body);
// A new link that is opened in this window only changes the fragment.
window.addEventListener('hashchange', () => {
  if (partsOfFragment(location.hash).secret !== '') location.reload();
});

async function start(body: HTMLElement): Promise<void> {
  try {
    const client = await openConsole();
    const parts: PageParts = {
      client,
      list: await SandboxList.open(client),
      questions: new Questions(),
      notices: new Notices(),
      storage: new TabStorage(`${client.about.name}/`),
      listPlace: new Observable({ selected: [], filter: '', sort: null }),
      theme: new Observable(storedTheme()),
    };
    parts.theme.subscribe(() => chooseTheme(parts.theme.value));
    const navigation = new Navigation(parts);
    window.addEventListener('beforeunload', (event) => {
      if (navigation.hasDrafts) event.preventDefault();
    });
    document.title = `${client.about.sandbox ?? client.about.name} – console`;
    keepDrops();
    render(<ConsolePage parts={parts} navigation={navigation} />, body);
  } catch (error) {
    render(<Refused error={callErrorOf(error)} />, body);
  }
}

/** A file that is dropped where nothing takes it would be opened by the browser in place of this page. */
function keepDrops(): void {
  window.addEventListener('dragover', (event) => {
    if (event.defaultPrevented) return;
    event.preventDefault();
    if (event.dataTransfer) event.dataTransfer.dropEffect = 'none';
  });
  window.addEventListener('drop', (event) => event.preventDefault());
}

/** What a window without a session shows. */
function Refused({ error }: { readonly error: CallError }) {
  return (
    <main class="refused">
      <h1>This window cannot use the console</h1>
      <p>{error.message}</p>
      <p>
        Each link works once. Press Enter where <code>envctl console</code> runs: it prints another one.
      </p>
    </main>
  );
}
