import { render } from 'preact';
import { ConsolePage } from './app.tsx';
import { Notices } from './parts/notices.tsx';
import { Questions } from './parts/questions.tsx';
import { SandboxList } from './state/sandbox-list.ts';
import { type CallError, callErrorOf } from './wire/call-error.ts';
import { openConsole } from './wire/console-client.ts';
import { type PageParts, Workspace } from './workspace/workspace.ts';

void start(document.body);
// A new link that is opened in this window only changes the fragment.
window.addEventListener('hashchange', () => location.reload());

async function start(body: HTMLElement): Promise<void> {
  try {
    const client = await openConsole();
    const parts: PageParts = {
      client,
      list: await SandboxList.open(client),
      questions: new Questions(),
      notices: new Notices(),
    };
    const { hasGateway, sandbox } = client.about;
    const first = hasGateway && sandbox === null ? null : new Workspace(parts, hasGateway ? sandbox : null);
    document.title = `${sandbox ?? client.about.name} – console`;
    render(<ConsolePage parts={parts} first={first} />, body);
  } catch (error) {
    render(<Refused error={callErrorOf(error)} />, body);
  }
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
