import { expect, test } from 'vitest';
import { type HookRequest, UrlHook } from '../../../src/gateway/hooks/hook.ts';
import { Signer } from '../../../src/gateway/hooks/signer.ts';
import { startRawSandbox } from '../../support/programs/raw-sandbox.ts';

test('a hook that switches protocols instead of answering has not answered, and is not waited for', async () => {
  let asked = 0;
  await using server = await startRawSandbox((socket) => {
    asked++;
    socket.end('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n');
  });
  const hook = new UrlHook(`http://127.0.0.1:${server.port}/`, 60_000, new Signer([]));
  const request: HookRequest = { event: 'kill', expiryID: 'i-1', sandboxID: 's', outcome: 'remove' };
  const limit = AbortSignal.timeout(5000);
  await expect(hook.run(request, limit)).rejects.toThrow('the hook did not answer: it closed the connection');
  expect(asked).toBe(2);
});
